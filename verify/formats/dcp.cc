// A directory of torch.distributed.checkpoint: .metadata says which box of which tensor, and which
// value, lies where in the files; each is a torch.save archive of its own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "verify/formats/flatten.h"
#include "verify/formats/stored.h"
#include "verify/oracle/dtype.h"
#include "verify/oracle/header.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::InputFile;
using oracle::Printable;
using oracle::Quote;
using Kind = PickleValue::Kind;

constexpr uint64_t kMetadataBytesMax = uint64_t{1} << 30;
constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata.";

/// Where one piece lies.
struct Place {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

/// A tensor's piece, or a value (no offsets).
using PlaceKey = std::pair<std::string_view, std::optional<std::vector<int64_t>>>;

class DcpReader {
 public:
  DcpReader(const std::string& directory, Damage* damage)
      : directory_(directory), where_(directory + "/.metadata"), damage_(damage) {}

  Result<StoredCheckpoint> Run() {
    SP_ASSIGN(std::string bytes, oracle::ReadWholeFile(where_, kMetadataBytesMax));
    SP_ASSIGN(const Pickle pickle, ReadPickle(std::move(bytes), where_, UnknownNames::kKeep));
    const PickleValue& root = pickle.root();
    // Megatron and others save a subclass of Metadata with fields of its own.
    const bool is_metadata =
        root.IsObject(std::string(kModule) + "Metadata") ||
        (root.Is(Kind::kObject) && root.is_opaque && root.At("state_dict_metadata") != nullptr &&
         root.At("storage_data") != nullptr);
    if (!is_metadata) return Wrong("a Metadata", Describe(root));
    SP_ASSIGN(const PickleValue* entries, Member(root, "state_dict_metadata", Kind::kDict));
    SP_ASSIGN(const PickleValue* places, Member(root, "storage_data", Kind::kDict));
    checkpoint_.format = "DCP";
    SP_TRY(ReadPlaces(*places));
    for (size_t i = 0; i + 1 < entries->items.size(); i += 2) {
      const PickleValue& key = *entries->items[i];
      if (!key.Is(Kind::kText)) return Wrong("names in state_dict_metadata", Describe(key));
      if (misplaced_.contains(key.text)) continue;
      const Status read = ReadEntry(key.text, *entries->items[i + 1]);
      if (!read.ok()) SP_TRY(oracle::Note(read.error(), damage_));
    }
    const bool is_all_read = damage_ == nullptr || damage_->empty();
    if (is_all_read && used_count_ != places_.size()) {
      const std::string left =
          fmt::format("{} of {} that are of none", places_.size() - used_count_, places_.size());
      SP_TRY(oracle::Note(Wrong("pieces of the tensors and values in state_dict_metadata", left),
                          damage_));
    }
    SP_TRY(PutShardsTogether(where_, checkpoint_, damage_));
    SP_TRY(SortByName(where_, checkpoint_));
    checkpoint_.files.push_back({".metadata", where_, oracle::FileBytes(where_)});
    return std::move(checkpoint_);
  }

 private:
  Error Wrong(const std::string& expected, const std::string& found) const {
    return BadInput(
        fmt::format("{}{}: expected {}, found {}", Printable(where_), of_, expected, found));
  }

  Error WrongOf(std::string_view name, const std::string& expected,
                const std::string& found) const {
    return BadInput(fmt::format("{}: {}: expected {}, found {}", Printable(where_), Quote(name),
                                expected, found));
  }

  Result<const PickleValue*> Member(const PickleValue& object, const char* name, Kind kind) const {
    const PickleValue* member = object.At(name);
    if (member != nullptr && member->Is(kind)) return member;
    return Wrong(fmt::format("a field {} of {}", name, Describe(object)),
                 member == nullptr ? "none" : Describe(*member));
  }

