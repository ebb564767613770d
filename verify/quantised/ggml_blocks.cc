// As ggml's reference (dequantize_row_*, ggml-quants.c) reads them. A number is within half a step
// of its code, times the scale, and within what rounding the block's scale to F16 makes: its codes
// were chosen by the scale before that.
#include "verify/quantised/ggml_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "verify/oracle/dtype.h"

namespace shardproof::quantised {
namespace {

using maps::Number;
using maps::Reader;

constexpr int kIq4Values[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};
constexpr double kF16Unit = 0x1p-11;
constexpr double kF16Least = 0x1p-25;  // half of its smallest step

double F16(const uint8_t* at) {
  static const oracle::FloatFormat kFormat = oracle::FindDtype("F16")->format;
  return oracle::DecodeFloat(kFormat, oracle::LoadBits(at, 2));
}

double RoundingOf(double scale) { return std::max(std::abs(scale) * kF16Unit, kF16Least); }

/// scale * code + least, where the codes end at `low` and `high`.
Number Scaled(double scale, int code, double least, int low, int high) {
  const double step = code == low || code == high ? 1 : 0.5;
  const double rounding = RoundingOf(scale);
  return {scale * code + least, step * (std::abs(scale) + rounding) + std::abs(code) * rounding +
                                    (least == 0 ? 0 : RoundingOf(least))};
}

int Low(uint8_t byte) { return byte & 15; }
int High(uint8_t byte) { return byte >> 4; }

/// Q4_0, Q4_1, Q5_0, Q5_1: 32 codes of four bits and perhaps a fifth.
template <bool kFive, bool kLeast>
void DecodeOfFour(const uint8_t* block, Number* out) {
  const double scale = F16(block);
  const double least = kLeast ? F16(block + 2) : 0;
  const uint8_t* at = block + (kLeast ? 4 : 2);
  const uint64_t fifth = kFive ? oracle::LoadBits(at, 4) : 0;
  if (kFive) at += 4;
  const int count = kFive ? 32 : 16;
  const int middle = kLeast ? 0 : count / 2;
  for (int i = 0; i < 16; ++i) {
    const int first = Low(at[i]) + static_cast<int>(fifth >> i & 1) * 16 - middle;
    const int second = High(at[i]) + static_cast<int>(fifth >> (i + 16) & 1) * 16 - middle;
    out[i] = Scaled(scale, first, least, -middle, count - 1 - middle);
    out[i + 16] = Scaled(scale, second, least, -middle, count - 1 - middle);
  }
}

void DecodeQ8(const uint8_t* block, Number* out) {
  const double scale = F16(block);
  for (int i = 0; i < 32; ++i)
    out[i] = Scaled(scale, static_cast<int8_t>(block[2 + i]), 0, -128, 127);
}

void DecodeQ2K(const uint8_t* block, Number* out) {
  const uint8_t* codes = block + 16;
  const double scale = F16(block + 80);
  const double least = F16(block + 82);
  for (int i = 0; i < 256; ++i) {
    const int within = i % 128;
    const int code = codes[i / 128 * 32 + within % 32] >> within / 32 * 2 & 3;
    const uint8_t both = block[i / 16];
    out[i] = Scaled(scale * Low(both), code, -least * High(both), 0, 3);
  }
}

void DecodeQ3K(const uint8_t* block, Number* out) {
  const uint8_t* codes = block + 32;
  const uint8_t* packed = block + 96;
  const double scale = F16(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;
    const int low = group < 8 ? Low(packed[group]) : High(packed[group - 8]);
    const int high = packed[8 + group % 4] >> group / 4 * 2 & 3;
    const int within = i % 128;
    const int third = block[within % 32] >> (i / 128 * 4 + within / 32) & 1;
    const int code = (codes[i / 128 * 32 + within % 32] >> within / 32 * 2 & 3) - (third ? 0 : 4);
    out[i] = Scaled(scale * ((low | high << 4) - 32), code, 0, -4, 3);
  }
}

/// The scale and the least value of a group of Q4_K and Q5_K, in six bits each.
void SixBits(const uint8_t* packed, int group, int* scale, int* least) {
  if (group < 4) {
    *scale = packed[group] & 63;
    *least = packed[group + 4] & 63;
  } else {
    *scale = Low(packed[group + 4]) | packed[group - 4] >> 6 << 4;
    *least = High(packed[group + 4]) | packed[group] >> 6 << 4;
  }
}

template <bool kFive>
void DecodeQ45K(const uint8_t* block, Number* out) {
  const uint8_t* fifth = block + 16;
  const uint8_t* codes = block + (kFive ? 48 : 16);
  const double of_scales = F16(block);
  const double of_least = F16(block + 2);
  for (int i = 0; i < 256; ++i) {
    int scale = 0;
    int least = 0;
    SixBits(block + 4, i / 32, &scale, &least);
    const uint8_t byte = codes[i / 64 * 32 + i % 32];
    int code = i / 32 % 2 == 0 ? Low(byte) : High(byte);
    if (kFive) code += (fifth[i % 32] >> i / 32 & 1) * 16;
    out[i] = Scaled(of_scales * scale, code, -of_least * least, 0, kFive ? 31 : 15);
  }
}

void DecodeQ6K(const uint8_t* block, Number* out) {
  const double scale = F16(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int within = i % 128;
    const uint8_t byte = block[half * 64 + within % 64];
    const int low = within < 64 ? Low(byte) : High(byte);
    const int high = block[128 + half * 32 + within % 32] >> within / 32 * 2 & 3;
    const auto group = static_cast<int8_t>(block[192 + i / 16]);
    out[i] = Scaled(scale * group, (low | high << 4) - 32, 0, -32, 31);
  }
}

const std::vector<Number>& Iq4Grid() {
  static const std::vector<Number> kGrid = [] {
    std::vector<Number> grid;
    for (int i = 0; i < 16; ++i) {
      const int below = i > 0 ? kIq4Values[i] - kIq4Values[i - 1] : 0;
      const int above = i < 15 ? kIq4Values[i + 1] - kIq4Values[i] : 0;
      grid.push_back({static_cast<double>(kIq4Values[i]), std::max(below, above) / 2.0});
    }
    return grid;
  }();
  return kGrid;
}

Number Iq4(double scale, int code) {
  const Number& number = Iq4Grid()[static_cast<size_t>(code)];
  const double rounding = RoundingOf(scale);
  return {scale * number.value,
          (std::abs(scale) + rounding) * number.bound + std::abs(number.value) * rounding};
}

void DecodeIq4Nl(const uint8_t* block, Number* out) {
  const double scale = F16(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = Iq4(scale, Low(block[2 + i]));
    out[i + 16] = Iq4(scale, High(block[2 + i]));
  }
}

void DecodeIq4Xs(const uint8_t* block, Number* out) {
  const double scale = F16(block);
  const auto high = static_cast<int>(oracle::LoadBits(block + 2, 2));
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    const int low = block[4 + group / 2] >> group % 2 * 4 & 15;
    const int of_group = (low | (high >> 2 * group & 3) << 4) - 32;
    const uint8_t byte = block[8 + group * 16 + i % 16];
    out[i] = Iq4(scale * of_group, i % 32 < 16 ? Low(byte) : High(byte));
  }
}

void DecodeMxfp4(const uint8_t* block, Number* out) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  constexpr double kBounds[] = {0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 1, 2};
  const double scale = oracle::DecodeScale(block[0]);
  const auto of = [&](int code) {
    const double value = kValues[code & 7] * scale;
    return Number{code & 8 ? -value : value, kBounds[code & 7] * scale};
  };
  for (int i = 0; i < 16; ++i) {
    out[i] = of(Low(block[1 + i]));
    out[i + 16] = of(High(block[1 + i]));
  }
}

