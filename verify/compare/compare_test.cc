#include "verify/compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/fixture_files.h"

namespace shardproof {
namespace {

using oracle::BytesOf;
using oracle::PlannedBytes;
using oracle::PlannedTensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Noise(size_t bytes, uint64_t stream = 0) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) {
    text[i] = static_cast<char>(oracle::Mix(stream * 1000003 + i));
  }
  return text;
}

PlannedTensor Tensor(const std::string& name, std::vector<int64_t> shape, uint64_t stream = 0,
                     const std::string& dtype = "I32") {
  const uint64_t elements = *oracle::CheckedElements(shape.data(), shape.size());
  return PlannedBytes(name, dtype, shape,
                      Noise(elements * oracle::FindDtype(dtype)->bytes, stream));
}

class CompareTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::vector<PlannedTensor>& tensors) {
    const std::string path = directory_ / (name + ".safetensors");
    EXPECT_TRUE(oracle::WriteSafetensors(path, tensors).ok());
    return path;
  }

  std::string Text(const std::string& name, const std::string& text) {
    EXPECT_TRUE(oracle::WriteTextFile(directory_ / name, text).ok());
    return directory_ / name;
  }

  CompareResult Run(const std::vector<PlannedTensor>& a, const std::vector<PlannedTensor>& b,
                    const CompareOptions& options = {}) {
    auto result = Compare(Write("a", a), Write("b", b), options);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? std::move(result).value() : CompareResult{};
  }

  std::string ErrorOf(const std::vector<PlannedTensor>& a, const std::vector<PlannedTensor>& b,
                      const CompareOptions& options) {
    const auto result = Compare(Write("a", a), Write("b", b), options);
    if (result.ok()) return "";
    EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
    return result.error().message;
  }

  oracle::TemporaryDirectory directory_;
};

TEST_F(CompareTest, EqualCheckpointsPassAndSayWhatWasCompared) {
  const auto result = Run({Tensor("w", {3, 4}), Tensor("v", {5}, 1, "BF16")},
                          {Tensor("v", {5}, 1, "BF16"), Tensor("w", {3, 4})});
  EXPECT_EQ(result.verdict, Verdict::kPass);
  EXPECT_EQ(result.tensors, 2u);
  EXPECT_EQ(result.elements, 17u);
  EXPECT_EQ(result.bytes, 58u);
  EXPECT_THAT(CompareText(result), StartsWith("PASS  2 tensors of B equal their counterpart in A"));
  EXPECT_THAT(CompareText(result), HasSubstr("compared 2 tensors, 17 elements, 58 bytes"));
}

TEST_F(CompareTest, ADirectoryOfShardsEqualsOneFile) {
  std::filesystem::create_directory(directory_ / "sharded");
  for (const char* name : {"x", "y"}) {
    ASSERT_TRUE(
        oracle::WriteSafetensors(directory_ / (std::string("sharded/") + name + ".safetensors"),
                                 {Tensor(name, {7})})
            .ok());
  }
  const std::string one = Write("one", {Tensor("x", {7}), Tensor("y", {7})});
  EXPECT_EQ(Compare(directory_ / "sharded", one).value().verdict, Verdict::kPass);
}

TEST_F(CompareTest, OneElementIsNamedWithCoordinatesAndBits) {
  const auto result =
      Run({PlannedBytes("w", "F32", {2, 3}, BytesOf({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}))},
          {PlannedBytes("w", "F32", {2, 3}, BytesOf({1.f, 2.f, 3.f, 4.f, 5.f, 7.f}))});
  EXPECT_EQ(result.verdict, Verdict::kFail);
  ASSERT_EQ(result.differences.size(), 1u);
  const TensorDifference& difference = result.differences[0];
  EXPECT_EQ(difference.kind, "differs");
  EXPECT_EQ(difference.differing, 1u);
  EXPECT_EQ(difference.index, 5u);
  EXPECT_THAT(difference.coordinates, ElementsAre(1, 2));
  EXPECT_EQ(difference.expected, "6 (0x40c00000)");
  EXPECT_EQ(difference.seen, "7 (0x40e00000)");
  EXPECT_EQ(difference.explanation, "bit 21 of element 5 is flipped");
  const std::string text = CompareText(result);
  EXPECT_THAT(text, StartsWith("FAIL  1 tensor differs\n"));
  EXPECT_THAT(text,
              HasSubstr("w: 1 of 6 elements differs, F32 [2, 3]\n  first at element 5 (1, 2): "
                        "A 6 (0x40c00000), B 7 (0x40e00000)\n  likely: bit 21"));
  const nlohmann::json json = CompareJson(result);
  EXPECT_EQ(json["verdict"], "fail");
  EXPECT_EQ(json["differences"][0]["index"], 5);
  EXPECT_EQ(json["differences"][0]["coordinates"], nlohmann::json({1, 2}));
  EXPECT_EQ(json["differences"][0]["differing"], 1);
  EXPECT_EQ(json["differences"][0]["expected"], "6 (0x40c00000)");
  EXPECT_EQ(json["differences"][0]["tensor"], "w");
}

