// A checkpoint's files and the readers of its tensors, plain or put together as a pair says.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "verify/compare/pairing.h"
#include "verify/oracle/quote.h"

namespace shardproof::compare {
namespace {

/// Parts that are not first along a tensor are read in small pieces in turn: they read ahead.
uint64_t WindowBytes(const TensorPair& pair) {
  const bool in_pieces =
      (pair.parts.size() > 1 && pair.fuse_dim > 0) || (pair.is_split && pair.split_dim > 0);
  if (!in_pieces || pair.is_transposed) return 0;
  return std::min<uint64_t>(kWindowBytesMax, kWindowsBytesMax / pair.parts.size());
}

Status CheckJoinable(const TensorPair& pair, const std::vector<Reader>& parts) {
  const TensorReader& first = *parts.front();
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<int64_t> shape = parts[i]->shape();
    if (pair.fuse_dim < shape.size() && shape.size() == first.shape().size()) {
      shape[pair.fuse_dim] = first.shape()[pair.fuse_dim];
    }
    const bool fits = pair.fuse_dim < shape.size() && shape == first.shape() &&
                      &parts[i]->dtype() == &first.dtype();
    if (fits) continue;
    return BadInput(fmt::format(
        "{}: map: fuse to {}: expected parts of one dtype and, but for dim {}, one shape: {} is {} "
        "[{}], {} is {} [{}]",
        pair.map_file, oracle::Quote(pair.b_name), pair.fuse_dim, oracle::Quote(pair.parts[0]),
        first.dtype().name, fmt::join(first.shape(), ", "), oracle::Quote(pair.parts[i]),
        parts[i]->dtype().name, fmt::join(parts[i]->shape(), ", ")));
  }
  return Ok();
}

/// Those whose names begin with `below`, without it; in the same order.
template <typename Named>
void TakeBelow(const std::string& below, std::vector<Named>& list) {
  std::erase_if(list, [&](const Named& entry) { return !entry.name.starts_with(below); });
  for (Named& entry : list) entry.name.erase(0, below.size());
}

}  // namespace

Result<Checkpoint> Checkpoint::Open(const std::string& path, const std::string& below) {
  Checkpoint checkpoint;
  formats::StoredCheckpoint& stored = checkpoint.stored_;
  SP_ASSIGN(stored, formats::OpenStored(path));
  TakeBelow(below, stored.tensors);
  TakeBelow(below, stored.values);
  if (stored.tensors.empty() && stored.values.empty() && !below.empty()) {
    return BadInput(fmt::format("{}: expected names that begin with {}, found none",
                                oracle::Printable(path), oracle::Quote(below)));
  }
  checkpoint.open_->files.resize(checkpoint.stored_.files.size());
  return checkpoint;
}

const formats::StoredTensor* Checkpoint::Find(const std::string& name) const {
  const auto found =
      std::lower_bound(tensors().begin(), tensors().end(), name,
                       [](const formats::StoredTensor& tensor, const std::string& wanted) {
                         return tensor.name < wanted;
                       });
  return found == tensors().end() || found->name != name ? nullptr : &*found;
}

Reader Checkpoint::Read(const formats::StoredTensor& tensor, uint64_t window_bytes) const {
  const auto open = [this](uint32_t index) -> Result<std::shared_ptr<const oracle::InputFile>> {
    const std::lock_guard lock(open_->mutex);
    std::shared_ptr<const oracle::InputFile> file = open_->files[index].lock();
    if (file == nullptr) {
      SP_ASSIGN(file, oracle::InputFile::Open(stored_.files[index].path));
      open_->files[index] = file;
    }
    return file;
  };
  return ReadStored(open, tensor, window_bytes);
}

std::string TensorPair::Source() const {
  std::string text;
  if (parts.size() > 1) {
    text = fmt::format("fuse of {} along dim {}", fmt::join(parts, ", "), fuse_dim);
  } else if (is_split) {
    text = fmt::format("{}, dim {} from {} to {}", parts[0], split_dim, split_start,
                       split_start + split_length);
  } else if (parts[0] != b_name || is_transposed) {
    text = parts[0];
  }
  if (is_transposed) text += fmt::format(", dims {} and {} swapped", dim_a, dim_b);
  return text;
}

Result<Reader> ReadSource(const Checkpoint& a, const TensorPair& pair) {
  std::vector<Reader> parts;
  for (const std::string& name : pair.parts) {
    parts.push_back(a.Read(*a.Find(name), WindowBytes(pair)));
  }
  Reader reader;
  if (parts.size() > 1) {
    SP_TRY(CheckJoinable(pair, parts));
    reader = Concatenate(std::move(parts), pair.fuse_dim);
  } else {
    reader = std::move(parts.front());
  }
  if (pair.is_split) {
    reader = Narrow(std::move(reader), pair.split_dim, pair.split_start, pair.split_length);
  }
  if (!pair.is_transposed) return reader;
  const size_t rank = reader->shape().size();
  if (pair.dim_a >= rank || pair.dim_b >= rank) {
    return BadInput(fmt::format("{}: map: transpose {}: expected dims below {}, found {} and {}",
                                pair.map_file, oracle::Quote(pair.b_name), rank, pair.dim_a,
                                pair.dim_b));
  }
  return Transpose(std::move(reader), pair.dim_a, pair.dim_b);
}

}  // namespace shardproof::compare
