#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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

std::string Image(const PlannedTensor& tensor) {
  std::string bytes(*oracle::BytesOf(tensor), '\0');
  tensor.fill(0, bytes.size(), bytes.data());
  return bytes;
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
      EXPECT_TRUE(oracle::WriteTextFile(directory_ / "rules.map", map).ok());
      options.maps = {directory_ / "rules.map"};
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
             {Noise("model.a", 9, 1), Noise("b", 9, 2), Noise("see", 9, 3)},
             "\xef\xbb\xbf# a test\r\nmodule.c -> see\nmodule.{rest*} -> model.{rest*}\r\n");
}

TEST_F(MapTest, ConcatenatesAlongAnyDimOnEitherSide) {
  const std::vector<PlannedTensor> rows = {Grid("q", 2, 3), Grid("k", 1, 3, 2), Grid("v", 4, 3, 3)};
  ExpectPass(rows, {Grid("qkv", 7, 3)}, "cat(q, k, v) -> qkv");
  ExpectPass({Grid("qkv", 7, 3)}, rows, "qkv -> cat(q, k, v)");
  const std::vector<PlannedTensor> columns = {Grid("q", 3, 2), Grid("k", 3, 1, 0, 2),
                                              Grid("v", 3, 4, 0, 3)};
  ExpectPass(columns, {Grid("qkv", 3, 7)}, "cat(q, k, v, dim=1) -> qkv");
  ExpectPass({Grid("qkv", 3, 7)}, columns, "qkv -> cat(q, k, v, dim=1)");
}

TEST_F(MapTest, PartsInTheWrongOrderDiffer) {
  const auto result =
      Run({Grid("q", 2, 3), Grid("k", 2, 3, 2)}, {Grid("qk", 4, 3)}, "cat(k, q) -> qk");
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result.value().differences.size(), 1u);
  EXPECT_EQ(result.value().differences[0].source, "cat(k, q)");
  EXPECT_THAT(result.value().differences[0].explanation,
              HasSubstr("B has the parts in the order q, k"));
}