  Result<uint64_t> Number(const PickleValue& object, const char* name) const {
    SP_ASSIGN(const PickleValue* member, Member(object, name, Kind::kInteger));
    if (member->is_big || member->integer < 0)
      return Wrong(fmt::format("{} of at least 0", name), Describe(*member));
    return static_cast<uint64_t>(member->integer);
  }

  Result<Place> ReadPlace(const PickleValue& info, uint32_t file) const {
    Place place{.file = file};
    SP_ASSIGN(place.offset, Number(info, "offset"));
    SP_ASSIGN(place.length, Number(info, "length"));
    return place;
  }

  Status ReadPlaces(const PickleValue& places) {
    for (size_t i = 0; i + 1 < places.items.size(); i += 2) {
      const PickleValue& index = *places.items[i];
      const PickleValue& info = *places.items[i + 1];
      if (!index.IsObject(std::string(kModule) + "MetadataIndex"))
        return Wrong("a MetadataIndex", Describe(index));
      SP_ASSIGN(const PickleValue* name, Member(index, "fqn", Kind::kText));
      const PickleValue* offset = index.At("offset");
      PlaceKey key{name->text, std::nullopt};
      if (offset != nullptr && !offset->Is(Kind::kNone)) {
        SP_ASSIGN(key.second, Sizes(*offset, where_ + ": offset of " + Quote(name->text)));
      }
      if (!info.IsObject("torch.distributed.checkpoint.filesystem._StorageInfo")) {
        return WrongOf(name->text, "a _StorageInfo of the file system's writer", Describe(info));
      }
      const PickleValue* transforms = info.At("transform_descriptors");
      if (transforms != nullptr && !transforms->Is(Kind::kNone) && !transforms->items.empty()) {
        return WrongOf(name->text, "pieces as they are",
                       "transformed ones: " + Describe(*transforms));
      }
      SP_ASSIGN(const PickleValue* path, Member(info, "relative_path", Kind::kText));
      SP_ASSIGN(const uint32_t file, FileIndex(path->text));
      of_ = ": " + Quote(name->text);
      const auto place = ReadPlace(info, file);
      of_.clear();
      if (!place.ok()) {
        misplaced_.insert(name->text);
        SP_TRY(oracle::Note(place.error(), damage_));
      } else if (!places_.emplace(std::move(key), place.value()).second) {
        return WrongOf(name->text, "every piece in one place", "two");
      }
    }
    return CheckApart();
  }

  using PlacedName = std::pair<Place, std::string_view>;

  /// The largest stretch of a file that is no piece's. \param sorted  all pieces.
  uint64_t LargestGap(const std::vector<PlacedName>& sorted) const {
    std::vector<uint64_t> covered(checkpoint_.files.size(), 0);
    uint64_t largest = 0;
    for (const auto& [place, name] : sorted) {
      uint64_t& end = covered[place.file];
      if (place.offset > end) largest = std::max(largest, place.offset - end);
      end = std::max(end, place.offset + place.length);
    }
    for (size_t file = 0; file < covered.size(); ++file) {
      const uint64_t bytes = checkpoint_.files[file].bytes;
      if (bytes > covered[file]) largest = std::max(largest, bytes - covered[file]);
    }
    return largest;
  }

