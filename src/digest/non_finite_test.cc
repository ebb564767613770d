// The NaN and Inf counts fused into the digest, beside a reading of each format bit by bit.
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "src/digest/digest_internal.h"

namespace shardproof {
namespace {

using digest_internal::Kernel;
using digest_internal::Kernels;

struct Format {
  const char* name;
  sp_float_format format;
  uint32_t size_bytes;
  uint32_t exponent_bits;
  uint32_t mantissa_bits;
};

// Those of one byte come last.
constexpr Format kFormats[] = {
    {"F16", SP_F16, 2, 5, 10},  {"BF16", SP_BF16, 2, 8, 7},        {"F32", SP_F32, 4, 8, 23},
    {"F64", SP_F64, 8, 11, 52}, {"E4M3FN", SP_F8_E4M3FN, 1, 4, 3}, {"E5M2", SP_F8_E5M2, 1, 5, 2},
};

struct Counts {
  uint64_t nan = 0;
  uint64_t inf = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Counts& counts) {
    return out << counts.nan << " NaN, " << counts.inf << " Inf";
  }
};

void CountBits(const Format& format, uint64_t bits, Counts& counts) {
  uint64_t mantissa = bits & ((uint64_t{1} << format.mantissa_bits) - 1);
  uint64_t exponent_mask = (uint64_t{1} << format.exponent_bits) - 1;
  uint64_t exponent = bits >> format.mantissa_bits & exponent_mask;
  if (exponent != exponent_mask) return;
  if (format.format == SP_F8_E4M3FN) {
    counts.nan += mantissa == 7;
  } else {
    (mantissa == 0 ? counts.inf : counts.nan) += 1;
  }
}

/// Whole elements of the global bytes [start, start + image.size()).
Counts Reference(const Format& format, const std::vector<uint8_t>& image, uint64_t start) {
  Counts counts;
  uint64_t skip = (format.size_bytes - start % format.size_bytes) % format.size_bytes;
  for (uint64_t i = skip; i + format.size_bytes <= image.size(); i += format.size_bytes) {
    uint64_t bits = 0;
    for (uint32_t j = 0; j < format.size_bytes; ++j) bits |= uint64_t{image[i + j]} << (8 * j);
    CountBits(format, bits, counts);
  }
  return counts;
}

class NonFinite : public testing::TestWithParam<std::tuple<const Kernel*, Format>> {
 protected:
  const Format& format() const { return std::get<1>(GetParam()); }

  Counts Seen(const sp_run& run) const {
    sp_summary summary = {};
    std::get<0>(GetParam())->digest_runs[format().format](&summary, &run, 1);
    return {summary.nan_count, summary.inf_count};
  }
  Counts Seen(const std::vector<uint8_t>& image, uint64_t start = 0) const {
    return Seen({start, image.size(), 1, 0, image.data(), 0});
  }
  /// By the count that takes no digest.
  Counts SeenAlone(const uint8_t* data, uint64_t length) const {
    sp_summary summary = {};
    std::get<0>(GetParam())->count_non_finite[format().format](&summary, data, length);
    EXPECT_EQ(summary.digest.lane[0], 0u);
    return {summary.nan_count, summary.inf_count};
  }

  uint64_t ExponentField() const {
    return ((uint64_t{1} << format().exponent_bits) - 1) << format().mantissa_bits;
  }
  uint64_t Mantissa() const { return (uint64_t{1} << format().mantissa_bits) - 1; }
  uint64_t Sign() const { return uint64_t{1} << (8 * format().size_bytes - 1); }

