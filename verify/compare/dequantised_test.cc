// compare --dequantised on small units: what their parts say is written out here, number by number.
// verify/selftest/test_dialects.py has those that real libraries write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "verify/compare/compare.h"
#include "verify/oracle/fixture_files.h"

namespace shardproof {
namespace {

using oracle::BytesOf;
using oracle::PlannedBytes;
using oracle::PlannedTensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kFp8 = R"({"quant_method": "fp8", "weight_block_size": [4, 8]})";

/// The bytes of E4M3 with the values 2^0 to 2^7, and back: row by row another beginning.
std::string Codes(size_t rows, size_t columns) {
  std::string codes;
  for (size_t i = 0; i < rows * columns; ++i)
    codes += static_cast<char>(0x38 + 8 * ((i / columns * 3 + i * 5) % 8));
  return codes;
}

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

class DequantisedTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::vector<PlannedTensor>& tensors,
                    const std::string& config = "") {
    const std::filesystem::path folder = scratch_ / name;
    std::filesystem::create_directories(folder);
    EXPECT_TRUE(oracle::WriteSafetensors(folder / "model.safetensors", tensors).ok());
    EXPECT_TRUE(
        oracle::WriteTextFile(folder / "config.json",
                              config.empty() ? "{}" : R"({"quantization_config": )" + config + "}")
            .ok());
    return folder;
  }

  /// [8, 16] of these codes with a scale for each block of [4, 8].
  std::string WriteUnit(const std::string& name, const std::vector<float>& scales,
                        const std::string& codes = Codes(8, 16)) {
    return Write(name,
                 {PlannedBytes("l.weight", "F8_E4M3", {8, 16}, codes),
                  PlannedBytes("l.weight_scale_inv", "F32", {2, 2}, Floats(scales))},
                 kFp8);
  }

  /// What the unit stands for, each times `factor`.
  static std::vector<float> Values(const std::vector<float>& scales, float factor = 1) {
    const std::string codes = Codes(8, 16);
    std::vector<float> values;
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto power = (static_cast<uint8_t>(codes[i]) - 0x38) / 8;
      const size_t block = i / 16 / 4 * 2 + i % 16 / 8;
      values.push_back(std::ldexp(scales[block], power) * factor);
    }
    return values;
  }
  std::string WriteSource(const std::vector<float>& scales, float factor = 1) {
    return Write("source",
                 {PlannedBytes("l.weight", "F32", {8, 16}, Floats(Values(scales, factor)))});
  }

  CompareResult Run(const std::string& a, const std::string& b, bool dequantised = true) {
    CompareOptions options;
    options.dequantised = dequantised;
    auto result = Compare(a, b, options);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? std::move(result).value() : CompareResult{};
  }

  std::string Explanation(const std::string& a, const std::string& b) {
    const CompareResult result = Run(a, b);
    EXPECT_EQ(result.verdict, Verdict::kFail);
    return result.differences.empty() ? "" : result.differences[0].explanation;
  }

  oracle::TemporaryDirectory scratch_;
  const std::vector<float> scales_ = {1, 0.5, 0.125, 0.25};
};

TEST_F(DequantisedTest, AUnitIsWithinHalfAStepOfItsSource) {
  const std::string unit = WriteUnit("b", scales_);
  const CompareResult same = Run(WriteSource(scales_), unit);
  EXPECT_EQ(same.verdict, Verdict::kPass);
  EXPECT_EQ(same.worst, 0);
  // A step of E4M3 is an eighth of its power of two.
  EXPECT_NEAR(Run(WriteSource(scales_, 1.0625f), unit).worst, 1, 1e-3);
  const CompareResult far = Run(WriteSource(scales_, 1.07f), unit);
  EXPECT_EQ(far.verdict, Verdict::kFail);
  EXPECT_EQ(far.differences[0].differing, 128u);
  EXPECT_THAT(CompareText(far), HasSubstr("128 of 128 elements are beyond their bound, fp8"));
}

TEST_F(DequantisedTest, AScaleThatIsAlmostZeroIsRoundedByAStepOfItsDtype) {
  const std::string least("\1\0\1\0\1\0\1\0", 8);  // F16's smallest number
  const std::string unit = Write("b",
                                 {PlannedBytes("l.weight", "F8_E4M3", {8, 16}, Codes(8, 16)),
                                  PlannedBytes("l.weight_scale_inv", "F16", {2, 2}, least)},
                                 kFp8);
  const auto source = [&](float scale) {
    return WriteSource(std::vector<float>(4, std::ldexp(scale, -24)));
  };
  EXPECT_EQ(Run(source(1.4f), unit).verdict, Verdict::kPass);
  EXPECT_EQ(Run(source(1.8f), unit).verdict, Verdict::kFail);
}

