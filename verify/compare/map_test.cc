#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/compare/compare.h"
#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/fixture_files.h"

namespace shardproof {
namespace {

using oracle::PlannedBytes;
using oracle::PlannedTensor;
using ::testing::HasSubstr;

/// U8 [rows, columns] whose element (r, c) is 16 * (r + first) + c + left.
PlannedTensor Grid(const std::string& name, int rows, int columns, int first = 0, int left = 0) {
  std::string bytes;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) bytes += static_cast<char>(16 * (r + first) + c + left);
  }
  return PlannedBytes(name, "U8", {rows, columns}, bytes);
}

PlannedTensor Noise(const std::string& name, int64_t bytes, uint64_t stream) {
  std::string image(bytes, '\0');
  for (int64_t i = 0; i < bytes; ++i) image[i] = static_cast<char>(oracle::Mix(stream * 999 + i));
  return PlannedBytes(name, "U8", {bytes}, image);
}

class MapTest : public ::testing::Test {
 protected:
  Result<CompareResult> Run(const std::vector<PlannedTensor>& a,
                            const std::vector<PlannedTensor>& b, const std::string& map) {
    EXPECT_TRUE(oracle::WriteSafetensors(directory_ / "a", a).ok());
    EXPECT_TRUE(oracle::WriteSafetensors(directory_ / "b", b).ok());
    CompareOptions options;
    if (!map.empty()) {
      EXPECT_TRUE(oracle::WriteTextFile(directory_ / "map.json", map).ok());
      options.map_file = directory_ / "map.json";
    }
    return Compare(directory_ / "a", directory_ / "b", options);
  }

  void ExpectPass(const std::vector<PlannedTensor>& a, const std::vector<PlannedTensor>& b,
                  const std::string& map) {
    const auto result = Run(a, b, map);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result.value().verdict, Verdict::kPass) << CompareText(result.value());
  }

  std::string ErrorOf(const std::vector<PlannedTensor>& a, const std::vector<PlannedTensor>& b,
                      const std::string& map) {
    const auto result = Run(a, b, map);
    if (result.ok()) return "";
    EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
    return result.error().message;
  }

  /// Without a map the names fail; the map suggested makes them pass.
  std::string ExpectSuggestion(const std::vector<PlannedTensor>& a,
                               const std::vector<PlannedTensor>& b) {
    const auto result = Run(a, b, "");
    EXPECT_TRUE(result.ok());
    if (!result.ok()) return "";
    EXPECT_EQ(result.value().verdict, Verdict::kFail);
    EXPECT_NE(result.value().suggested_map, "") << CompareText(result.value());
    EXPECT_THAT(CompareText(result.value()), HasSubstr(result.value().suggested_map));
    if (!result.value().suggested_map.empty()) ExpectPass(a, b, result.value().suggested_map);
    return result.value().suggested_map;
  }

  oracle::TemporaryDirectory directory_;
};

TEST_F(MapTest, RenamesAndPrefixes) {
  ExpectPass({Noise("module.a", 9, 1), Noise("b", 9, 2), Noise("module.c", 9, 3)},
             {Noise("model.a", 9, 1), Noise("model.b", 9, 2), Noise("see", 9, 3)},
             R"({"schema": 1, "why": "a test", "strip_prefix": "module.", "add_prefix": "model.",
                 "rename": {"module.c": "see"}})");
}

TEST_F(MapTest, FusesAlongAnyDim) {
  ExpectPass({Grid("q", 2, 3), Grid("k", 1, 3, 2), Grid("v", 4, 3, 3)}, {Grid("qkv", 7, 3)},
             R"({"fuse": [{"from": ["q", "k", "v"], "to": "qkv", "dim": 0}]})");
  ExpectPass({Grid("q", 3, 2), Grid("k", 3, 1, 0, 2), Grid("v", 3, 4, 0, 3)}, {Grid("qkv", 3, 7)},
             R"({"fuse": [{"from": ["q", "k", "v"], "to": "qkv", "dim": 1}]})");
}

TEST_F(MapTest, FusedPartsInTheWrongOrderDiffer) {
  const auto result = Run({Grid("q", 2, 3), Grid("k", 2, 3, 2)}, {Grid("qk", 4, 3)},
                          R"({"fuse": [{"from": ["k", "q"], "to": "qk", "dim": 0}]})");
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result.value().differences.size(), 1u);
  EXPECT_EQ(result.value().differences[0].source, "fuse of k, q along dim 0");
  EXPECT_THAT(result.value().differences[0].explanation, HasSubstr("rows permuted: 4 rows"));
}

TEST_F(MapTest, SplitsAlongAnyDim) {
  ExpectPass({Grid("qkv", 7, 3)}, {Grid("q", 2, 3), Grid("k", 1, 3, 2), Grid("v", 4, 3, 3)},
             R"({"split": [{"from": "qkv", "to": ["q", "k", "v"], "dim": 0}]})");
  ExpectPass({Grid("qkv", 3, 7)}, {Grid("q", 3, 2), Grid("k", 3, 1, 0, 2), Grid("v", 3, 4, 0, 3)},
             R"({"split": [{"from": "qkv", "to": ["q", "k", "v"], "dim": 1}]})");
}