TEST_F(CompareTest, NanPayloadsAndNegativeZeroCount) {
  const auto result =
      Run({PlannedBytes("w", "F32", {2}, BytesOf<uint32_t>({0x7fc00000, 0}))},
          {PlannedBytes("w", "F32", {2}, BytesOf<uint32_t>({0x7fc00001, 0x80000000}))});
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_EQ(result.differences[0].differing, 2u);
}

TEST_F(CompareTest, DtypeAndShapeAreDifferencesOfTheirOwn) {
  const auto result = Run({Tensor("a", {4}, 0, "F32"), Tensor("b", {2, 6}), Tensor("c", {2, 6})},
                          {Tensor("a", {4}, 0, "BF16"), Tensor("b", {12}), Tensor("c", {3, 6})});
  ASSERT_EQ(result.differences.size(), 3u);
  EXPECT_EQ(result.differences[0].kind, "dtype");
  EXPECT_EQ(result.differences[0].expected, "F32");
  EXPECT_EQ(result.differences[0].seen, "BF16");
  EXPECT_EQ(result.differences[1].kind, "shape");
  EXPECT_EQ(result.differences[1].seen, "[12]");
  EXPECT_THAT(result.differences[1].explanation, HasSubstr("only the shape differs"));
  EXPECT_THAT(result.differences[2].explanation, HasSubstr("1 more hold something else"));
  EXPECT_EQ(result.tensors, 0u);
  EXPECT_THAT(CompareText(result), HasSubstr("a: the dtype differs: A F32, B BF16"));
}

TEST_F(CompareTest, NothingToCompareIsInconclusive) {
  EXPECT_EQ(Run({}, {}).verdict, Verdict::kInconclusive);
  EXPECT_EQ(Run({Tensor("w", {0})}, {Tensor("w", {0})}).verdict, Verdict::kInconclusive);
  EXPECT_EQ(Run({Tensor("w", {1})}, {}).verdict, Verdict::kFail);
  EXPECT_THAT(CompareText(Run({}, {})), StartsWith("INCONCLUSIVE  nothing was compared"));
}

TEST_F(CompareTest, NamesOnOneSideFail) {
  const auto result =
      Run({Tensor("w", {3}), Tensor("gone", {4})}, {Tensor("w", {3}), Tensor("new", {5})});
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_THAT(result.only_in_a, ElementsAre("gone"));
  EXPECT_THAT(result.only_in_b, ElementsAre("new"));
  EXPECT_EQ(result.suggested_map, "");
  EXPECT_THAT(CompareText(result), StartsWith("FAIL  1 name only in A, 1 name only in B"));
}

TEST_F(CompareTest, DifferencesPastTheFirstPieceAreFound) {
  const std::string image = Noise(3'000'000);
  std::string changed = image;
  changed[2'999'999] ^= 1;
  changed[1'500'000] ^= 1;
  const auto result = Run({PlannedBytes("w", "U8", {3'000'000}, image)},
                          {PlannedBytes("w", "U8", {3'000'000}, changed)});
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_EQ(result.differences[0].index, 1'500'000u);
  EXPECT_EQ(result.differences[0].differing, 2u);
}

TEST_F(CompareTest, ALargeTensorIsExplainedByAWindow) {
  const std::string image = Noise(6'000'000);
  std::string changed = image;
  std::swap_ranges(changed.begin() + 5'000'000, changed.begin() + 5'001'000,
                   changed.begin() + 5'003'000);
  const auto result = Run({PlannedBytes("w", "U8", {6000, 1000}, image)},
                          {PlannedBytes("w", "U8", {6000, 1000}, changed)});
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_THAT(result.differences[0].explanation, StartsWith("rows 5000 and 5003 are swapped"));
}

TEST_F(CompareTest, AnotherTensorsValuesAreNamed) {
  const auto result =
      Run({Tensor("x", {9}, 1), Tensor("y", {9}, 2)}, {Tensor("x", {9}, 2), Tensor("y", {9}, 2)});
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_EQ(result.differences[0].explanation, "equals another tensor: A's 'y'");
}