TEST_F(DequantisedTest, AWriterMayDivideInTheDtypeOfTheScale) {
  const std::string one("\x80\x3f", 2);
  const std::string unit =
      Write("b",
            {PlannedBytes("l._weight_qdata", "I8", {1, 4}, std::string(4, '\0')),
             PlannedBytes("l._weight_scale", "BF16", {1, 1}, one)},
            R"({"quant_method": "torchao"})");
  const auto source = [&](float first) {
    return Write("source", {PlannedBytes("l.weight", "F32", {1, 4}, Floats({first, 0, 0, 0}))});
  };
  EXPECT_EQ(Run(source(0.503f), unit).verdict, Verdict::kPass);  // 0.5 in BF16, a half of a step
  EXPECT_EQ(Run(source(0.51f), unit).verdict, Verdict::kInconclusive);
}

TEST_F(DequantisedTest, MistakesOfScalesAreExplained) {
  const std::string source = WriteSource(scales_);
  EXPECT_THAT(Explanation(source, WriteUnit("b", {1, 2, 8, 4})), HasSubstr("inverted"));
  EXPECT_THAT(Explanation(source, WriteUnit("b", {1, 0.125, 0.5, 0.25})),
              HasSubstr("the scales transposed"));
  EXPECT_THAT(Explanation(source, WriteUnit("b", {0.5, 1, 0.25, 0.125})),
              HasSubstr("neighbours along dim"));
  EXPECT_THAT(Explanation(WriteUnit("b", scales_), WriteSource({1, 1, 1, 1})),
              HasSubstr("the scales were left out"));
}

TEST_F(DequantisedTest, PartsThatLieOtherwiseAreExplained) {
  const std::string source = WriteSource(scales_);
  const std::string codes = Codes(8, 16);
  const std::string swapped = codes.substr(64) + codes.substr(0, 64);
  EXPECT_THAT(Explanation(source, WriteUnit("b", scales_, swapped)),
              HasSubstr("B holds the codes with their halves along dim 0 swapped"));
  std::string reversed = Floats(scales_);
  for (size_t at = 0; at < reversed.size(); at += 4)
    std::reverse(reversed.begin() + static_cast<std::ptrdiff_t>(at),
                 reversed.begin() + static_cast<std::ptrdiff_t>(at) + 4);
  std::vector<float> scales(4);
  std::memcpy(scales.data(), reversed.data(), reversed.size());
  EXPECT_THAT(Explanation(source, WriteUnit("b", scales)),
              HasSubstr("B holds the scales with the bytes of each element reversed"));
  EXPECT_THAT(Explanation(WriteUnit("b", scales), source),
              HasSubstr("B was made from the scales with the bytes of each element reversed"));
}

TEST_F(DequantisedTest, ScalesThatAreWrongInNoSimpleWayAreToldFromTheNumbers) {
  const int64_t rows = 64, columns = 64;
  const std::string codes = Codes(64, 64);
  const auto unit = [&](const std::string& name, const std::vector<float>& scales) {
    return Write(name,
                 {PlannedBytes("l.weight", "F8_E4M3", {rows, columns}, codes),
                  PlannedBytes("l.weight_scale_inv", "F32", {4, 4}, Floats(scales))},
                 R"({"quant_method": "fp8", "weight_block_size": [16, 16]})");
  };
  std::vector<float> right(16), wrong(16);
  for (size_t i = 0; i < 16; ++i) {
    right[i] = 1 + 0.37f * static_cast<float>(i * i);
    wrong[i] = 40 - 0.9f * static_cast<float>(i * 7 % 16);
  }
  EXPECT_THAT(Explanation(unit("a", right), unit("b", wrong)),
              HasSubstr("or channels were scaled before, as AWQ does; elements 0 to 15"));
}

TEST_F(DequantisedTest, CodesThatWereCutOffAreNoShiftOfAll) {
  std::string codes;
  std::vector<float> values;
  for (int i = 0; i < 512; ++i) {
    const bool is_cut = i % 8 == 0;
    const int code = is_cut ? 127 : i * 37 % 200 - 100;
    codes += static_cast<char>(code);
    values.push_back(static_cast<float>(code) + (is_cut ? 1.6f : 0));
  }
  const std::string unit =
      Write("b",
            {PlannedBytes("l._weight_qdata", "I8", {8, 64}, codes),
             PlannedBytes("l._weight_scale", "F32", {8, 1}, Floats(std::vector<float>(8, 1)))},
            R"({"quant_method": "torchao"})");
  const std::string source = Write("a", {PlannedBytes("l.weight", "F32", {8, 64}, Floats(values))});
  EXPECT_EQ(Run(source, unit).verdict, Verdict::kInconclusive);
}

