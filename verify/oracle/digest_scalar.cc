#include "verify/oracle/digest_scalar.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "verify/oracle/oracle.h"

namespace shardproof::oracle {
namespace {

constexpr uint64_t kBlockBytes = 4096;
constexpr uint64_t kWordBytes = 4;
constexpr uint64_t kWords = kBlockBytes / kWordBytes;
constexpr uint64_t kBlocksMax = 1024;
constexpr uint64_t kWidestElement = 8;

uint64_t Key(uint64_t lane, uint64_t word) {
  return (Mix(0x5368617264000000 + 1024 * lane + word) >> 32) | 1;
}

uint64_t Factor(uint64_t lane, uint64_t block) {
  return Mix(0x70726f6f66000000 + (lane << 63) + block) | 1;
}

using KeyTable = std::array<std::array<uint64_t, kWords>, 2>;

const KeyTable& AllKeys() {
  static const KeyTable keys = [] {
    KeyTable made;
    for (uint64_t lane = 0; lane < 2; ++lane) {
      for (uint64_t word = 0; word < kWords; ++word) made[lane][word] = Key(lane, word);
    }
    return made;
  }();
  return keys;
}

}  // namespace

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t GridBlockBytes(uint64_t byte_length) {
  uint64_t side = kBlockBytes;
  while (byte_length / side + (byte_length % side != 0) > kBlocksMax) side *= 2;
  return side;
}

ScalarDigest::ScalarDigest(uint64_t byte_length, const DtypeInfo& dtype) : dtype_(dtype) {
  blocks_.block_bytes = GridBlockBytes(byte_length);
  const uint64_t side = blocks_.block_bytes;
  blocks_.blocks.resize(byte_length / side + (byte_length % side != 0));
}

void ScalarDigest::Add(const char* data, uint64_t length) {
  if (!pending_.empty()) {
    const uint64_t taken = std::min(length, kWidestElement - pending_.size());
    pending_.append(data, taken);
    data += taken;
    length -= taken;
    if (pending_.size() < kWidestElement) return;
    AddWords(pending_.data(), kWidestElement);
    pending_.clear();
  }
  const uint64_t whole = length - length % kWidestElement;
  AddWords(data, whole);
  pending_.assign(data + whole, length - whole);
}

// Walks 4 KiB block by block: within one, factor is common and is multiplied in once at its end.
void ScalarDigest::AddWords(const char* data, uint64_t length) {
  CountNonFinite(data, length);
  const KeyTable& keys = AllKeys();
  while (length > 0) {
    const uint64_t block = position_ / kBlockBytes;
    const uint64_t step = std::min(length, kBlockBytes - position_ % kBlockBytes);
    uint64_t word = position_ / kWordBytes % kWords;
    uint64_t sums[2] = {};
    uint64_t coverage[2] = {};
    const auto add = [&](uint64_t value, uint64_t ones) {
      for (int lane = 0; lane < 2; ++lane) {
        sums[lane] += value * keys[lane][word];
        coverage[lane] += ones * keys[lane][word];
      }
      ++word;
    };
    const uint64_t tail = step % kWordBytes;
    for (uint64_t offset = 0; offset < step - tail; offset += kWordBytes) {
      add(LoadBits(data + offset, kWordBytes), 0x01010101);
    }
    // Only the very end of a tensor has part of a word.
    if (tail > 0) {
      const uint64_t ones = 0x01010101u >> (8 * (kWordBytes - tail));
      add(LoadBits(data + step - tail, static_cast<int>(tail)), ones);
    }
    AddBlock(block, sums, coverage);
    data += step;
    length -= step;
    position_ += step;
  }
}

void ScalarDigest::AddBlock(uint64_t block, const uint64_t (&sums)[2],
                            const uint64_t (&coverage)[2]) {
  const uint64_t factor[2] = {Factor(0, block), Factor(1, block)};
  const Digest part(sums[0] * factor[0], sums[1] * factor[1]);
  digest_ += part;
  coverage_ += Digest(coverage[0] * factor[0], coverage[1] * factor[1]);
  const uint64_t cell = block * kBlockBytes / blocks_.block_bytes;
  if (cell < blocks_.blocks.size()) blocks_.blocks[cell] += part;
}

// 8 bytes hold whole elements of every float dtype, so no element straddles two calls.
void ScalarDigest::CountNonFinite(const char* data, uint64_t length) {
  if (!dtype_.HasFormat()) return;
  const int bytes = dtype_.FormatBytes();
  if (bytes == 1) CountElements<uint8_t>(data, length);
  if (bytes == 2) CountElements<uint16_t>(data, length);
  if (bytes == 4) CountElements<uint32_t>(data, length);
  if (bytes == 8) CountElements<uint64_t>(data, length);
}

template <typename Word>
void ScalarDigest::CountElements(const char* data, uint64_t length) {
  // Nearly all exponents are below the largest: only the others are looked at closely.
  const Word exponent_bits = static_cast<Word>(((uint64_t{1} << dtype_.format.exponent_bits) - 1)
                                               << dtype_.format.mantissa_bits);
  for (uint64_t offset = 0; offset + sizeof(Word) <= length; offset += sizeof(Word)) {
    Word bits;
    std::memcpy(&bits, data + offset, sizeof bits);
    if ((bits & exponent_bits) != exponent_bits) continue;
    const FloatClass kind = Classify(dtype_.format, bits);
    if (kind == FloatClass::kFinite) continue;
    ++(kind == FloatClass::kNan ? nan_count_ : inf_count_);
    if (!first_nonfinite_) first_nonfinite_ = (position_ + offset) / dtype_.bytes;
  }
}

void ScalarDigest::Finish(FileTensor& out) {
  AddWords(pending_.data(), pending_.size());
  pending_.clear();
  out.digest = digest_;
  out.coverage = coverage_;
  out.blocks = blocks_;
  out.nan_count = nan_count_;
  out.inf_count = inf_count_;
  out.first_nonfinite = first_nonfinite_;
}

}  // namespace shardproof::oracle