TEST_F(MapTest, PartsInTheWrongOrderDifferAlsoAfterACast) {
  const auto floats = [](const std::string& name, const std::vector<float>& values) {
    return PlannedBytes(name, "F32", {static_cast<int64_t>(values.size())},
                        {reinterpret_cast<const char*>(values.data()), 4 * values.size()});
  };
  const std::vector<float> one(40'000, 1), two(40'000, 2);
  std::string twos, ones;
  for (size_t i = 0; i < one.size(); ++i) {
    ones += std::string("\x80\x3f", 2);
    twos += std::string("\x00\x40", 2);
  }
  EXPECT_TRUE(
      oracle::WriteSafetensors(directory_ / "a", {floats("q", one), floats("k", two)}).ok());
  EXPECT_TRUE(oracle::WriteSafetensors(directory_ / "b",
                                       {PlannedBytes("qk", "BF16", {80'000}, twos + ones)})
                  .ok());
  CompareOptions options;
  options.maps = {"cat(q, k) -> qk"};
  options.cast = "BF16";
  const auto result = Compare(directory_ / "a", directory_ / "b", options);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result.value().differences.size(), 1u);
  EXPECT_THAT(result.value().differences[0].explanation,
              HasSubstr("B has the parts in the order k, q"));
}

TEST_F(MapTest, ALargeTensorIsHeldInStretches) {
  const int64_t bytes = 3 << 20;
  std::string image(2 * bytes, '\0');
  for (int64_t i = 0; i < 2 * bytes; ++i) image[i] = static_cast<char>(oracle::Mix(i));
  const std::vector<PlannedTensor> a = {PlannedBytes("q", "U8", {bytes}, image.substr(0, bytes)),
                                        PlannedBytes("k", "U8", {bytes}, image.substr(bytes))};
  const auto joined = [&] { return std::vector{PlannedBytes("qk", "U8", {2 * bytes}, image)}; };
  ExpectPass(a, joined(), "cat(q, k) -> qk");
  for (const int64_t at : {2 * bytes - 1, bytes + 7, bytes - 1}) {
    image[at] ^= 1;
    const auto result = Run(a, joined(), "cat(q, k) -> qk");
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(result.value().differences.size(), 1u);
    EXPECT_EQ(result.value().differences[0].index, static_cast<uint64_t>(at));
  }
  const auto result = Run(a, joined(), "cat(q, k) -> qk");
  EXPECT_EQ(result.value().differences.at(0).differing, 3u);
}

TEST_F(MapTest, ADifferenceIsNamedWhereItIsStored) {
  const auto result =
      Run({Grid("qkv", 7, 3)}, {Grid("q", 2, 3), Grid("k", 5, 3, 3)}, "qkv -> cat(q, k)");
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result.value().differences.size(), 1u);
  EXPECT_EQ(result.value().differences[0].tensor, "k");
  EXPECT_EQ(result.value().differences[0].index, 0u);
}

PlannedTensor Turned(const std::string& name, int rows, int columns) {
  std::string bytes;
  for (int c = 0; c < columns; ++c) {
    for (int r = 0; r < rows; ++r) bytes += static_cast<char>(16 * r + c);
  }
  return PlannedBytes(name, "U8", {columns, rows}, bytes);
}

TEST_F(MapTest, TransposesAlsoWhatIsJoined) {
  ExpectPass({Grid("w", 3, 5)}, {Turned("w", 3, 5)}, "transpose(w) -> w");
  ExpectPass({Grid("q", 2, 5), Grid("k", 1, 5, 2)}, {Turned("w", 3, 5)},
             "transpose(cat(q, k), 1, 0) -> w");
}

TEST_F(MapTest, PermutesDimsOfLargeTensors) {
  // 3 x 700 x 5 x 600 bytes: more than one slab, and a dim between and one behind the two swapped.
  const int64_t sizes[] = {3, 700, 5, 600};
  std::string image(3 * 700 * 5 * 600, '\0');
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<char>(oracle::Mix(i));
  std::string turned(image.size(), '\0');
  std::string rolled(image.size(), '\0');
  for (size_t i = 0; i < image.size(); i += 600) {
    const size_t row = i / 600;
    const size_t a = row / 3500, b = row / 5 % 700, c = row % 5;
    image.copy(&turned[((c * 700 + b) * 3 + a) * 600], 600, i);
    image.copy(&rolled[((b * 5 + c) * 3 + a) * 600], 600, i);
  }
  const PlannedTensor w = PlannedBytes("w", "U8", {sizes[0], sizes[1], sizes[2], sizes[3]}, image);
  ExpectPass({w}, {PlannedBytes("w", "U8", {sizes[2], sizes[1], sizes[0], sizes[3]}, turned)},
             "transpose(w, 0, 2) -> w");
  ExpectPass({w}, {PlannedBytes("w", "U8", {sizes[1], sizes[2], sizes[0], sizes[3]}, rolled)},
             "permute(w, [1, 2, 0, 3]) -> w");
}

TEST_F(MapTest, PutsExpertsIntoOneTensor) {
  // gate_up [2, 4, 3]: of each expert, 2 rows of gate and 2 of up.
  const std::vector<PlannedTensor> single = {Grid("m.0.gate", 2, 3), Grid("m.0.up", 2, 3, 2),
                                             Grid("m.1.gate", 2, 3, 4), Grid("m.1.up", 2, 3, 6)};
  const PlannedTensor rows = Grid("all", 8, 3);
  const PlannedTensor packed = PlannedBytes("m.gate_up", "U8", {2, 4, 3}, Image(rows));
  ExpectPass(single, {packed},
             "m.{e}.gate -> m.gate_up[{e}, :f]\nm.{e}.up -> m.gate_up[{e}, f:]\n");
  ExpectPass(single, {packed}, "stack(cat(m.{e}.gate, m.{e}.up)) -> m.gate_up");
  ExpectPass({packed}, single, "m.gate_up[{e}, :f] -> m.{e}.gate\nm.gate_up[{e}, f:] -> m.{e}.up");
  const auto gap = Run(single, {packed}, "m.{e}.gate -> m.gate_up[{e}, :f]\nm.{e}.up -> _");
  ASSERT_TRUE(gap.ok());
  EXPECT_THAT(CompareText(gap.value()),
              HasSubstr("m.gate_up: no rule of the map covers 12 of B's 24 elements, the first is "
                        "element 6"));
  const auto missing = Run({single[0], single[2], single[3]}, {packed},
                           "stack(cat(m.{e}.gate, m.{e}.up)) -> m.gate_up");
  ASSERT_TRUE(missing.ok());
  EXPECT_EQ(missing.value().verdict, Verdict::kFail);
  EXPECT_EQ(missing.value().only_in_b, std::vector<std::string>{"m.gate_up"});
}

TEST_F(MapTest, InterleavesByGroups) {
  const std::vector<PlannedTensor> apart = {Grid("q", 4, 3), Grid("k", 2, 3, 4)};
  std::string grouped = Image(apart[0]).substr(0, 6) + Image(apart[1]).substr(0, 3) +
                        Image(apart[0]).substr(6) + Image(apart[1]).substr(3);
  const PlannedTensor fused = PlannedBytes("qk", "U8", {6, 3}, grouped);
  ExpectPass(apart, {fused}, "interleave(q, k, groups=2) -> qk");
  ExpectPass({fused}, apart, "g = 4 / 2\nqk -> interleave(q, k, groups=g)");
  EXPECT_EQ(Run(apart, {fused}, "cat(q, k) -> qk").value().verdict, Verdict::kFail);
  EXPECT_THAT(ErrorOf(apart, {fused}, "interleave(q, k, groups=3) -> qk"),
              HasSubstr("line 1: interleave: expected a number of groups that divides the 4 rows"));
}

TEST_F(MapTest, TakesPartsOfWhatIsMade) {
  ExpectPass({Grid("w", 6, 3)}, {Grid("x", 2, 3), Grid("y", 4, 3, 2)},
             "reshape(w, [3, 2, 3])[0] -> x\nreshape(w, [3, 2, -1])[1:] -> reshape(y, [2, 2, 3])");
  ExpectPass({Grid("w", 3, 5)}, {Turned("x", 3, 5)},
             "transpose(w)[:2] -> x[:2]\ntranspose(w)[2:] -> x[2:]");
}

TEST_F(MapTest, PadsWithWhatIsStated) {
  const PlannedTensor w = Grid("w", 2, 3);
  const PlannedTensor last =
      PlannedBytes("w", "U8", {4, 3}, Image(w) + Image(w).substr(3) + Image(w).substr(3));
  const PlannedTensor sevens = PlannedBytes("w", "U8", {3, 3}, Image(w) + "\7\7\7");
  ExpectPass({w}, {last}, "pad(w, with=last) -> w");
  ExpectPass({w}, {sevens}, "pad(w, size=3, with=7) -> w");
  ExpectPass({w}, {last}, "w -> w[:2]\n_ -> w[2:]");
  EXPECT_EQ(Run({w}, {sevens}, "pad(w, with=0) -> w").value().verdict, Verdict::kFail);
  EXPECT_EQ(Run({w}, {last}, "w -> w[:2]").value().verdict, Verdict::kFail);
  EXPECT_THAT(Run({w}, {last}, "").value().differences[0].explanation,
              HasSubstr("the first 2 rows are A's, 2 more repeat row 1"));
}

TEST_F(MapTest, OneTensorUnderSeveralNames) {
  ExpectPass({Noise("w", 9, 1)}, {Noise("w", 9, 1), Noise("tied", 9, 1)}, "w -> w & tied");
  ExpectPass({Noise("w", 9, 1), Noise("tied", 9, 1)}, {Noise("w", 9, 1)}, "w & tied -> w");
  const auto result =
      Run({Noise("w", 9, 1)}, {Noise("w", 9, 1), Noise("tied", 9, 2)}, "w -> w & tied");
  ASSERT_EQ(result.value().differences.size(), 1u);
  EXPECT_EQ(result.value().differences[0].tensor, "tied");
}

TEST_F(MapTest, ComputesWithinABound) {
  using oracle::BytesOf;
  const auto f32 = [](const std::string& name, std::vector<int64_t> shape,
                      std::initializer_list<float> values) {
    return PlannedBytes(name, "F32", std::move(shape), BytesOf(values));
  };
  const PlannedTensor w = f32("w", {2, 2}, {1, 2, 3, 4});
  ExpectPass({w}, {f32("w", {2, 2}, {1, 1 / 2.0f, 1 / 3.0f, 1 / 4.0f})}, "reciprocal(w) -> w");
  ExpectPass({w}, {f32("w", {2, 2}, {0, 2, 4, 6})}, "w * 2 - 2 -> w");
  // The neighbour of a quotient that is rounded once is no result of a division.
  EXPECT_EQ(Run({w}, {f32("w", {2, 2}, {1, 0.5f, std::nextafter(1 / 3.0f, 1.0f), 0.25f})},
                "reciprocal(w) -> w")
                .value()
                .verdict,
            Verdict::kFail);
  ExpectPass({w, f32("s", {2, 1}, {10, 100})}, {f32("w", {2, 2}, {10, 20, 300, 400})},
             "scaled(w, s) -> w");
  ExpectPass({w, f32("s", {1, 2}, {10, 100})}, {f32("w", {2, 2}, {10, 200, 30, 400})},
             "scaled(w, s, block=[2, 1]) -> w");
  const PlannedTensor packed = PlannedBytes("p", "U8", {1, 2}, std::string("\x21\xf4", 2));
  ExpectPass({packed}, {f32("p", {1, 4}, {0.5, 1, 2, -6})}, "unpack_fp4(p) -> p");
  ExpectPass(
      {w}, {PlannedBytes("w", "BF16", {2, 2}, BytesOf<uint16_t>({0x3f80, 0x4000, 0x4040, 0x4080}))},
      "cast(w, BF16) -> w");
}

TEST_F(MapTest, NamesThatDoNotExistOrAreUsedTwiceAreErrors) {
  const std::vector<PlannedTensor> a = {Grid("q", 2, 3), Grid("k", 2, 3, 2)};
  const std::vector<PlannedTensor> b = {Grid("x", 2, 3), Grid("y", 2, 3, 2)};
  EXPECT_THAT(ErrorOf(a, b, "nope -> x"),
              HasSubstr("line 1: expected the name of a tensor of A, found 'nope'"));
  EXPECT_THAT(ErrorOf(a, b, "q -> nope"), HasSubstr("a tensor of B"));
  EXPECT_THAT(ErrorOf(a, b, "{l}.q -> x"), HasSubstr("names of A like '{l}.q', found none"));
  EXPECT_THAT(ErrorOf(a, b, "\nq -> x\nk -> x"),
              HasSubstr("line 3: expected every element of B in one place of the map, found some "
                        "of 'x' twice, first at"));
  EXPECT_THAT(ErrorOf(a, b, "q -> x\ncat(q, k) -> y"), HasSubstr("some of 'q' twice"));
  EXPECT_THAT(ErrorOf(a, b, "q[:1] -> x[:1]\nq -> y"), HasSubstr("some of 'q' twice"));
  EXPECT_THAT(ErrorOf(a, b, "model.{rest*} -> {rest*}"), HasSubstr("'model.{rest*}'"));
  EXPECT_THAT(ErrorOf(a, b, "{n} -> x"), HasSubstr("expected {n} on both sides"));
  EXPECT_THAT(ErrorOf(a, b, "stack({n}) -> x"), HasSubstr("expected {n} to be a number"));
  EXPECT_THAT(ErrorOf(a, b, "{n} -> x[{n}]"), HasSubstr("expected {n} to be a number, found 'k'"));
}

TEST_F(MapTest, RulesThatDoNotFitTheShapesAreErrors) {
  const std::vector<PlannedTensor> a = {Grid("q", 2, 3), Grid("k", 2, 4)};
  const std::vector<PlannedTensor> b = {Grid("x", 1, 3), Grid("y", 2, 3)};
  EXPECT_THAT(ErrorOf(a, b, "cat(q, k) -> x"), HasSubstr("found U8 [2, 3] and U8 [2, 4]"));
  EXPECT_THAT(ErrorOf(a, b, "cat(q, k, dim=2) -> x"), HasSubstr("a dim below 2"));
  EXPECT_THAT(ErrorOf(a, b, "transpose(q, 0, 2) -> y"), HasSubstr("two below 2"));
  EXPECT_THAT(ErrorOf(a, b, "q[:9] -> y"),
              HasSubstr("of the 2 rows of dim 0 of [2, 3], found 0:9"));
  EXPECT_THAT(ErrorOf(a, b, "q[:n] -> y[:n]"), HasSubstr("nothing says what 'n' is"));
  EXPECT_THAT(ErrorOf(a, b, "reshape(q, [4, -1]) -> y"), HasSubstr("a shape of 6 elements"));
  EXPECT_THAT(ErrorOf(a, b, "pad(q, size=1, with=0) -> y"), HasSubstr("at least the 2 rows"));
  EXPECT_THAT(ErrorOf(a, b, "pad(q, size=3, with=0.5) -> y"), HasSubstr("a value that U8 has"));
  EXPECT_THAT(ErrorOf(a, b, "interleave(q, q, groups=config.heads) -> y"),
              HasSubstr("config.heads: expected it in"));
  EXPECT_THAT(ErrorOf(a, b, "scaled(q, k) -> y"), HasSubstr("a scale for each equal block"));
}

TEST_F(MapTest, MalformedMapsAreErrors) {
  const auto error = [this](const std::string& map) { return ErrorOf({}, {}, map); };
  EXPECT_THAT(error("nonsense"), HasSubstr("line 1: expected '->', found the end of the line"));
  EXPECT_THAT(error("# nothing"), HasSubstr("expected a rule"));
  EXPECT_THAT(error("a -> "), HasSubstr("expected a name, a number or a function"));
  EXPECT_THAT(error("a -> b c"), HasSubstr("expected the end of the line, found 'c'"));
  EXPECT_THAT(error("a & b -> c & d"), HasSubstr("& on one side only"));
  EXPECT_THAT(error("_ -> _"), HasSubstr("a name on one side"));
  EXPECT_THAT(error("a.{ -> b"), HasSubstr("expected a } behind a {"));
  EXPECT_THAT(error("a.{1} -> b"), HasSubstr("a capture such as {l}"));
  EXPECT_THAT(error("\"a -> b"), HasSubstr("a second double quote"));
  EXPECT_THAT(error("a! -> b"), HasSubstr("found '!'"));
  EXPECT_THAT(error("\xc3\xa9 -> b"), HasSubstr("found '\xc3\xa9'"));
  EXPECT_THAT(error("a ? -> b"), HasSubstr("expected '->', found '?'"));
  EXPECT_THAT(error("a[1.5] -> b"), HasSubstr("a whole number"));
  EXPECT_THAT(error("cat(a, dim=0, dim=1) -> b"), HasSubstr("expected dim= once"));
  EXPECT_THAT(error(std::string(9999, '(') + "a -> b"), HasSubstr("in each other"));
  EXPECT_THAT(ErrorOf({Grid("a", 1, 1)}, {Grid("b", 1, 1)}, "turn(a) -> b"),
              HasSubstr("turn: expected one of the functions cat, stack"));
  EXPECT_THAT(ErrorOf({Grid("a", 1, 1)}, {Grid("b", 1, 1)}, "cat(a, groups=2) -> b"),
              HasSubstr("cat: expected the options dim, over, found 'groups'"));
}

TEST_F(MapTest, SuggestsPrefixes) {
  EXPECT_THAT(ExpectSuggestion({Noise("model.a.w", 9, 1), Noise("model.b.w", 9, 2)},
                               {Noise("a.w", 9, 1), Noise("b.w", 9, 2)}),
              HasSubstr("model.{rest*} -> {rest*}"));
  EXPECT_THAT(ExpectSuggestion({Noise("a.w", 9, 1), Noise("b.w", 9, 2)},
                               {Noise("x.y.a.w", 9, 1), Noise("x.y.b.w", 9, 2)}),
              HasSubstr("{rest*} -> x.y.{rest*}"));
  EXPECT_THAT(ExpectSuggestion({Noise("model.a.w", 9, 1), Noise("model.b.w", 9, 2)},
                               {Noise("lm.a.w", 9, 1), Noise("lm.b.w", 9, 2)}),
              HasSubstr("model.{rest*} -> lm.{rest*}"));
}

TEST_F(MapTest, SuggestsAPrefixAsRenamesWhereOtherNamesHaveItToo) {
  const std::string map = ExpectSuggestion({Noise("m.a", 9, 1), Noise("m.b", 9, 2)},
                                           {Noise("m.a", 9, 1), Noise("b", 9, 2)});
  EXPECT_THAT(map, HasSubstr("m.b -> b"));
}

TEST_F(MapTest, SuggestsNamesWithoutWrappers) {
  const std::string map = ExpectSuggestion(
      {Noise("l.0._orig_mod.w", 9, 1), Noise("l.1._checkpoint_wrapped_module._orig_mod.w", 9, 2),
       Noise("l.2.submodule.w", 9, 3)},
      {Noise("l.0.w", 9, 1), Noise("l.1.w", 9, 2), Noise("l.2.submodule.w", 9, 3)});
  EXPECT_THAT(map, HasSubstr("l.0._orig_mod.w -> l.0.w"));
}

TEST_F(MapTest, SuggestsOnePatternForRenamesThatAreAlike) {
  const std::string map = ExpectSuggestion(
      {Noise("h.0.attn.w", 90, 1), Noise("h.1.attn.w", 90, 2), Noise("odd name", 90, 3)},
      {Noise("layers.0.mix.w", 90, 1), Noise("layers.1.mix.w", 90, 2), Noise("even", 90, 3)});
  EXPECT_THAT(map, HasSubstr("h.{n1}.attn.w -> layers.{n1}.mix.w\n"));
  EXPECT_THAT(map, HasSubstr("\"odd name\" -> even\n"));
}

TEST_F(MapTest, SuggestsWhatIsSeveralOfTheOtherSide) {
  std::vector<PlannedTensor> apart, whole;
  for (int l = 0; l < 2; ++l) {
    const std::string at = "l." + std::to_string(l);
    std::string stacked;
    for (int e = 0; e < 3; ++e) {
      const PlannedTensor up = Noise("up", 6, 10 * l + e);
      apart.push_back(
          PlannedBytes(at + ".e." + std::to_string(e) + ".up", "U8", {2, 3}, Image(up)));
      stacked += Image(up);
    }
    whole.push_back(PlannedBytes(at + ".ups", "U8", {3, 2, 3}, stacked));
    const std::string q = Image(Noise("q", 12, 70 + l)), k = Image(Noise("k", 6, 80 + l));
    apart.push_back(PlannedBytes(at + ".q", "U8", {4, 3}, q));
    apart.push_back(PlannedBytes(at + ".k", "U8", {2, 3}, k));
    whole.push_back(PlannedBytes(at + ".qk", "U8", {6, 3},
                                 q.substr(0, 6) + k.substr(0, 3) + q.substr(6) + k.substr(3)));
  }
  EXPECT_EQ(ExpectSuggestion(apart, whole),
            "interleave(l.{n1}.q, l.{n1}.k, groups=2) -> l.{n1}.qk\n"
            "stack(l.{n1}.e.{e}.up) -> l.{n1}.ups\n");
  EXPECT_THAT(ExpectSuggestion(whole, apart), HasSubstr("l.{n1}.ups -> stack(l.{n1}.e.{e}.up)\n"));
}

TEST_F(MapTest, SuggestsRenamesByValue) {
  const std::string map = ExpectSuggestion({Noise("wte", 90, 1), Noise("wpe", 90, 2)},
                                           {Noise("positions", 90, 2), Noise("embedding", 90, 1)});
  EXPECT_THAT(map, HasSubstr("wte -> embedding"));
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
