#include "src/load/dcp_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "src/aten/dtype.h"
#include "src/format/file_names.h"
#include "src/format/torch_archive.h"
#include "src/format/torch_names.h"
#include "src/load/dcp_piece.h"
#include "src/mesh/boxes.h"
#include "src/model/loop_keys.h"
#include "src/model/rng.h"
#include "src/pickle/pickle.h"
#include "src/text/quote.h"

namespace shardproof {
namespace {

using pickle::Describe;
using pickle::Pickle;
using pickle::PickleValue;
using text::Printable;
using text::Quote;
using Kind = PickleValue::Kind;

constexpr uint64_t kMetadataBytesMax = uint64_t{1} << 30;
constexpr uint64_t kPickleBytesMax = 64u << 20;  // of all values
constexpr std::string_view kMetadata = "torch.distributed.checkpoint.metadata.Metadata";
constexpr std::string_view kTensorEntry =
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata";
constexpr std::string_view kValueEntry =
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata";
constexpr std::string_view kStrided = "torch.strided";
constexpr std::string_view kModelPrefix = "model.";
constexpr size_t kNamesMax = 1024;  // of one piece

/// Bytes of a tensor. \returns nullopt if they do not fit 63 bits.
std::optional<uint64_t> BytesOf(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  bool empty = false;
  for (const int64_t size : shape) {
    empty = empty || size == 0;
    if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return empty ? 0 : static_cast<uint64_t>(bytes);
}

/// Where an item lies: a piece of a tensor, or a value (no offsets).
struct Place {
  std::string_view name;  ///< lives as long as the metadata
  std::vector<int64_t> offsets;
  int64_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

class Reader {
 public:
  Reader(FileSystem& files, const std::string& directory)
      : files_(files),
        directory_(directory),
        where_(directory + "/" + kDcpMetadataName),
        pieces_(where_) {}

  Result<Source> Run() {
    SP_ASSIGN(std::string bytes, files_.ReadText(where_, kMetadataBytesMax));
    SP_ASSIGN(const Pickle metadata, pickle::ReadPickle(std::move(bytes), where_));
    const PickleValue& root = metadata.root();
    if (!root.IsObject(kMetadata)) return Wrong("a Metadata", Describe(root));
    SP_ASSIGN(const PickleValue* entries, Member(root, "state_dict_metadata", Kind::kDict));
    SP_ASSIGN(const PickleValue* places, Member(root, "storage_data", Kind::kDict));
    SP_TRY(ReadPlaces(*places));
    SP_TRY(CheckApart());
    for (size_t i = 0; i + 1 < entries->items.size(); i += 2) {
      const PickleValue& key = *entries->items[i];
      if (!key.Is(Kind::kText)) return Wrong("names in state_dict_metadata", Describe(key));
      SP_TRY(ReadEntry(std::string(key.text), *entries->items[i + 1]));
    }
    places_.clear();  // their names are in the metadata
    TakeModel(IsNested(root));
    KeepPaths(root);
    return std::move(source_);
  }

 private:
  Error Wrong(const std::string& expected, const std::string& found) const {
    return BadInput(fmt::format("{}: expected {}, found {}", Printable(where_), expected, found));
  }
  Error WrongOf(std::string_view name, const std::string& expected,
                const std::string& found) const {
    return BadInput(fmt::format("{}: tensor {}: expected {}, found {}", Printable(where_),
                                Quote(name), expected, found));
  }

  Result<const PickleValue*> Member(const PickleValue& object, const char* name, Kind kind) const {
    const PickleValue* member = object.At(name);
    if (member != nullptr && member->Is(kind)) return member;
    return Wrong(fmt::format("a field {} of {}", name, Describe(object)),
                 member == nullptr ? "none" : Describe(*member));
  }

  Result<uint64_t> Number(const PickleValue& object, const char* name) const {
    SP_ASSIGN(const PickleValue* member, Member(object, name, Kind::kInteger));
    if (member->is_big || member->integer < 0) {
      return Wrong(fmt::format("{} of at least 0", name), Describe(*member));
    }
    return static_cast<uint64_t>(member->integer);
  }

  Status ReadPlaces(const PickleValue& places) {
    for (size_t i = 0; i + 1 < places.items.size(); i += 2) {
      const PickleValue& index = *places.items[i];
      const PickleValue& info = *places.items[i + 1];
      SP_ASSIGN(const PickleValue* name, Member(index, "fqn", Kind::kText));
      Place place{.name = name->text, .offsets = {}};
      const PickleValue* offset = index.At("offset");
      if (offset != nullptr && !offset->Is(Kind::kNone)) {
        SP_ASSIGN(place.offsets,
                  DcpSizes(offset, [&] { return where_ + ": offset of " + Quote(name->text); }));
      }
      const PickleValue* transforms = info.At("transform_descriptors");
      if (transforms != nullptr && !transforms->Is(Kind::kNone) && !transforms->items.empty()) {
        return Unsupported(fmt::format("{}: tensor {}: its pieces are transformed by {}",
                                       Printable(where_), Quote(name->text),
                                       Describe(*transforms)));
      }
      SP_ASSIGN(const PickleValue* path, Member(info, "relative_path", Kind::kText));
      SP_ASSIGN(place.file, FileOf(path->text));
      SP_ASSIGN(place.offset, Number(info, "offset"));
      SP_ASSIGN(place.length, Number(info, "length"));
      const uint64_t size = source_.files[place.file]->size();
      if (place.offset > size || place.length > size - place.offset) {
        return WrongOf(name->text,
                       fmt::format("a piece within the {} bytes of {}", size, Quote(path->text)),
                       fmt::format("[{}, +{})", place.offset, place.length));
      }
      places_.push_back(std::move(place));
    }
    std::sort(places_.begin(), places_.end(), IsBefore);
    for (size_t i = 1; i < places_.size(); ++i) {
      if (IsBefore(places_[i - 1], places_[i])) continue;
      return WrongOf(places_[i].name, "a piece in one place", "two");
    }
    return Ok();
  }

  static bool IsBefore(const Place& a, const Place& b) {
    return std::tie(a.name, a.offsets) < std::tie(b.name, b.offsets);
  }

  Result<int64_t> FileOf(std::string_view path) {
    const auto known = number_of_.find(path);
    if (known != number_of_.end()) return known->second;
    const std::string name(path);
    const std::string slashed = "/" + name + "/";
    if (name.empty() || name.find('\0') != std::string::npos ||
        slashed.find("//") != std::string::npos || slashed.find("/../") != std::string::npos) {
      return Wrong("files below the directory", Quote(name));
    }
    auto mapping = files_.Map(directory_ + "/" + name);
    if (!mapping.ok()) return mapping.error().While(Printable(where_) + " names a file");
    source_.files.push_back(std::move(mapping).value());
    source_.paths.push_back(directory_ + "/" + name);
    names_.push_back(name);
    return number_of_[name] = static_cast<int64_t>(names_.size()) - 1;
  }

  Result<const Place*> PlaceOf(std::string_view name, const std::vector<int64_t>& offsets) const {
    const auto found =
        std::partition_point(places_.begin(), places_.end(), [&](const Place& place) {
          return std::tie(place.name, place.offsets) < std::tie(name, offsets);
        });
    if (found == places_.end() || found->name != name || found->offsets != offsets) {
      return WrongOf(name, fmt::format("a place of the piece at [{}]", fmt::join(offsets, ", ")),
                     "none");
    }
    return &*found;
  }

  Result<ReadItem> ItemAt(const Place& place) const {
    const auto where = [&] {
      return fmt::format("{}: piece of {} at byte {} of {}", Printable(directory_),
                         Quote(place.name), place.offset, Quote(names_[place.file]));
    };
    return OpenTorchItem(source_.BytesAt(place.file, place.offset), place.length, std::cref(where));
  }

  Status ReadEntry(const std::string& name, const PickleValue& entry) {
    if (entry.IsObject(kValueEntry)) {
      SP_ASSIGN(const Place* place, PlaceOf(name, {}));
      SP_ASSIGN(const ReadItem item, ItemAt(*place));
      value_bytes_ += item.pickle.size();
      if (value_bytes_ > kPickleBytesMax) {
        return WrongOf(name, "values of at most 64 MiB together", "more");
      }
      source_.values[name] = item.pickle;
      return Ok();
    }
    if (!entry.IsObject(kTensorEntry)) {
      return WrongOf(name, "a TensorStorageMetadata or BytesStorageMetadata", Describe(entry));
    }
    SourceTensor tensor;
    SP_ASSIGN(tensor.dtype, DtypeOf(name, entry));
    SP_ASSIGN(tensor.shape,
              DcpSizes(entry.At("size"), [&] { return where_ + ": size of " + Quote(name); }));
    const auto bytes = BytesOf(tensor.shape, tensor.dtype);
    if (!bytes)
      return WrongOf(name, "a size that fits 63 bits",
                     fmt::format("[{}]", fmt::join(tensor.shape, ", ")));
    tensor.length = *bytes;
    SP_ASSIGN(const PickleValue* chunks, Member(entry, "chunks", Kind::kList));
    std::vector<Box> boxes;
    for (const PickleValue* chunk : chunks->items) {
      SP_TRY(ReadChunk(name, *chunk, boxes.emplace_back(), tensor));
    }
    SP_TRY(CheckCover(name, std::move(boxes), tensor));
    source_.state[name] = std::move(tensor);
    return Ok();
  }

  Result<at::ScalarType> DtypeOf(const std::string& name, const PickleValue& entry) const {
    const PickleValue* properties = entry.At("properties");
    const PickleValue* state = properties == nullptr ? nullptr : properties->state;
    if (state == nullptr || !state->Is(Kind::kTuple) || state->items.empty()) {
      return WrongOf(name, "properties that begin with a dtype", "none");
    }
    // A sparse tensor's bytes are no image of it.
    const PickleValue* layout = state->items.size() > 1 ? state->items[1] : nullptr;
    const bool is_strided = layout != nullptr && layout->items.size() == 1 &&
                            layout->items[0]->Is(Kind::kText) && layout->items[0]->text == kStrided;
    if (!is_strided) {
      return WrongOf(name, fmt::format("the layout {}", kStrided),
                     layout == nullptr ? "none" : Describe(*layout));
    }
    const auto dtype = DtypeFromTorchName(state->items[0]->text);
    if (dtype) return *dtype;
    return Unsupported(fmt::format("{}: tensor {}: dtype {}, which is not known", Printable(where_),
                                   Quote(name), Describe(*state->items[0])));
  }

  Status ReadChunk(const std::string& name, const PickleValue& chunk, Box& read,
                   SourceTensor& tensor) {
    const auto of = [&](const char* what) { return pieces_.PieceOf(name) + what; };
    SP_ASSIGN(const auto offsets, DcpSizes(chunk.At("offsets"), [&] { return of(": offsets"); }));
    SP_ASSIGN(const auto sizes, DcpSizes(chunk.At("sizes"), [&] { return of(": sizes"); }));
    bool inside = offsets.size() == tensor.shape.size() && sizes.size() == tensor.shape.size();
    for (size_t d = 0; inside && d < sizes.size(); ++d) {
      inside = offsets[d] <= tensor.shape[d] && sizes[d] <= tensor.shape[d] - offsets[d];
    }
    const auto box = [&] {
      return fmt::format("[{}] at [{}]", fmt::join(sizes, ", "), fmt::join(offsets, ", "));
    };
    if (!inside) {
      return WrongOf(name, fmt::format("pieces within [{}]", fmt::join(tensor.shape, ", ")), box());
    }
    SP_ASSIGN(const Place* place, PlaceOf(name, offsets));
    SP_ASSIGN(const ReadItem item, ItemAt(*place));
    const auto bytes = BytesOf(sizes, tensor.dtype);
    SP_ASSIGN(const uint64_t begin,
              pieces_.BeginOf(source_.paths[place->file], name, item.pickle, tensor.dtype, sizes));
    if (begin > item.data_bytes || *bytes > item.data_bytes - begin) {
      return WrongOf(
          name,
          fmt::format("{} bytes of piece {} in {}", *bytes, box(), Quote(names_[place->file])),
          fmt::format("{} from byte {} on", item.data_bytes, begin));
    }
    read = {offsets, sizes};
    const uint64_t element = c10::elementSize(tensor.dtype);
    uint64_t offset = place->offset + item.data_offset + begin;
    for (const ElementRun& run : RunsOfBox(tensor.shape, offsets, sizes)) {
      tensor.pieces.push_back({run.start * element, run.length * element, run.count,
                               run.stride * element, place->file, offset});
      offset += run.length * run.count * element;
    }
    return Ok();
  }

  /// That the pieces are the whole image, each byte once.
  Status CheckCover(const std::string& name, std::vector<Box> boxes, SourceTensor& tensor) const {
    uint64_t held = 0;
    for (const SourcePiece& piece : tensor.pieces) held += piece.length * piece.count;
    if (held != tensor.length) {
      return WrongOf(name, fmt::format("pieces of {} bytes together", tensor.length),
                     fmt::format("{}", held));
    }
    // Of as many bytes as the whole: they cover it if no two have a byte in common.
    std::sort(boxes.begin(), boxes.end(),
              [](const Box& a, const Box& b) { return a.offsets < b.offsets; });
    for (size_t i = 0; i < boxes.size(); ++i) {
      for (size_t j = i + 1; j < boxes.size() && !IsBehind(boxes[j], boxes[i]); ++j) {
        if (!Overlap(boxes[i], boxes[j])) continue;
        return WrongOf(
            name, "pieces that do not overlap",
            fmt::format("[{}] at [{}] and [{}] at [{}]", fmt::join(boxes[i].sizes, ", "),
                        fmt::join(boxes[i].offsets, ", "), fmt::join(boxes[j].sizes, ", "),
                        fmt::join(boxes[j].offsets, ", ")));
      }
    }
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const SourcePiece& a, const SourcePiece& b) { return a.start < b.start; });
    // One stretch is read as those of other formats are, where a tensor may be made of it as it
    // lies.
    if (tensor.pieces.size() == 1 && tensor.pieces[0].count == 1 &&
        tensor.pieces[0].offset % c10::elementSize(tensor.dtype) == 0) {
      tensor.file = tensor.pieces[0].file;
      tensor.offset = tensor.pieces[0].offset;
      tensor.pieces.clear();
    }
    return Ok();
  }

  /// Whether a box, and with it all that are sorted after it, begins behind the first dim of
  /// another.
  static bool IsBehind(const Box& box, const Box& other) {
    return !box.offsets.empty() && box.offsets[0] >= other.offsets[0] + other.sizes[0];
  }

  static bool Overlap(const Box& a, const Box& b) {
    for (size_t d = 0; d < a.offsets.size(); ++d) {
      if (a.offsets[d] >= b.offsets[d] + b.sizes[d] || b.offsets[d] >= a.offsets[d] + a.sizes[d]) {
        return false;
      }
    }
    return a.ElementCount() > 0 && b.ElementCount() > 0;
  }

  /// Whether a key is of a training job's state, whatever it calls its optimizer.
  static bool IsOfTraining(const std::string& key) {
    return IsRngKey(key) || key.find(".state.") != key.npos;
  }

  /// Whether the state dict that was saved had a dict "model" in it. (The names of many models
  /// begin so.)
  static bool IsNested(const PickleValue& root) {
    const PickleValue* paths = root.At("planner_data");
    if (paths == nullptr || !paths->Is(Kind::kDict)) return false;
    for (size_t i = 1; i < paths->items.size(); i += 2) {
      const auto& path = paths->items[i]->items;
      if (path.size() > 1 && path[0]->Is(Kind::kText) && path[0]->text == "model") return true;
    }
    return false;
  }

  /// Pieces that share bytes would let a small directory stand for any amount. Names of one tied
  /// tensor have one place.
  Status CheckApart() const {
    std::vector<const Place*> sorted;
    for (const Place& place : places_) sorted.push_back(&place);
    std::sort(sorted.begin(), sorted.end(), [](const Place* a, const Place* b) {
      return std::tie(a->file, a->offset) < std::tie(b->file, b->offset);
    });
    size_t alike = 1;
    for (size_t i = 1; i < sorted.size(); ++i) {
      const Place& before = *sorted[i - 1];
      const Place& place = *sorted[i];
      const bool is_same = before.file == place.file && before.offset == place.offset &&
                           before.length == place.length && before.name != place.name;
      alike = is_same ? alike + 1 : 1;
      if (is_same && alike <= kNamesMax) continue;
      if (before.file != place.file || place.offset - before.offset >= before.length) continue;
      return WrongOf(place.name, "pieces that do not overlap in their file",
                     "one that begins in that of " + Quote(before.name));
    }
    return Ok();
  }

  /// What is below "model." becomes the model's, under its names in the model; if nothing is, all
  /// that is not of training.
  void TakeModel(bool is_nested) {
    const bool is_job = source_.values.contains("step");
    const auto is_other = [&](const std::string& key) {
      return IsOfTraining(key) || (is_job && IsLoopKey(key));
    };
    const auto is_below = [](const auto& entry) { return entry.first.starts_with(kModelPrefix); };
    for (auto entry = source_.state.begin(); entry != source_.state.end();) {
      if (is_nested ? !is_below(*entry) : is_other(entry->first)) {
        ++entry;
        continue;
      }
      const size_t prefix = is_nested ? kModelPrefix.size() : 0;
      entry->second.key = entry->first;
      source_.tensors[entry->first.substr(prefix)] = std::move(entry->second);
      entry = source_.state.erase(entry);
    }
  }

  /// What is no optimizer's has a path that nothing else tells.
  void KeepPaths(const PickleValue& root) {
    const PickleValue* paths = root.At("planner_data");
    if (paths == nullptr || !paths->Is(Kind::kDict)) return;
    for (size_t i = 0; i + 1 < paths->items.size(); i += 2) {
      const std::string key(paths->items[i]->text);
      if (IsOfTraining(key) || key.find(".param_groups.") != key.npos) continue;
      if (!source_.values.contains(key) && !source_.state.contains(key)) continue;
      StatePath path;
      for (const PickleValue* part : paths->items[i + 1]->items) {
        if (part->Is(Kind::kText))
          path.emplace_back(std::string(part->text));
        else if (part->Is(Kind::kInteger) && !part->is_big)
          path.emplace_back(part->integer);
      }
      if (path.size() > 1 && FlatKey(path) == key) source_.paths_of_state[key] = std::move(path);
    }
  }

  FileSystem& files_;
  const std::string& directory_;
  const std::string where_;
  Source source_;
  std::map<std::string, int64_t, std::less<>> number_of_;  ///< of a file, in Source::files
  std::vector<std::string> names_;                         ///< of the files
  uint64_t value_bytes_ = 0;
  std::vector<Place> places_;  ///< sorted by name and offsets
  DcpPieces pieces_;
};

}  // namespace

bool HoldsDcp(FileSystem& files, const std::string& directory) {
  return files.Exists(directory + "/" + kDcpMetadataName);
}

Result<Source> OpenDcpSource(FileSystem& files, const std::string& directory) {
  return Reader(files, directory).Run();
}

}  // namespace shardproof
