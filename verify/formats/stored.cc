#include "verify/formats/stored.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "verify/formats/archive.h"
#include "verify/formats/composite.h"
#include "verify/formats/gguf.h"
#include "verify/formats/training_folder.h"
#include "verify/oracle/dtype.h"
#include "verify/oracle/header.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::Printable;
using oracle::Quote;

uint64_t Product(const std::vector<int64_t>& sizes) {
  return oracle::CheckedElements(sizes.data(), sizes.size()).value_or(0);
}

bool Overlap(const Chunk& a, const Chunk& b) {
  for (size_t dim = 0; dim < a.sizes.size(); ++dim) {
    if (a.offsets[dim] >= b.offsets[dim] + b.sizes[dim] ||
        b.offsets[dim] >= a.offsets[dim] + a.sizes[dim]) {
      return false;
    }
  }
  return true;
}

bool IsInside(const Chunk& chunk, const std::vector<int64_t>& shape) {
  if (chunk.offsets.size() != shape.size() || chunk.sizes.size() != shape.size()) return false;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (chunk.offsets[dim] > shape[dim] || chunk.sizes[dim] > shape[dim] - chunk.offsets[dim])
      return false;
  }
  return true;
}

/// The dim in which the most chunks begin at places of their own.
size_t MostCutDim(const std::vector<const Chunk*>& chunks) {
  size_t most_cut = 0, most = 0;
  for (size_t dim = 0; !chunks.empty() && dim < chunks[0]->offsets.size(); ++dim) {
    std::set<int64_t> places;
    for (const Chunk* chunk : chunks) places.insert(chunk->offsets[dim]);
    if (places.size() > most) {
      most = places.size();
      most_cut = dim;
    }
  }
  return most_cut;
}

std::string BoxText(const Chunk& chunk) {
  return fmt::format("[{}]+[{}]", fmt::join(chunk.offsets, ", "), fmt::join(chunk.sizes, ", "));
}

/// The first file of a directory, by its name, of those that are such; empty if there is none.
template <typename Predicate>
std::string FindName(const std::string& directory, Predicate is_one) {
  std::string first;
  (void)oracle::List(directory, [&](const oracle::DirectoryEntry& entry) {
    if (is_one(entry.name) && (first.empty() || entry.name < first)) first = entry.name;
  });
  return first;
}

/// Whether a directory has a file whose name ends with one of these.
bool HoldsNamed(const std::string& directory, std::initializer_list<std::string_view> ends) {
  return !FindName(directory, [&](const std::string& name) {
            return std::any_of(ends.begin(), ends.end(),
                               [&](auto end) { return name.ends_with(end); });
          }).empty();
}

std::string FindMatch(const std::string& directory, const std::regex& pattern) {
  return FindName(directory, [&](const std::string& name) {
    return name.size() <= 255 && std::regex_match(name, pattern);
  });
}

bool IsDcp(const std::string& path) { return oracle::IsThere(path + "/.metadata"); }

/// What torch.distributed.checkpoint writes beside what is read here, where nothing in the
/// directory says what the whole of it is. \pre no .metadata.
Status RefuseDcpOfParts(const std::string& path) {
  static const std::regex kOfRank("__[0-9]+\\.metadata");
  static const std::regex kShard("shard-[0-9]{5,}-model-[0-9]{5,}-of-[0-9]{5,}\\.safetensors");
  if (const std::string found = FindMatch(path, kOfRank); !found.empty()) {
    return Unsupported(
        fmt::format("{}: {} is part of a DCP save with use_collectives=False, which is not "
                    "supported: expected one .metadata for all ranks",
                    Printable(path), Quote(found)));
  }
  if (const std::string found = FindMatch(path, kShard); !found.empty()) {
    return Unsupported(
        fmt::format("{}: {} is a shard of DCP's HuggingFaceStorageWriter, which is not supported, "
                    "since no shard says how many there are: expected the files that "
                    "enable_consolidation or consolidate_safetensors_files makes",
                    Printable(path), Quote(found)));
  }
  return Ok();
}

/// Whether a file begins as safetensors does: the header's length, 8 bytes, and then the header.
bool OpensAsSafetensors(const oracle::InputFile& file) {
  constexpr uint64_t kLengthBytes = 8;
  char first = 0;
  return file.size() > kLengthBytes && file.ReadAt(kLengthBytes, 1, &first).ok() && first == '{';
}

}  // namespace

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim-- > 1;) {  // it only wraps where there is no element
    const auto step = static_cast<uint64_t>(strides[dim]);
    strides[dim - 1] = static_cast<int64_t>(step * std::max<uint64_t>(shape[dim], 1));
  }
  return strides;
}

uint64_t Chunk::Elements() const { return Product(sizes); }

bool Chunk::IsRowMajor() const {
  uint64_t step = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim] != 1 && static_cast<uint64_t>(strides[dim]) != step) return false;
    step *= static_cast<uint64_t>(sizes[dim]);
  }
  return true;
}

uint64_t StoredTensor::Elements() const { return Product(shape); }
uint64_t StoredTensor::Bytes() const {
  return Elements() * static_cast<uint64_t>(oracle::FindDtype(dtype)->bytes);
}

bool HoldsDcpOrSafetensors(const std::string& directory) {
  return IsDcp(directory) ||
         HoldsNamed(directory, {".distcp", ".safetensors", ".safetensors.index.json"});
}

bool LooksLikeCheckpoint(const std::string& directory) {
  const Status listed = oracle::List(directory, [](const oracle::DirectoryEntry&) {});
  return !listed.ok() || IsDcp(directory) || HoldsTorchSave(directory) ||
         HoldsNamed(directory,
                    {".distcp", ".metadata", ".safetensors", ".safetensors.index.json"}) ||
         !PartsOf(directory).empty();
}