TEST_F(DequantisedTest, OneCodeThatIsWrongIsNamedWithItsPlace) {
  std::string codes = Codes(8, 16);
  codes[37] ^= 0x08;
  const CompareResult result = Run(WriteSource(scales_), WriteUnit("b", scales_, codes));
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_EQ(result.differences[0].differing, 1u);
  EXPECT_THAT(result.differences[0].coordinates, ElementsAre(2, 5));
  EXPECT_EQ(result.differences[0].explanation, "");
}

TEST_F(DequantisedTest, WhatCannotBeReadAsNumbersIsNeverAPass) {
  const std::string source = WriteSource(scales_);
  const std::string lost =
      Write("lost", {PlannedBytes("l.weight", "F8_E4M3", {8, 16}, Codes(8, 16))}, kFp8);
  const CompareResult result = Run(source, lost);
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_THAT(result.reason, HasSubstr("B's 'l.weight' (fp8): it has no 'l.weight_scale_inv'"));
  const std::string other = Write("other", {PlannedBytes("l.weight", "U8", {8, 16}, Codes(8, 16))},
                                  R"({"quant_method": "hqq"})");
  EXPECT_EQ(Run(source, other).verdict, Verdict::kInconclusive);
  EXPECT_THAT(Run(source, other).reason, HasSubstr("hqq by config.json"));
}

TEST_F(DequantisedTest, ADifferenceOfQuantisedOnesNamesTheOption) {
  const std::string source = WriteSource(scales_);
  const CompareResult result = Run(source, WriteUnit("b", scales_), false);
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_THAT(CompareText(result), HasSubstr("B is quantised (fp8 by config.json): with "
                                             "--dequantised"));
  EXPECT_EQ(Run(source, source, false).hint, "");
}

TEST_F(DequantisedTest, MapsTakePartsOfUnits) {
  const std::string a = WriteUnit("b", scales_);
  const std::string source = WriteSource(scales_);
  const CompareResult whole = Run(source, a);
  CompareOptions options;
  options.dequantised = true;
  options.maps = {"l.weight[:4] -> l.weight[:4]", "l.weight[4:] -> l.weight[4:]"};
  const auto parts = Compare(source, a, options);
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  EXPECT_EQ(parts.value().verdict, Verdict::kPass);
  EXPECT_EQ(parts.value().elements, whole.elements);
}

TEST_F(DequantisedTest, PartsInAnotherOrderAreExplained) {
  const std::vector<float> values = Values(scales_);
  const std::vector<float> first(values.begin(), values.begin() + 64);
  const std::vector<float> second(values.begin() + 64, values.end());
  const std::string source = Write("parts", {PlannedBytes("g", "F32", {4, 16}, Floats(first)),
                                             PlannedBytes("u", "F32", {4, 16}, Floats(second))});
  CompareOptions options;
  options.dequantised = true;
  const std::string unit = WriteUnit("b", scales_);
  for (const auto& [map, verdict] : {std::pair("cat(g, u) -> l.weight", Verdict::kPass),
                                     {"cat(u, g) -> l.weight", Verdict::kFail}}) {
    options.maps = {map};
    const auto result = Compare(source, unit, options);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result.value().verdict, verdict);
    if (verdict == Verdict::kPass) continue;
    EXPECT_THAT(result.value().differences.at(0).explanation,
                HasSubstr("the parts in the order g, u"));
  }
}

TEST_F(DequantisedTest, FloatsOfTwoDtypesAreWithinHalfAStepOfEach) {
  const auto write = [&](const std::string& name, const std::string& dtype,
                         const std::string& bytes) {
    return Write(name, {PlannedBytes("w", dtype, {2}, bytes)});
  };
  const std::string bf16("\x80\x3f\x81\x3f", 4);  // 1 and 1.0078125
  const std::string a = write("a", "F32", BytesOf<float>({1.001f, 1.0078125f}));
  EXPECT_EQ(Run(a, write("b", "BF16", bf16)).verdict, Verdict::kPass);
  const std::string far = write("far", "F32", BytesOf<float>({1.01f, 1.0078125f}));
  EXPECT_EQ(Run(far, write("b", "BF16", bf16)).verdict, Verdict::kFail);
}

}  // namespace
}  // namespace shardproof
