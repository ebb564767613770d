#include "verify/oracle/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace shardproof::oracle {
namespace {

TEST(EncodeFloat, InvertsDecodeForEveryFinitePattern) {
  for (const char* name : {"F16", "BF16", "F8_E4M3", "F8_E5M2"}) {
    const FloatFormat& format = FindDtype(name)->format;
    for (uint64_t bits = 0; bits < uint64_t{1} << format.Bits(); ++bits) {
      if (Classify(format, bits) == FloatClass::kNan) continue;
      ASSERT_EQ(EncodeFloat(format, DecodeFloat(format, bits)), bits) << name << " " << bits;
    }
  }
}

TEST(EncodeFloat, AgreesWithTheHardwareForF32AndF64) {
  const FloatFormat& single = FindDtype("F32")->format;
  const FloatFormat& twice = FindDtype("F64")->format;
  for (const double value : {0.0, -0.0, 1.0, -1.5, 1e-45, 7e-46, 1e-39, 3.4028235e38, 3.4028236e38,
                             1e39, 0.1, 1.0 + 0x1p-24, 1.0 + 0x1p-24 + 0x1p-50, 5e-324, 1e308}) {
    EXPECT_EQ(EncodeFloat(single, value), std::bit_cast<uint32_t>(static_cast<float>(value)));
    EXPECT_EQ(EncodeFloat(twice, value), std::bit_cast<uint64_t>(value));
    EXPECT_EQ(DecodeFloat(twice, std::bit_cast<uint64_t>(value)), value);
  }
}

TEST(EncodeFloat, RoundsTiesToEvenAndOverflowsByTheFormat) {
  const FloatFormat& e4m3 = FindDtype("F8_E4M3")->format;
  EXPECT_EQ(EncodeFloat(e4m3, 448), 0x7eu);
  EXPECT_EQ(EncodeFloat(e4m3, 464), 0x7eu);
  EXPECT_EQ(EncodeFloat(e4m3, 464.01), 0x7eu);
  EXPECT_EQ(EncodeFloat(e4m3, std::nan("")), 0x7fu);
  EXPECT_EQ(EncodeFloat(e4m3, -std::numeric_limits<double>::infinity()), 0xfeu);
  EXPECT_EQ(EncodeFloat(e4m3, 0x1p-9), 0x01u);
  EXPECT_EQ(EncodeFloat(e4m3, 0x1p-10), 0x00u);
  const FloatFormat& e5m2 = FindDtype("F8_E5M2")->format;
  EXPECT_EQ(EncodeFloat(e5m2, 61439), 0x7bu);
  EXPECT_EQ(EncodeFloat(e5m2, 61440), 0x7cu);
  const FloatFormat& half = FindDtype("F16")->format;
  EXPECT_EQ(EncodeFloat(half, 65519.9), 0x7bffu);
  EXPECT_EQ(EncodeFloat(half, 65520), 0x7c00u);
  EXPECT_EQ(EncodeFloat(half, 2049), 0x6800u);
  EXPECT_EQ(EncodeFloat(half, 2051), 0x6802u);
  EXPECT_EQ(EncodeFloat(half, std::nan("")), 0x7e00u);
}

TEST(CheckedElements, RefusesNegativeSizesAndOverflow) {
  const int64_t good[] = {3, 0, 5};
  EXPECT_EQ(CheckedElements(good, 3), 0u);
  EXPECT_EQ(CheckedElements(good, 0), 1u);
  const int64_t negative[] = {-1};
  EXPECT_FALSE(CheckedElements(negative, 1));
  const int64_t large[] = {int64_t{1} << 32, int64_t{1} << 31};
  EXPECT_FALSE(CheckedElements(large, 2));
  EXPECT_EQ(CheckedElements(large, 1), uint64_t{1} << 32);
}

}  // namespace
}  // namespace shardproof::oracle