TEST_F(CompareTest, ATransposedMatrixOfOtherShapeIsRecognised) {
  std::string image = Noise(15);
  std::string turned(15, '\0');
  for (int i = 0; i < 15; ++i) turned[i % 5 * 3 + i / 5] = image[i];
  const auto result =
      Run({PlannedBytes("w", "U8", {3, 5}, image)}, {PlannedBytes("w", "U8", {5, 3}, turned)});
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_THAT(result.differences[0].explanation, StartsWith("transposed"));
}

TEST_F(CompareTest, TheSameFileTwicePassesAndMissingOnesAreErrors) {
  const std::string path = Write("a", {Tensor("w", {3})});
  EXPECT_EQ(Compare(path, path).value().verdict, Verdict::kPass);
  EXPECT_FALSE(Compare(path, directory_ / "absent").ok());
  EXPECT_EQ(Compare(path, Text("junk", "not safetensors")).error().code, ErrorCode::kBadInput);
}

TEST_F(CompareTest, CastRoundsAToTheDtypeOfB) {
  const auto single = PlannedBytes("w", "F32", {4}, BytesOf({1.0f, 0.1f, std::nanf(""), -1e30f}));
  const auto brain =
      PlannedBytes("w", "BF16", {4}, BytesOf<uint16_t>({0x3f80, 0x3dcd, 0x7fc1, 0xf14a}));
  EXPECT_EQ(Run({single}, {brain}).differences.at(0).kind, "dtype");
  const auto result = Run({single}, {brain}, {.cast = "BF16"});
  EXPECT_EQ(result.verdict, Verdict::kPass) << CompareText(result);
  EXPECT_EQ(result.cast_tensors, 1u);
  EXPECT_THAT(CompareText(result), HasSubstr("1 of them after a cast to BF16"));
  const auto truncated =
      PlannedBytes("w", "BF16", {4}, BytesOf<uint16_t>({0x3f80, 0x3dcc, 0x7fc1, 0xf14a}));
  const auto wrong = Run({single}, {truncated}, {.cast = "BF16"});
  ASSERT_EQ(wrong.differences.size(), 1u);
  EXPECT_EQ(wrong.differences[0].index, 1u);
  EXPECT_EQ(wrong.differences[0].dtype, "BF16");
}

TEST_F(CompareTest, CastsAmongAllFloatDtypesAgreeWithTheEncoder) {
  const std::vector<const char*> names = {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"};
  for (const char* from : names) {
    for (const char* to : names) {
      const oracle::DtypeInfo& source = *oracle::FindDtype(from);
      const oracle::DtypeInfo& target = *oracle::FindDtype(to);
      const std::string image = Noise(size_t{500} * source.bytes, 3);
      std::string cast(size_t{500} * target.bytes, '\0');
      for (int i = 0; i < 500; ++i) {
        const uint64_t bits = oracle::LoadBits(&image[i * source.bytes], source.bytes);
        const double value = oracle::DecodeFloat(source.format, bits);
        const uint64_t rounded = oracle::EncodeFloat(target.format, value);
        oracle::StoreBits(&source == &target ? bits : rounded, target.bytes,
                          &cast[i * target.bytes]);
      }
      const auto result = Run({PlannedBytes("w", from, {500}, image)},
                              {PlannedBytes("w", to, {500}, cast)}, {.cast = to});
      EXPECT_EQ(result.verdict, Verdict::kPass) << from << " " << to << CompareText(result);
    }
  }
}

TEST_F(CompareTest, CastAcceptsWhatWasLeftAloneOrWentThereAndBack) {
  const auto a = PlannedBytes("w", "F32", {1}, BytesOf<uint32_t>({0x3dcccccd}));
  const auto rounded = PlannedBytes("w", "F32", {1}, BytesOf<uint32_t>({0x3dcd0000}));
  const auto other = PlannedBytes("w", "F32", {1}, BytesOf<uint32_t>({0x3dcc0000}));
  EXPECT_EQ(Run({a}, {a}, {.cast = "BF16"}).verdict, Verdict::kPass);
  EXPECT_EQ(Run({a}, {rounded}, {.cast = "BF16"}).verdict, Verdict::kPass);
  EXPECT_EQ(Run({a}, {rounded}).verdict, Verdict::kFail);
  EXPECT_EQ(Run({a}, {other}, {.cast = "BF16"}).verdict, Verdict::kFail);
  EXPECT_THAT(ErrorOf({a}, {a}, {.cast = "I32"}), HasSubstr("cast: expected one of F8_E4M3"));
}

}  // namespace
}  // namespace shardproof