Status CheckTiling(const std::string& where, StoredTensor& tensor) {
  const auto wrong = [&](const std::string& found) {
    return BadInput(fmt::format("{}: tensor {}: expected chunks that tile [{}], found {}",
                                Printable(where), Quote(tensor.name), fmt::join(tensor.shape, ", "),
                                found));
  };
  std::vector<Chunk>& chunks = tensor.chunks;
  std::sort(chunks.begin(), chunks.end(),
            [](const Chunk& a, const Chunk& b) { return a.offsets < b.offsets; });
  uint64_t covered = 0;
  for (const Chunk& chunk : chunks) {
    if (!IsInside(chunk, tensor.shape)) return wrong(BoxText(chunk));
    covered += chunk.Elements();
  }
  std::vector<const Chunk*> sorted;
  for (const Chunk& chunk : chunks) {
    if (chunk.Elements() > 0) sorted.push_back(&chunk);
  }
  const size_t dim = MostCutDim(sorted);
  const auto begin = [dim](const Chunk& chunk) {
    return chunk.offsets.empty() ? 0 : chunk.offsets[dim];
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Chunk* a, const Chunk* b) { return begin(*a) < begin(*b); });
  std::vector<const Chunk*> open;  // those that the next may overlap, by this dim alone
  for (const Chunk* chunk : sorted) {
    if (!chunk->offsets.empty()) {
      std::erase_if(open, [&](const Chunk* other) {
        return other->offsets[dim] + other->sizes[dim] <= chunk->offsets[dim];
      });
    }
    for (const Chunk* other : open) {
      if (Overlap(*other, *chunk)) {
        return wrong(BoxText(*other) + " and " + BoxText(*chunk) + ", which overlap");
      }
    }
    open.push_back(chunk);
  }
  if (covered != tensor.Elements()) {
    return wrong(
        fmt::format("{} of {} elements in none", tensor.Elements() - covered, tensor.Elements()));
  }
  return Ok();
}

Status SortByName(const std::string& where, StoredCheckpoint& checkpoint) {
  const auto sort = [&](auto& list) -> Status {
    std::sort(list.begin(), list.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    const auto twice = std::adjacent_find(
        list.begin(), list.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
    if (twice == list.end()) return Ok();
    return BadInput(fmt::format("{}: expected every name once, found {} twice", Printable(where),
                                Quote(twice->name)));
  };
  SP_TRY(sort(checkpoint.tensors));
  return sort(checkpoint.values);
}

Result<StoredCheckpoint> OpenStored(const std::string& path, Damage* damage) {
  SP_TRY(MountPlace(path));
  if (IsOrbax(path)) return OpenOrbax(path, damage);
  if (oracle::IsDirectory(path)) {
    if (HoldsOrbax(path)) {
      return Unsupported(Printable(path) +
                         ": of Orbax, which is read from a directory alone: unpack or download it");
    }
    if (!LooksLikeCheckpoint(path)) {
      return BadInput(
          fmt::format("{}: expected a checkpoint: a directory with .safetensors files, with a "
                      ".metadata of torch.distributed.checkpoint, or with .pt, .pth, .bin or .ckpt "
                      "files of torch.save; found none of these in it",
                      Printable(path)));
    }
    if (IsDcp(path)) return OpenDcp(path, damage);
    SP_TRY(RefuseDcpOfParts(path));
    if (HoldsNamed(path, {".distcp"})) {
      return BadInput(fmt::format(
          "{}: expected .metadata beside the .distcp files, found none: the save did not finish",
          Printable(path)));
    }
    const bool is_safetensors = HoldsNamed(path, {".safetensors", ".safetensors.index.json"});
    if (!is_safetensors || IsPipeline(path)) {
      const std::vector<std::string> parts = PartsOf(path);
      if (!parts.empty()) return OpenComposite(path, parts, damage);
    }
    StoredCheckpoint checkpoint;
    if (is_safetensors) {
      SP_ASSIGN(checkpoint, OpenSafetensors(path, damage));
      if (HoldsTrainingFolder(path)) SP_TRY(AddTrainingFolder(path, checkpoint, damage));
    } else {
      SP_ASSIGN(checkpoint, OpenTorchSave(path, damage));
    }
    SP_TRY(AddNamedParts(path, checkpoint, damage));
    return checkpoint;
  }
  SP_ASSIGN(const auto file, oracle::InputFile::Open(path));
  char magic[4] = {};
  SP_TRY(file->ReadAt(0, std::min<uint64_t>(file->size(), sizeof magic), magic));
  if (std::string_view(magic, sizeof magic) == "GGUF") return OpenGguf(path, damage);
  // A safetensors file opens with its header's length: one of 'PK' would be 19,280 bytes, and is
  // read as such if its name says so.
  const bool is_zip = magic[0] == 'P' && magic[1] == 'K' && !path.ends_with(".safetensors");
  if (is_zip) return OpenTorchSave(path, damage);
  if (!is_zip && !path.ends_with(".safetensors") && !OpensAsSafetensors(*file)) {
    return BadInput(
        fmt::format("{}: expected a checkpoint: a safetensors file or a ZIP archive of torch.save; "
                    "found {}",
                    Printable(path),
                    magic[0] == '\x80' ? "a bare pickle (torch.save before PyTorch 1.6, or no "
                                         "checkpoint)"
                                       : "a file of a kind that is not known"));
  }
  return OpenSafetensors(path, damage);
}

}  // namespace shardproof::formats