  std::vector<uint8_t> Elements(const std::vector<uint64_t>& bits) const {
    std::vector<uint8_t> image(bits.size() * format().size_bytes);
    for (size_t i = 0; i < bits.size(); ++i) {
      std::memcpy(&image[i * format().size_bytes], &bits[i], format().size_bytes);
    }
    return image;
  }
};

std::string CaseName(const testing::TestParamInfo<NonFinite::ParamType>& info) {
  return std::string(std::get<0>(info.param)->name) + "_" + std::get<1>(info.param).name;
}

const auto kEveryKernel = testing::ValuesIn(Kernels().begin(), Kernels().end());

INSTANTIATE_TEST_SUITE_P(Every, NonFinite,
                         testing::Combine(kEveryKernel, testing::ValuesIn(kFormats)), CaseName);

/// Formats whose elements can be cut: those of more than one byte.
class NonFiniteCut : public NonFinite {};

INSTANTIATE_TEST_SUITE_P(Every, NonFiniteCut,
                         testing::Combine(kEveryKernel, testing::ValuesIn(kFormats, kFormats + 4)),
                         CaseName);

TEST_P(NonFinite, CountIsNoneOfZeroSubnormalsAndTheLargestFinite) {
  bool is_e4m3fn = format().format == SP_F8_E4M3FN;
  uint64_t largest = is_e4m3fn ? 0x7e : ExponentField() - 1;
  std::vector<uint64_t> bits = {0, 1, Mantissa(), Mantissa() + 1, largest};
  for (size_t i = bits.size(); i > 0; --i) bits.push_back(bits[i - 1] | Sign());
  for (int i = 0; i < 8; ++i) bits.insert(bits.end(), bits.begin(), bits.begin() + 10);
  EXPECT_EQ(Seen(Elements(bits)), Counts{});
}

TEST_P(NonFinite, CountTellsInfFromEveryKindOfNaN) {
  uint64_t inf = ExponentField();
  uint64_t quiet = inf | (Mantissa() + 1) / 2;
  std::vector<uint64_t> bits = {inf, inf | Sign(), inf | 1, quiet, inf | Mantissa() | Sign()};
  Counts expected = {3, 2};
  if (format().format == SP_F8_E4M3FN) expected = {1, 0};
  EXPECT_EQ(Seen(Elements(bits)), expected);
}

TEST_P(NonFinite, CountFindsOneAtEveryPlaceOfTwoBlocks) {
  uint64_t element_count = 2 * 4096 / format().size_bytes + 40;
  std::vector<uint8_t> image(element_count * format().size_bytes, 0x11);
  std::vector<uint8_t> nan = Elements({ExponentField() | Mantissa()});
  for (uint64_t i = 0; i < element_count; i += 1 + i % 7) {
    std::vector<uint8_t> changed = image;
    std::memcpy(&changed[i * nan.size()], nan.data(), nan.size());
    ASSERT_EQ(Seen(changed, 4096), (Counts{1, 0})) << "element " << i;
    ASSERT_EQ(SeenAlone(changed.data(), changed.size()), (Counts{1, 0})) << "element " << i;
  }
}

TEST_P(NonFinite, CountEqualsTheReferenceForAnyBytesAtAnyAlignment) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 400; ++round) {
    std::vector<uint8_t> memory(random() % 8 + random() % (round % 5 == 0 ? 20000 : 200));
    for (uint8_t& byte : memory) {
      // Bytes of which the top ones of NaN and Inf are made, among others.
      const uint8_t likely[] = {0x7f, 0xff, 0x80, 0x00, 0x7c, 0xf0};
      uint64_t roll = random();
      byte = roll % 4 == 0 ? static_cast<uint8_t>(roll >> 8) : likely[(roll >> 8) % 6];
    }
    size_t shift = std::min<size_t>(random() % 8, memory.size());
    std::vector<uint8_t> image(memory.begin() + static_cast<int64_t>(shift), memory.end());
    uint64_t start = random() % 9000;
    sp_run run = {start, image.size(), 1, 0, memory.data() + shift, 0};
    ASSERT_EQ(Seen(run), Reference(format(), image, start)) << "round " << round;
    ASSERT_EQ(SeenAlone(memory.data() + shift, image.size()), Reference(format(), image, 0))
        << "round " << round;
  }
}

TEST_P(NonFiniteCut, CountLeavesOutAnElementCutInTwo) {
  std::vector<uint8_t> image = Elements({ExponentField() | Mantissa(), ExponentField()});
  EXPECT_EQ(Seen(image), (Counts{1, 1}));
  for (uint64_t cut = 1; cut < format().size_bytes; ++cut) {
    EXPECT_EQ(Seen({cut, image.size() - cut, 1, 0, &image[cut], 0}), (Counts{0, 1}));
    EXPECT_EQ(Seen({0, image.size() - cut, 1, 0, image.data(), 0}), (Counts{1, 0}));
  }
}

TEST_P(NonFiniteCut, CountLeavesOutAnElementThatTwoStretchesShare) {
  std::vector<uint8_t> image = Elements({ExponentField(), ExponentField()});
  uint64_t half = format().size_bytes / 2;
  EXPECT_EQ(Seen({half, format().size_bytes, 1, 0, &image[half], 0}), Counts{});
  int64_t stride = static_cast<int64_t>(half);
  EXPECT_EQ(Seen({0, half, 4, half, image.data(), stride}), Counts{});
}

TEST_P(NonFinite, CountOfPoisonIsEveryElement) {
  std::vector<uint8_t> image(3 * 8192 + 64, 0xff);
  EXPECT_EQ(Seen(image), (Counts{image.size() / format().size_bytes, 0}));
}

TEST(NonFiniteCount, IsNoneOfBytesThatAreNoFloats) {
  std::vector<uint8_t> image(9000, 0xff);
  sp_run run = {0, image.size(), 1, 0, image.data(), 0};
  for (const Kernel* kernel : Kernels()) {
    sp_summary summary = {};
    kernel->digest_runs[SP_NO_FLOAT](&summary, &run, 1);
    kernel->count_non_finite[SP_NO_FLOAT](&summary, image.data(), image.size());
    EXPECT_EQ(summary.nan_count + summary.inf_count, 0u) << kernel->name;
    EXPECT_NE(summary.digest.lane[0], 0u) << kernel->name;
  }
}

}  // namespace
}  // namespace shardproof
