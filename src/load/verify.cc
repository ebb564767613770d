#include "src/load/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "src/aten/dtype.h"
#include "src/manifest/manifest.h"
#include "src/pickle/pickle.h"
#include "src/text/quote.h"

namespace shardproof {
namespace {

using pickle::PickleValue;
using text::Printable;
using text::Quote;
using Kind = PickleValue::Kind;

constexpr size_t kNamedMax = 3;         // tensors in one message
constexpr size_t kValueDepthMax = 100;  // of a value

std::string BaseName(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

std::string DirectoryOf(const Source& source, const SourceTensor& tensor) {
  const int64_t file = tensor.IsOneStretch() ? tensor.file : tensor.pieces[0].file;
  const std::string& path = source.paths.at(file);
  return path.substr(0, path.find_last_of('/'));
}

/// "'a.distcp' and 'b.distcp'": the files that a tensor lies in.
std::string FilesOf(const Source& source, const SourceTensor& tensor) {
  std::set<std::string> names;
  const auto add = [&](int64_t file) {
    if (file >= 0 && static_cast<size_t>(file) < source.paths.size()) {
      names.insert(Quote(BaseName(source.paths[file])));
    }
  };
  if (tensor.IsOneStretch()) add(tensor.file);
  for (const SourcePiece& piece : tensor.pieces) add(piece.file);
  return fmt::format("{}", fmt::join(names, " and "));
}

std::string TagText(const std::string& dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

/// Whether a manifest has more than one entry for it: one that a dict or a tensor is in.
bool IsTakenApart(const PickleValue& value, size_t depth = 0) {
  if (value.Is(Kind::kDict) || value.Is(Kind::kPersistent) || depth > kValueDepthMax) return true;
  if (value.state != nullptr && IsTakenApart(*value.state, depth + 1)) return true;
  return std::any_of(value.items.begin(), value.items.end(),
                     [&](const PickleValue* item) { return IsTakenApart(*item, depth + 1); });
}

/// One directory against its manifest.
class Holding {
 public:
  Holding(FileSystem& files, const std::string& directory, size_t first_file, Source& source)
      : files_(files),
        directory_(directory),
        where_(Printable(directory + "/" + kManifestName)),
        first_file_(first_file),
        source_(source) {}

  Status Run() {
    SP_ASSIGN(manifest_, ReadManifest(files_, directory_));
    SP_TRY(CheckFiles());
    const Status frames = CheckFrames();
    const Status content = CheckContent();
    // The one says which file, the other what has become of it.
    if (!frames.ok() && !content.ok()) {
      return BadInput(frames.error().message + "; " + content.error().message);
    }
    SP_TRY(frames);
    SP_TRY(content);
    source_.sealed = true;
    return Ok();
  }

 private:
  Status CheckContent() {
    for (auto* tensors : {&source_.tensors, &source_.state}) {
      for (auto& [name, tensor] : *tensors) SP_TRY(CheckTensor(name, tensor));
    }
    // An adapter, which is added to a checkpoint, has none.
    const std::map<std::string, std::string> none;
    const auto& values = first_file_ == 0 ? source_.values : none;
    for (const auto& [name, bytes] : values) SP_TRY(CheckValue(name, bytes));
    for (const auto& [name, tensor] : manifest_.tensors) {
      if (found_.contains(name) || IsBelowAValue(name)) continue;
      return Wrong("tensor " + Quote(name), TagText(tensor.dtype, tensor.shape), "none");
    }
    for (const auto& [name, digest] : manifest_.values) {
      if (values.contains(name) || IsBelowAValue(name)) continue;
      return Wrong("value " + Quote(name), "what was saved", "none");
    }
    return Ok();
  }

  Error Wrong(const std::string& what, const std::string& expected,
              const std::string& found) const {
    return BadInput(fmt::format("{}: {}: expected {}, found {}", where_, what, expected, found));
  }

  Status CheckFiles() const {
    for (const auto& [name, digest] : manifest_.files) {
      const std::string slashed = "/" + name + "/";
      const bool is_below = !name.empty() && name.find('\0') == std::string::npos &&
                            slashed.find("//") == std::string::npos &&
                            slashed.find("/../") == std::string::npos;
      if (!is_below) return Wrong("files", "names of files below the directory", Quote(name));
      if (!files_.Exists(directory_ + "/" + name)) {
        return Wrong("file " + Quote(name), "what was saved", "none");
      }
    }
    for (size_t i = first_file_; i < source_.paths.size(); ++i) {
      const std::string name = source_.paths[i].substr(directory_.size() + 1);
      const auto entry = manifest_.files.find(name);
      if (entry == manifest_.files.end()) return Wrong("file " + Quote(name), "none", "one");
      if (!source_.mapped() || source_.files[i]->size() == entry->second.bytes) continue;
      return Wrong("file " + Quote(name), fmt::format("{} bytes", entry->second.bytes),
                   fmt::format("{}", source_.files[i]->size()));
    }
    return Ok();
  }

  bool IsOfDirectory(const SourceTensor& tensor) const {
    const int64_t file = tensor.IsOneStretch() ? tensor.file : tensor.pieces[0].file;
    return static_cast<size_t>(file) >= first_file_;
  }

  Status CheckTensor(const std::string& name, SourceTensor& tensor) {
    if (!IsOfDirectory(tensor)) return Ok();
    const std::string& key = tensor.key.empty() ? name : tensor.key;
    const std::string dtype = DtypeName(tensor.dtype);
    const auto entry = manifest_.tensors.find(key);
    const bool is_there = entry != manifest_.tensors.end();
    if (!is_there || entry->second.dtype != dtype || entry->second.shape != tensor.shape) {
      return Wrong(fmt::format("tensor {} in {}", Quote(key), FilesOf(source_, tensor)),
                   is_there ? TagText(entry->second.dtype, entry->second.shape) : "none",
                   TagText(dtype, tensor.shape));
    }
    tensor.sealed = entry->second.digest;
    found_.insert(key);
    return Ok();
  }

  Status CheckValue(const std::string& name, const std::string& bytes) {
    const std::string what = "value " + Quote(name);
    SP_ASSIGN(const pickle::Pickle read, pickle::ReadPickle(bytes, what));
    if (IsTakenApart(read.root())) {
      apart_.push_back(name + ".");
      return Ok();
    }
    SP_ASSIGN(const std::string text, pickle::TextOf(read.root()));
    const auto entry = manifest_.values.find(name);
    if (entry == manifest_.values.end()) return Wrong(what, "none", Quote(text));
    const Digest digest = DigestOfText(text);
    if (entry->second == digest) return Ok();
    return Wrong(what, "the text of digest " + entry->second.Hex(),
                 Quote(text) + " of digest " + digest.Hex());
  }

  /// What no tensor's bytes are: where they lie, and files that hold none.
  Status CheckFrames() {
    std::vector<std::vector<ByteSpan>> held(source_.files.size());
    for (const auto* tensors : {&source_.tensors, &source_.state}) {
      for (const auto& [name, tensor] : *tensors) {
        if (tensor.IsOneStretch()) {
          held[tensor.file].push_back({tensor.offset, tensor.offset + tensor.length});
        }
        for (const SourcePiece& piece : tensor.pieces) {
          held[piece.file].push_back({piece.offset, piece.offset + piece.length * piece.count});
        }
      }
    }
    std::set<std::string> mapped;
    for (size_t i = first_file_; i < source_.files.size(); ++i) {
      const std::string name = source_.paths[i].substr(directory_.size() + 1);
      SP_TRY(CheckFrame(name, DigestOutside(*source_.files[i], std::move(held[i]))));
      mapped.insert(name);
    }
    for (const auto& [name, file] : manifest_.files) {
      if (mapped.contains(name)) continue;
      SP_ASSIGN(const std::string text, files_.ReadText(directory_ + "/" + name, file.bytes));
      SP_TRY(CheckFrame(name, DigestOfText(text)));
    }
    return Ok();
  }

  Status CheckFrame(const std::string& name, const Digest& found) const {
    const Digest& expected = manifest_.files.at(name).digest;
    if (found == expected) return Ok();
    return Wrong("what is no tensor's of file " + Quote(name),
                 "the bytes of digest " + expected.Hex(), found.Hex());
  }

  /// Of the bytes of a file that are in none of the spans.
  static Digest DigestOutside(const MappedFile& file, std::vector<ByteSpan> held) {
    std::sort(held.begin(), held.end());
    held.push_back({file.size(), file.size()});
    const auto* data = reinterpret_cast<const char*>(file.data());
    Digest digest;
    uint64_t at = 0;
    for (const ByteSpan& span : held) {
      if (span.begin > at) digest += DigestOfFrame(at, {data + at, span.begin - at});
      at = std::max(at, span.end);
    }
    return digest;
  }

  bool IsBelowAValue(const std::string& name) const {
    return std::any_of(apart_.begin(), apart_.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  }

  FileSystem& files_;
  const std::string& directory_;
  const std::string where_;
  const size_t first_file_;
  Source& source_;
  Manifest manifest_;
  std::set<std::string> found_;  ///< keys of tensors
  std::vector<std::string>
      apart_;  ///< values that the manifest has in parts, which are not checked
};

/// What rank 0, which has the checkpoint open, says of the sums.
Status Compare(const KeyMatch& keys, const Source& source, const std::vector<int64_t>& numbers) {
  std::vector<std::string> wrong;
  std::string directory;
  size_t count = 0, next = 0;
  for (const SlotKeys& load : keys.loads) {
    for (const KeyPart& part : load.parts) {
      const Digest found(static_cast<uint64_t>(numbers[next]),
                         static_cast<uint64_t>(numbers[next + 1]));
      next += 2;
      const SourceTensor& tensor = source.tensors.at(part.key);
      if (!tensor.sealed || *tensor.sealed == found) continue;
      if (count == 0) directory = DirectoryOf(source, tensor);
      if (++count > kNamedMax) continue;
      wrong.push_back(fmt::format("tensor {} in {}: expected the bytes of digest {}, found {}",
                                  Quote(tensor.key.empty() ? part.key : tensor.key),
                                  FilesOf(source, tensor), tensor.sealed->Hex(), found.Hex()));
    }
  }
  if (count == 0) return Ok();
  return BadInput(
      fmt::format("{}: not what was saved: {}{}", Printable(directory), fmt::join(wrong, "; "),
                  count > kNamedMax ? fmt::format(" and {} more", count - kNamedMax) : ""));
}

}  // namespace

Status HoldAgainstManifest(FileSystem& files, const std::string& directory, size_t first_file,
                           Source& source) {
  if (!files.Exists(directory + "/" + kManifestName)) return Ok();
  return Holding(files, directory, first_file, source).Run();
}

Status VerifyLoaded(const KeyMatch& keys, const Source& source, const Stages& stages,
                    const Job& job, World& world) {
  if (!source.sealed || keys.loads.empty()) return Ok();
  const std::vector<int64_t> coordinates = job.mesh.CoordinatesOf(world.rank());
  std::vector<int64_t> numbers;
  for (const SlotKeys& load : keys.loads) {
    const bool counts = IsFirstReplica(load.slot->placements, coordinates);
    for (const KeyPart& part : load.parts) {
      const ByteSpan image = {part.start, part.start + part.length};
      const Digest own = part.digest ? *part.digest
                         : counts    ? stages.digest(*load.slot, image, {})
                                     : Digest();
      numbers.push_back(static_cast<int64_t>(own.lane0));
      numbers.push_back(static_cast<int64_t>(own.lane1));
    }
  }
  SP_ASSIGN(numbers, world.communicator->Sum(std::move(numbers), "digests of what is loaded"));
  return Agree(*world.communicator, world.rank() == 0 ? Compare(keys, source, numbers) : Ok(),
               "holding what is loaded against the manifest");
}

}  // namespace shardproof
