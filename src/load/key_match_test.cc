// Which keys fill which tensor, and what is refused: nothing of a checkpoint is taken for what it
// is not.
#include "src/load/key_match.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/seam/device.h"

namespace shardproof {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Model Built(const ModelSpec& spec) { return BuildOnMeta(spec, 0, *MakeHostDevice()).value(); }

Source Holding(
    const std::vector<std::tuple<std::string, at::ScalarType, std::vector<int64_t>>>& tensors) {
  Source source;
  for (const auto& [key, dtype, shape] : tensors) {
    uint64_t length = c10::elementSize(dtype);
    for (const int64_t size : shape) length *= size;
    source.tensors[key] = {
        .dtype = dtype, .shape = shape, .file = 0, .offset = 100, .length = length};
  }
  return source;
}

/// Two experts of [2, 3] as one tensor, which checkpoints keep as two keys.
ModelSpec Packed() {
  return {.tensors = {{.name = "experts",
                       .dtype = at::kBFloat16,
                       .shape = {2, 2, 3},
                       .stored = {{{"experts.0", {2, 3}}, {"experts.1", {2, 3}}}}}}};
}

std::string RefusalOf(const ModelSpec& spec, const Source& source) {
  const auto match = MatchKeys(Built(spec), source);
  if (match.ok()) return "accepted";
  EXPECT_EQ(match.error().code, ErrorCode::kBadInput);
  return match.error().message;
}

TEST(MatchKeys, KeysOfPartsMakeTheTensorInTheirOrder) {
  const Source source =
      Holding({{"experts.0", at::kBFloat16, {2, 3}}, {"experts.1", at::kBFloat16, {2, 3}}});
  const Model model = Built(Packed());
  const auto match = MatchKeys(model, source);
  ASSERT_TRUE(match.ok()) << match.error().message;
  EXPECT_THAT(match.value().missing, IsEmpty());
  EXPECT_THAT(match.value().unexpected, IsEmpty());
  ASSERT_EQ(match.value().loads.size(), 1u);
  const auto& parts = match.value().loads[0].parts;
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(std::tie(parts[0].key, parts[0].start, parts[0].length),
            std::make_tuple("experts.0", 0u, 12u));
  EXPECT_EQ(std::tie(parts[1].key, parts[1].start, parts[1].length),
            std::make_tuple("experts.1", 12u, 12u));
}

TEST(MatchKeys, PartsThatDoNotFitAreRefused) {
  EXPECT_THAT(
      RefusalOf(Packed(),
                Holding({{"experts.0", at::kBFloat16, {2, 3}}, {"experts.1", at::kHalf, {2, 3}}})),
      HasSubstr("'experts.1': the checkpoint has dtype F16, the rest of 'experts' is BF16"));
  EXPECT_THAT(RefusalOf(Packed(), Holding({{"experts.0", at::kBFloat16, {3, 2}},
                                           {"experts.1", at::kBFloat16, {2, 3}}})),
              HasSubstr("'experts.0': the checkpoint has shape [3, 2], the model [2, 3]"));
  EXPECT_THAT(RefusalOf(Packed(), Holding({{"experts.1", at::kBFloat16, {2, 3}}})),
              HasSubstr("'experts': the checkpoint has 1 of its 2 keys, and lacks 'experts.0'"));
}

TEST(MatchKeys, ATensorOfAnotherShapeOrDtypeIsRefused) {
  const ModelSpec spec{.tensors = {{.name = "w", .dtype = at::kFloat, .shape = {2, 3}}}};
  EXPECT_THAT(RefusalOf(spec, Holding({{"w", at::kFloat, {3, 2}}})),
              HasSubstr("shape [3, 2], the model [2, 3]"));
  EXPECT_THAT(RefusalOf(spec, Holding({{"w", at::kFloat, {6}}})),
              HasSubstr("shape [6], the model [2, 3]"));
  EXPECT_THAT(RefusalOf(spec, Holding({{"w", at::kFloat, {2, 3, 1}}})),
              HasSubstr("shape [2, 3, 1]"));
  EXPECT_THAT(RefusalOf(spec, Holding({{"w", at::kInt, {2, 3}}})), HasSubstr("dtype I32"));
}

TEST(MatchKeys, WhatIsMissingAndWhatIsUnexpectedIsToldByName) {
  const ModelSpec spec{
      .tensors = {
          {.name = "a", .shape = {2}},
          {.name = "b", .shape = {2}},
          {.name = "cache", .kind = TensorKind::kBuffer, .persistent = false, .shape = {2}}}};
  const Model model = Built(spec);
  const auto match = MatchKeys(
      model, Holding({{"b", at::kFloat, {2}}, {"cache", at::kFloat, {2}}, {"c", at::kFloat, {9}}}));
  ASSERT_TRUE(match.ok()) << match.error().message;
  ASSERT_EQ(match.value().missing.size(), 1u);
  EXPECT_EQ(match.value().missing[0]->spec.name, "a");
  EXPECT_THAT(match.value().unexpected,
              ElementsAre("c", "cache"));  // a buffer that is not persistent is never loaded
}

TEST(MatchKeys, ATiedTensorIsLoadedOnceFromAnyOfItsNames) {
  const ModelSpec spec{.tensors = {{.name = "embed", .shape = {2}}, {.name = "head", .shape = {2}}},
                       .ties = {{"embed", "head"}}};
  for (const char* only : {"embed", "head"}) {
    const Model model = Built(spec);
    const auto match = MatchKeys(model, Holding({{only, at::kFloat, {2}}}));
    ASSERT_TRUE(match.ok()) << match.error().message;
    ASSERT_EQ(match.value().loads.size(), 1u) << only;
    EXPECT_EQ(match.value().loads[0].parts.at(0).key, only);
    EXPECT_THAT(match.value().missing, IsEmpty());
  }
  const Model model = Built(spec);
  const auto both =
      MatchKeys(model, Holding({{"embed", at::kFloat, {2}}, {"head", at::kFloat, {2}}}));
  ASSERT_TRUE(both.ok()) << both.error().message;
  ASSERT_EQ(both.value().loads.size(), 1u);
  EXPECT_EQ(both.value().loads[0].parts.at(0).key, "embed");
  EXPECT_THAT(both.value().unexpected, IsEmpty());
  EXPECT_THAT(RefusalOf(spec, Holding({{"embed", at::kFloat, {2}}, {"head", at::kFloat, {3}}})),
              HasSubstr("'head': the checkpoint has shape [3]"));
}

}  // namespace
}  // namespace shardproof