PlannedTensor Turned(const std::string& name, int rows, int columns) {
  std::string bytes;
  for (int c = 0; c < columns; ++c) {
    for (int r = 0; r < rows; ++r) bytes += static_cast<char>(16 * r + c);
  }
  return PlannedBytes(name, "U8", {columns, rows}, bytes);
}

TEST_F(MapTest, TransposesAlsoAfterAFuse) {
  ExpectPass({Grid("w", 3, 5)}, {Turned("w", 3, 5)},
             R"({"transpose": [{"name": "w", "dims": [0, 1]}]})");
  ExpectPass({Grid("q", 2, 5), Grid("k", 1, 5, 2)}, {Turned("w", 3, 5)},
             R"({"fuse": [{"from": ["q", "k"], "to": "w", "dim": 0}],
                 "transpose": [{"name": "w", "dims": [1, 0]}]})");
}

TEST_F(MapTest, TransposesOuterDimsOfLargeTensors) {
  // 3 x 700 x 5 x 600 bytes: more than one slab, and a dim between and one behind the two swapped.
  const int64_t sizes[] = {3, 700, 5, 600};
  std::string image(3 * 700 * 5 * 600, '\0');
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<char>(oracle::Mix(i));
  std::string turned(image.size(), '\0');
  for (size_t i = 0; i < image.size(); i += 600) {
    const size_t row = i / 600;
    const size_t a = row / 3500, b = row / 5 % 700, c = row % 5;
    image.copy(&turned[((c * 700 + b) * 3 + a) * 600], 600, i);
  }
  ExpectPass({PlannedBytes("w", "U8", {sizes[0], sizes[1], sizes[2], sizes[3]}, image)},
             {PlannedBytes("w", "U8", {sizes[2], sizes[1], sizes[0], sizes[3]}, turned)},
             R"({"transpose": [{"name": "w", "dims": [0, 2]}]})");
}

TEST_F(MapTest, NamesThatDoNotExistOrAreUsedTwiceAreErrors) {
  const std::vector<PlannedTensor> a = {Grid("q", 2, 3), Grid("k", 2, 3, 2)};
  const std::vector<PlannedTensor> b = {Grid("x", 2, 3), Grid("y", 2, 3, 2)};
  EXPECT_THAT(ErrorOf(a, b, R"({"rename": {"nope": "x"}})"),
              HasSubstr("rename: expected the name of a tensor of A, found 'nope'"));
  EXPECT_THAT(ErrorOf(a, b, R"({"rename": {"q": "nope"}})"), HasSubstr("a tensor of B"));
  EXPECT_THAT(ErrorOf(a, b, R"({"rename": {"q": "x", "k": "x"}})"), HasSubstr("of B once"));
  EXPECT_THAT(ErrorOf(a, b, R"({"rename": {"q": "x", "q": "y"}})"), HasSubstr("'q' twice"));
  EXPECT_THAT(ErrorOf(a, b, R"({"rename": {"q": "x"},
                                "fuse": [{"from": ["q"], "to": "y", "dim": 0}]})"),
              HasSubstr("every tensor of A in one rule"));
  EXPECT_THAT(ErrorOf(a, b, R"({"strip_prefix": "model."})"), HasSubstr("strip_prefix"));
  EXPECT_THAT(ErrorOf(a, b, R"({"rename": {"q": "x", "k": "y"}, "add_prefix": "m."})"),
              HasSubstr("add_prefix"));
  EXPECT_THAT(ErrorOf(a, b, R"({"transpose": [{"name": "x", "dims": [0, 1]}]})"),
              HasSubstr("transpose: expected the name of a tensor of B that has a partner"));
}

TEST_F(MapTest, RulesThatDoNotFitTheShapesAreErrors) {
  const std::vector<PlannedTensor> a = {Grid("q", 2, 3), Grid("k", 2, 4)};
  const std::vector<PlannedTensor> b = {Grid("x", 1, 3), Grid("y", 2, 3)};
  EXPECT_THAT(ErrorOf(a, b, R"({"fuse": [{"from": ["q", "k"], "to": "x", "dim": 0}]})"),
              HasSubstr("'q' is U8 [2, 3], 'k' is U8 [2, 4]"));
  EXPECT_THAT(ErrorOf(a, b, R"({"fuse": [{"from": ["q", "k"], "to": "x", "dim": 2}]})"),
              HasSubstr("dim 2"));
  EXPECT_THAT(ErrorOf(a, b, R"({"split": [{"from": "q", "to": ["x"], "dim": 0}]})"),
              HasSubstr("add up to 2 (they give 1)"));
  EXPECT_THAT(ErrorOf(a, b, R"({"split": [{"from": "q", "to": ["x", "y"], "dim": 0}]})"),
              HasSubstr("parts that fit the 2 of dim 0"));
  EXPECT_THAT(ErrorOf(a, b, R"({"split": [{"from": "q", "to": ["x"], "dim": 5}]})"),
              HasSubstr("a tensor with a dim 5"));
  EXPECT_THAT(ErrorOf(a, b, R"({"rename": {"q": "y"},
                                "transpose": [{"name": "y", "dims": [0, 2]}]})"),
              HasSubstr("expected dims below 2, found 0 and 2"));
}