void DecodeTq2(const uint8_t* block, Number* out) {
  const double scale = F16(block + 64);
  for (int i = 0; i < 256; ++i) {
    const int code = (block[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) - 1;
    out[i] = Scaled(scale, code, 0, -1, 1);
  }
}

constexpr BlockType kTypes[] = {
    {"Q4_0", 32, 18, true, DecodeOfFour<false, false>},
    {"Q4_1", 32, 20, true, DecodeOfFour<false, true>},
    {"Q5_0", 32, 22, true, DecodeOfFour<true, false>},
    {"Q5_1", 32, 24, true, DecodeOfFour<true, true>},
    {"Q8_0", 32, 34, false, DecodeQ8},
    {"Q2_K", 256, 84, true, DecodeQ2K},
    {"Q3_K", 256, 110, true, DecodeQ3K},
    {"Q4_K", 256, 144, true, DecodeQ45K<false>},
    {"Q5_K", 256, 176, true, DecodeQ45K<true>},
    {"Q6_K", 256, 210, true, DecodeQ6K},
    {"IQ4_NL", 32, 18, true, DecodeIq4Nl},
    {"IQ4_XS", 256, 136, true, DecodeIq4Xs},
    {"MXFP4", 32, 17, false, DecodeMxfp4},
    {"TQ2_0", 256, 66, true, DecodeTq2},
};

class BlockReader : public maps::TensorReader {
 public:
  BlockReader(Reader blocks, const BlockType& type, std::vector<int64_t> shape)
      : TensorReader(maps::kNumber, std::move(shape)),
        blocks_(std::move(blocks)),
        type_(type),
        numbers_(type.elements) {}

  Status Read(uint64_t start, uint64_t count, char* out) override {
    constexpr uint64_t kBlocksHeld = 64;
    while (count > 0) {
      const uint64_t first = start / type_.elements;
      const uint64_t last = std::min((start + count - 1) / type_.elements, first + kBlocksHeld - 1);
      bytes_.resize((last - first + 1) * type_.bytes);
      SP_TRY(blocks_->Read(first * type_.bytes, bytes_.size(), bytes_.data()));
      for (uint64_t block = first; block <= last && count > 0; ++block) {
        const uint64_t within = start % type_.elements;
        const uint64_t step = std::min(count, type_.elements - within);
        const char* codes = bytes_.data() + (block - first) * type_.bytes;
        type_.decode(reinterpret_cast<const uint8_t*>(codes), numbers_.data());
        std::memcpy(out, numbers_.data() + within, step * sizeof(Number));
        start += step;
        count -= step;
        out += step * sizeof(Number);
      }
    }
    return Ok();
  }

 private:
  Reader blocks_;
  const BlockType& type_;
  std::vector<char> bytes_;
  std::vector<Number> numbers_;
};

}  // namespace

const BlockType* FindBlockType(const std::string& name) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const BlockType& type) { return name == type.name; });
  return found == std::end(kTypes) ? nullptr : found;
}

Reader ReadBlocks(Reader blocks, const BlockType& type, std::vector<int64_t> shape) {
  return std::make_unique<BlockReader>(std::move(blocks), type, std::move(shape));
}

}  // namespace shardproof::quantised