  /// Pieces that share bytes would let a small directory stand for any amount. Names of one tied
  /// tensor may have one place, a few of them; where bytes are left that are of none, one of the
  /// names has lost its own.
  Status CheckApart() const {
    std::vector<PlacedName> sorted;
    for (const auto& [key, place] : places_) sorted.emplace_back(place, key.first);
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
      return std::tie(a.first.file, a.first.offset) < std::tie(b.first.file, b.first.offset);
    });
    const uint64_t gap = LargestGap(sorted);
    size_t alike = 1;
    for (size_t i = 1; i < sorted.size(); ++i) {
      const Place& before = sorted[i - 1].first;
      const Place& place = sorted[i].first;
      const bool is_same = before.file == place.file && before.offset == place.offset &&
                           before.length == place.length;
      alike = is_same ? alike + 1 : 1;
      if (is_same && alike <= kNamesMax) {
        if (gap < place.length) continue;
        const std::string found = fmt::format(
            "that of {}, byte {} of {}, while bytes are left that are of none",
            Quote(sorted[i - 1].second), place.offset, Quote(checkpoint_.files[place.file].name));
        SP_TRY(oracle::Note(WrongOf(sorted[i].second, "a place of its own", found), damage_));
        continue;
      }
      if (before.file != place.file || place.offset - before.offset >= before.length) continue;
      return WrongOf(sorted[i].second, "pieces that do not overlap in their file",
                     "one that begins in that of " + Quote(sorted[i - 1].second));
    }
    return Ok();
  }

  Result<uint32_t> FileIndex(std::string_view name) {
    const auto [known, is_new] = files_.emplace(name, static_cast<uint32_t>(inputs_.size()));
    if (!is_new) return known->second;
    if (!oracle::StaysInside(name)) return Wrong("files inside the directory", Quote(name));
    const std::string path = directory_ + "/" + std::string(name);
    const auto file = InputFile::Open(path);
    if (!file.ok())
      SP_TRY(oracle::Note(file.error().While(Printable(where_) + " names a file"), damage_));
    checkpoint_.files.push_back({std::string(name), path, file.ok() ? file.value()->size() : 0});
    is_missing_.push_back(!file.ok());
    inputs_.emplace_back();  // opened again when it is read: there may be more of them than
                             // descriptors
    return known->second;
  }

  /// \param offsets  none: of a value.
  Result<TorchArchive> OpenPiece(std::string_view name,
                                 const std::optional<std::vector<int64_t>>& offsets) {
    const auto found = places_.find({name, offsets});
    if (found == places_.end()) {
      const std::string what =
          offsets ? fmt::format("the piece at [{}]", fmt::join(*offsets, ", ")) : "the value";
      return WrongOf(name, "a place of " + what, "none");
    }
    ++used_count_;
    const Place& place = found->second;
    file_ = place.file;
    const StoredFile& file = checkpoint_.files[place.file];
    if (is_missing_[place.file]) {
      return WrongOf(name, "its pieces in files that are there", Quote(file.name));
    }
    if (place.offset > file.bytes || place.length > file.bytes - place.offset) {
      return WrongOf(name,
                     fmt::format("a piece within the {} bytes of {}", file.bytes, Quote(file.name)),
                     fmt::format("[{}, +{})", place.offset, place.length));
    }
    auto& input = inputs_[place.file];
    if (input == nullptr) {
      if (++open_count_ > kOpenMax) {
        for (auto& other : inputs_) other.reset();
        open_count_ = 1;
      }
      SP_ASSIGN(input, InputFile::Open(file.path));
    }
    auto archive = TorchArchive::Open(input, place.offset, place.length);
    if (!archive.ok()) return archive.error().While("piece of " + Quote(name));
    checkpoint_.archives.push_back({std::string(name), place.file, archive.value().entries()});
    return archive;
  }

  Status ReadEntry(std::string_view name, const PickleValue& entry) {
    if (entry.IsObject(std::string(kModule) + "BytesStorageMetadata")) {
      SP_ASSIGN(const TorchArchive archive, OpenPiece(name, std::nullopt));
      return Flatten(archive, std::string(name), file_, checkpoint_.files[file_].path, checkpoint_);
    }
    if (!entry.IsObject(std::string(kModule) + "TensorStorageMetadata")) {
      return WrongOf(name, "a TensorStorageMetadata or BytesStorageMetadata", Describe(entry));
    }
    StoredTensor tensor{.name = std::string(name)};
    SP_ASSIGN(tensor.dtype, Dtype(name, entry));
    const std::string of = where_ + ": " + Quote(name) + ": ";
    const PickleValue* size = entry.At("size");
    if (size == nullptr || !size->Is(Kind::kTuple)) return WrongOf(name, "a size", "none");
    SP_ASSIGN(tensor.shape, Sizes(*size, of + "size"));
    if (!oracle::CheckedElements(tensor.shape.data(), tensor.shape.size())) {
      return WrongOf(name, "a size of less than 2^63 elements",
                     fmt::format("[{}]", fmt::join(tensor.shape, ", ")));
    }
    SP_ASSIGN(const PickleValue* chunks, Member(entry, "chunks", Kind::kList));
    for (const PickleValue* chunk : chunks->items) {
      const PickleValue* offsets = chunk->At("offsets");
      const PickleValue* sizes = chunk->At("sizes");
      if (offsets == nullptr || sizes == nullptr)
        return WrongOf(name, "offsets and sizes of a chunk", Describe(*chunk));
      SP_ASSIGN(const auto at, Sizes(*offsets, of + "offsets"));
      SP_ASSIGN(const auto box, Sizes(*sizes, of + "sizes"));
      SP_ASSIGN(Chunk read, ReadChunk(tensor, at, box));
      tensor.chunks.push_back(std::move(read));
    }
    SP_TRY(CheckTiling(where_, tensor));
    checkpoint_.tensors.push_back(std::move(tensor));
    return Ok();
  }

  Result<std::string> Dtype(std::string_view name, const PickleValue& entry) const {
    const PickleValue* properties = entry.At("properties");
    const PickleValue* state = properties == nullptr ? nullptr : properties->state;
    if (state == nullptr || !state->Is(Kind::kTuple) || state->items.empty() ||
        !state->items[0]->Is(Kind::kName)) {
      return WrongOf(name, "properties that begin with a dtype",
                     state == nullptr ? "none" : Describe(*state));
    }
    const std::string_view dtype = DtypeOfName(state->items[0]->text);
    if (oracle::FindDtype(dtype) == nullptr) {
      return Unsupported(fmt::format("{}: {}: dtype {}, which is not known", Printable(where_),
                                     Quote(name), Describe(*state->items[0])));
    }
    return std::string(dtype);
  }

  Result<Chunk> ReadChunk(const StoredTensor& tensor, const std::vector<int64_t>& offsets,
                          const std::vector<int64_t>& sizes) {
    SP_ASSIGN(const TorchArchive archive, OpenPiece(tensor.name, offsets));
    SP_ASSIGN(const auto piece, archive.AsTensor(archive.root()));
    const std::string expected = fmt::format("a tensor {} [{}] at [{}]", tensor.dtype,
                                             fmt::join(sizes, ", "), fmt::join(offsets, ", "));
    if (!piece) return WrongOf(tensor.name, expected, Describe(archive.root()));
    if (piece->dtype != tensor.dtype || piece->shape != sizes) {
      return WrongOf(tensor.name, expected,
                     fmt::format("{} [{}] in {}", piece->dtype, fmt::join(piece->shape, ", "),
                                 Quote(checkpoint_.files[file_].name)));
    }
    Chunk chunk = WholeChunk(*piece, file_);
    chunk.offsets = offsets;
    return chunk;
  }

  static constexpr int kOpenMax = 256;
  static constexpr size_t kNamesMax = 1024;  // of one piece

  const std::string& directory_;
  std::string where_;
  std::string of_;  ///< for messages, behind where_: whose entry is being read
  Damage* damage_;
  StoredCheckpoint checkpoint_;
  std::map<std::string, uint32_t, std::less<>> files_;
  std::vector<std::shared_ptr<const InputFile>> inputs_;
  std::vector<bool> is_missing_;
  size_t used_count_ = 0;  ///< of the places
  int open_count_ = 0;
  std::map<PlaceKey, Place> places_;
  std::set<std::string_view> misplaced_;  ///< names whose place cannot be read
  uint32_t file_ = 0;                     ///< of the piece that was opened last
};

}  // namespace

Result<StoredCheckpoint> OpenDcp(const std::string& directory, Damage* damage) {
  return DcpReader(directory, damage).Run();
}

}  // namespace shardproof::formats
