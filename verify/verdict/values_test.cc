#include "verify/verdict/values.h"

#include <gtest/gtest.h>

#include "verify/verdict/runs.h"

namespace shardproof {
namespace {

using std::string_literals::operator""s;

TEST(ValuesTest, ElementsInWords) {
  EXPECT_EQ(ElementText("BF16", "\x80\x3c"s), "0.015625 (0x3c80)");
  EXPECT_EQ(ElementText("F32", "\0\0\x80\x3f"s), "1 (0x3f800000)");
  EXPECT_EQ(ElementText("F32", "\xff\xff\xff\xff"s), "-nan (0xffffffff)");
  EXPECT_EQ(ElementText("F64", "\x9a\x99\x99\x99\x99\x99\xb9\x3f"s), "0.1 (0x3fb999999999999a)");
  EXPECT_EQ(ElementText("F16", "\0\xfc"s), "-inf (0xfc00)");
  EXPECT_EQ(ElementText("F16", "\x01\0"s), "5.9604645e-08 (0x0001)");
  EXPECT_EQ(ElementText("F8_E4M3", "\x7e"s), "448 (0x7e)");
  EXPECT_EQ(ElementText("F8_E5M2", "\x7c"s), "inf (0x7c)");
  EXPECT_EQ(ElementText("F8_E8M0", "\x80"s), "2^1 (0x80)");
  EXPECT_EQ(ElementText("I16", "\xfe\xff"s), "-2 (0xfffe)");
  EXPECT_EQ(ElementText("U64", "\xff\xff\xff\xff\xff\xff\xff\xff"s),
            "18446744073709551615 (0xffffffffffffffff)");
  EXPECT_EQ(ElementText("BOOL", "\x01"s), "true (0x01)");
  EXPECT_EQ(ElementText("C64", "\0\0\x80\x3f\0\0\0\xc0"s), "1-2i (0xc00000003f800000)");
  EXPECT_EQ(ElementText("C32", "\0\x3c\0\xc0"s), "1-2i (0xc0003c00)");
  EXPECT_EQ(ElementText("I4", "\x01\x02"s), "? (0x0201)");
}

TEST(ValuesTest, IndicesAndCoordinates) {
  EXPECT_EQ(CoordinatesOf(17, {5, 4}), (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(IndexOf({4, 1}, {5, 4}), 17u);
  EXPECT_TRUE(CoordinatesOf(0, {}).empty());
  EXPECT_EQ(ImageBytes("F32", {2, 3}), 24u);
  EXPECT_EQ(ImageBytes("F32", {}), 4u);
  EXPECT_EQ(ImageBytes("F32", {0}), 0u);
  EXPECT_EQ(ImageBytes("F32", {-1}), std::nullopt);
  EXPECT_EQ(ImageBytes("F64", {int64_t{1} << 62}), std::nullopt);
}

TEST(RunsTest, ExpandTouchAndCover) {
  const std::vector<OwnedRun> runs = {{2, 2, 3, 10}};
  EXPECT_TRUE(Touches(runs, 12, 13));
  EXPECT_FALSE(Touches(runs, 4, 12));
  EXPECT_TRUE(Touches(runs, 0, 100));
  EXPECT_FALSE(Touches(runs, 24, 100));
  EXPECT_EQ(Expand(runs)->size(), 3u);
  EXPECT_EQ(*Expand({{0, 4, 5, 4}}), (std::vector<Stretch>{{0, 20}}));
  EXPECT_EQ(Expand({{0, 1, 1u << 30, 2}}), std::nullopt);
  EXPECT_EQ(*ExpandBox({3, 4}, {{{0, 3}}, {{1, 3}}}),
            (std::vector<Stretch>{{1, 3}, {5, 7}, {9, 11}}));
  EXPECT_EQ(*ExpandBox({3, 4}, {{{1, 3}}, {{0, 4}}}), (std::vector<Stretch>{{4, 12}}));
  EXPECT_EQ(*ExpandBox({}, {}), (std::vector<Stretch>{{0, 1}}));
  EXPECT_TRUE(ExpandBox({3, 4}, {{}, {{0, 4}}})->empty());
  EXPECT_TRUE(ExpandBox({int64_t{1} << 40, 0}, {{{0, uint64_t{1} << 39}}, {}}, 100)->empty());
  EXPECT_EQ(*ExpandBox({3, 4}, {{{0, 1}, {2, 3}}, {{0, 1}, {2, 4}}}),
            (std::vector<Stretch>{{0, 1}, {2, 4}, {8, 9}, {10, 12}}));
  EXPECT_FALSE(ExpandBox({8, 4}, {{{0, 8}}, {{0, 1}, {2, 3}}}, 15).has_value());
  EXPECT_EQ(CoverageOf({{0, 4, 3, 4}}, 4), CoverageOf({{0, 12, 1, 0}}, 4));
}

}  // namespace
}  // namespace shardproof