TEST_F(MapTest, MalformedMapsAreErrors) {
  const auto error = [this](const std::string& map) { return ErrorOf({}, {}, map); };
  EXPECT_THAT(error("nonsense"), HasSubstr("map.json: expected JSON"));
  EXPECT_THAT(error("[]"), HasSubstr("JSON object"));
  EXPECT_THAT(error(R"({"renames": {}})"), HasSubstr("rename, fuse, split, transpose, found 'ren"));
  EXPECT_THAT(error(R"({"schema": 2})"), HasSubstr("schema: expected an integer from 1 to 1"));
  EXPECT_THAT(error(R"({"rename": []})"), HasSubstr("rename: expected an object"));
  EXPECT_THAT(error(R"({"rename": {"a": 1}})"), HasSubstr("rename 'a': expected a string"));
  EXPECT_THAT(error(R"({"fuse": {}})"), HasSubstr("fuse: expected an array of rules"));
  EXPECT_THAT(error(R"({"fuse": [1]})"), HasSubstr("fuse[0]: expected an object"));
  EXPECT_THAT(error(R"({"fuse": [{"from": ["a"], "to": "b"}]})"), HasSubstr("from, to, dim"));
  EXPECT_THAT(error(R"({"fuse": [{"from": [], "to": "b", "dim": 0}]})"), HasSubstr("at least one"));
  EXPECT_THAT(error(R"({"fuse": [{"from": ["a"], "to": "b", "dim": -1}]})"), HasSubstr("found -1"));
  EXPECT_THAT(error(R"({"fuse": [{"from": ["a"], "to": "b", "dim": 0, "x": 1}]})"),
              HasSubstr("found 'x'"));
  EXPECT_THAT(error(R"({"transpose": [{"name": "b", "dims": [0]}]})"), HasSubstr("two dims"));
}

TEST_F(MapTest, SuggestsPrefixes) {
  EXPECT_THAT(ExpectSuggestion({Noise("model.a.w", 9, 1), Noise("model.b.w", 9, 2)},
                               {Noise("a.w", 9, 1), Noise("b.w", 9, 2)}),
              HasSubstr(R"("strip_prefix": "model.")"));
  EXPECT_THAT(ExpectSuggestion({Noise("a.w", 9, 1), Noise("b.w", 9, 2)},
                               {Noise("x.y.a.w", 9, 1), Noise("x.y.b.w", 9, 2)}),
              HasSubstr(R"("add_prefix": "x.y.")"));
  EXPECT_THAT(ExpectSuggestion({Noise("model.a.w", 9, 1), Noise("model.b.w", 9, 2)},
                               {Noise("lm.a.w", 9, 1), Noise("lm.b.w", 9, 2)}),
              HasSubstr(R"("strip_prefix": "model.")"));
}

TEST_F(MapTest, SuggestsAPrefixAsRenamesWhereOtherNamesHaveItToo) {
  const std::string map = ExpectSuggestion({Noise("m.a", 9, 1), Noise("m.b", 9, 2)},
                                           {Noise("m.a", 9, 1), Noise("b", 9, 2)});
  EXPECT_THAT(map, HasSubstr(R"("m.b": "b")"));
}

TEST_F(MapTest, SuggestsNamesWithoutWrappers) {
  const std::string map = ExpectSuggestion(
      {Noise("l.0._orig_mod.w", 9, 1), Noise("l.1._checkpoint_wrapped_module._orig_mod.w", 9, 2),
       Noise("l.2.submodule.w", 9, 3)},
      {Noise("l.0.w", 9, 1), Noise("l.1.w", 9, 2), Noise("l.2.submodule.w", 9, 3)});
  EXPECT_THAT(map, HasSubstr(R"("l.0._orig_mod.w": "l.0.w")"));
}

TEST_F(MapTest, SuggestsRenamesByValue) {
  const std::string map = ExpectSuggestion({Noise("wte", 90, 1), Noise("wpe", 90, 2)},
                                           {Noise("positions", 90, 2), Noise("embedding", 90, 1)});
  EXPECT_THAT(map, HasSubstr(R"("wte": "embedding")"));
}

TEST_F(MapTest, SuggestsNothingForConstantsOrUnrelatedTensors) {
  const auto zeros = [](const std::string& name) {
    return PlannedBytes(name, "U8", {9}, std::string(9, '\0'));
  };
  EXPECT_EQ(Run({zeros("a")}, {zeros("b")}, "").value().suggested_map, "");
  EXPECT_EQ(Run({Noise("a", 9, 1)}, {Noise("b", 9, 2)}, "").value().suggested_map, "");
}

}  // namespace
}  // namespace shardproof
