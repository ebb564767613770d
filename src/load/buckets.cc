#include "src/load/buckets.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "src/core/check.h"

namespace shardproof {

namespace {

struct Stretch {
  int64_t file = 0;
  uint64_t offset = 0;  ///< in the file, bytes
  uint64_t length = 0;
  const std::string* name = nullptr;  ///< canonical FQN
  uint64_t start = 0;                 ///< within that tensor's image, bytes
};

std::vector<Stretch> InFileOrder(const KeyMatch& keys, const Source& source) {
  std::vector<Stretch> stretches;
  for (const auto& [slot, parts] : keys.loads) {
    for (const KeyPart& part : parts) {
      const auto add = [&](uint64_t start, int64_t file, uint64_t offset, uint64_t length) {
        stretches.push_back({file, offset, length, &slot->spec.name, part.start + start});
      };
      const SourceTensor& tensor = source.tensors.at(part.key);
      tensor.VisitStretches(0, tensor.length, add);
    }
  }
  std::sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) {
    return std::tie(a.file, a.offset, *a.name, a.start) <
           std::tie(b.file, b.offset, *b.name, b.start);
  });
  return stretches;
}

/// Whether `bucket` ends where byte `offset` of `file` begins.
bool Reaches(const Bucket& bucket, int64_t file, uint64_t offset) {
  return bucket.file == file && bucket.offset + bucket.bytes == offset;
}

}  // namespace

std::vector<Bucket> PlanBuckets(const KeyMatch& keys, const Source& source, uint64_t capacity) {
  SP_CHECK(capacity > 0);
  std::vector<Bucket> buckets;
  for (const Stretch& stretch : InFileOrder(keys, source)) {
    for (uint64_t done = 0; done < stretch.length;) {
      const uint64_t offset = stretch.offset + done;
      if (buckets.empty() || buckets.back().bytes == capacity ||
          !Reaches(buckets.back(), stretch.file, offset)) {
        buckets.push_back({.file = stretch.file, .offset = offset});
      }
      Bucket& bucket = buckets.back();
      const uint64_t length = std::min(stretch.length - done, capacity - bucket.bytes);
      bucket.pieces.push_back({*stretch.name, stretch.start + done, length, bucket.bytes});
      bucket.bytes += length;
      done += length;
    }
  }
  return buckets;
}

namespace {

/// Copies the overlap of one piece with one slot's shard.
void UnpackPiece(const Piece& piece, const std::byte* payload, Slot& slot) {
  const uint64_t element = slot.ElementBytes();
  uint64_t local = 0;  // bytes
  const uint64_t piece_end = piece.global_start + piece.length;
  for (const ElementRun& run : slot.shard.runs) {
    const uint64_t start = run.start * element;
    const uint64_t length = run.length * element;
    const uint64_t stride = run.stride * element;
    // Stretches that end before the piece begins need no visit.
    uint64_t i = 0;
    if (stride > 0 && piece.global_start > start + length) {
      i = std::min(run.count, (piece.global_start - start - length) / stride);
    }
    for (; i < run.count && start + i * stride < piece_end; ++i) {
      const uint64_t begin = std::max(start + i * stride, piece.global_start);
      const uint64_t end = std::min(start + i * stride + length, piece_end);
      if (begin >= end) continue;
      slot.CopyIn(local + i * length + (begin - start - i * stride),
                  payload + piece.offset + (begin - piece.global_start), end - begin);
    }
    local += length * run.count;
  }
}

}  // namespace

void Unpack(const std::vector<Piece>& pieces, const std::byte* payload,
            const std::map<std::string, std::shared_ptr<Slot>>& slots) {
  for (const Piece& piece : pieces) UnpackPiece(piece, payload, *slots.at(piece.tensor));
}

}  // namespace shardproof
