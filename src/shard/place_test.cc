// Which dim of which tensor each axis cuts, as FSDP2 with tensor and expert parallelism has it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/shard/shard.h"

namespace shardproof {
namespace {

std::string TextOf(const Placement& placement) {
  if (!placement.IsShard()) return "R";
  if (placement.split_factor > 1)
    return fmt::format("S{}/{}", placement.dim, placement.split_factor);
  return fmt::format("S{}", placement.dim);
}

/// "S0 R": by axis. "S0/3": a strided shard that is split by three.
std::string Placed(const std::string& name, std::vector<int64_t> shape, const Mesh& mesh,
                   TensorKind kind = TensorKind::kParameter) {
  const Slot slot({.name = name, .kind = kind, .shape = std::move(shape)});
  std::vector<std::string> texts;
  for (const Placement& placement : PlaceOnMesh(slot, mesh)) texts.push_back(TextOf(placement));
  return fmt::format("{}", fmt::join(texts, " "));
}

const Mesh kTp{.axes = {{"tp", 2}}};
const Mesh kEp{.axes = {{"ep", 2}}};
const Mesh kShard{.axes = {{"dp_shard", 2}}};

TEST(PlaceOnMesh, DataParallelismCutsParametersOnceAndNothingElse) {
  EXPECT_EQ(Placed("a.weight", {4, 3}, kShard), "S0");
  EXPECT_EQ(Placed("a.bias", {4}, kShard), "S0");
  EXPECT_EQ(Placed("scale", {}, kShard), "R");
  EXPECT_EQ(Placed("a.mask", {4, 3}, kShard, TensorKind::kBuffer), "R");
  const Mesh replicas{.axes = {{"dp_replicate", 2}, {"dp_shard", 2}, {"cp", 2}}};
  EXPECT_EQ(Placed("a.weight", {4, 3}, replicas), "R S0 R");
}

TEST(PlaceOnMesh, TensorParallelismCutsColumnsOfWhatGoesInAndRowsOfWhatComesOut) {
  EXPECT_EQ(Placed("l.self_attn.q_proj.weight", {4, 3}, kTp), "S0");
  EXPECT_EQ(Placed("l.self_attn.q_proj.bias", {4}, kTp), "S0");
  EXPECT_EQ(Placed("model.embed_tokens.weight", {4, 3}, kTp), "S0");
  for (const char* module :
       {"self_attn.o_proj", "mlp.down_proj", "conv.out_proj", "feed_forward.w2", "attn.proj"}) {
    EXPECT_EQ(Placed(fmt::format("l.{}.weight", module), {4, 3}, kTp), "S1") << module;
    EXPECT_EQ(Placed(fmt::format("l.{}.bias", module), {4}, kTp), "R")
        << module;  // added once, after the sum
  }
  EXPECT_EQ(Placed("l.self_attn.o_proj.base_layer.weight", {4, 3}, kTp), "S1");  // with an adapter
  EXPECT_EQ(Placed("l.input_layernorm.weight", {4}, kTp), "R");
  EXPECT_EQ(Placed("l.norm.bias", {4}, kTp), "R");
  EXPECT_EQ(Placed("l.co_proj.weight", {4, 3}, kTp), "S0");  // another module, whose name ends so
}

TEST(PlaceOnMesh, ExpertParallelismCutsExpertsApart) {
  EXPECT_EQ(Placed("l.mlp.experts.gate_up_proj", {4, 6, 3}, kEp), "S0");
  EXPECT_EQ(Placed("l.mlp.experts.gate_up_proj", {4, 6, 3}, kTp), "S1");
  EXPECT_EQ(Placed("l.mlp.experts.down_proj", {4, 3, 6}, kTp), "S2");
  EXPECT_EQ(Placed("l.mlp.gate.weight", {4, 3}, kEp),
            "S0");  // no expert: as one more data-parallel axis
}

TEST(PlaceOnMesh, WhatIsCutFirstByALaterAxisMakesStridedShards) {
  const Mesh shard_tp{.axes = {{"dp_shard", 2}, {"tp", 3}}};
  EXPECT_EQ(Placed("l.self_attn.q_proj.weight", {12, 3}, shard_tp), "S0/3 S0");
  EXPECT_EQ(Placed("l.self_attn.o_proj.weight", {12, 3}, shard_tp), "S0 S1");
  EXPECT_EQ(Placed("l.self_attn.q_proj.weight", {12, 3}, {.axes = {{"tp", 3}, {"dp_shard", 2}}}),
            "S0 S0");
  const Mesh ep_shard{.axes = {{"ep", 2}, {"dp_shard", 3}}};
  EXPECT_EQ(Placed("l.mlp.gate.weight", {12, 3}, ep_shard), "S0/3 S0");         // dp_shard first
  EXPECT_EQ(Placed("l.mlp.experts.down_proj", {12, 3, 6}, ep_shard), "S0 S0");  // ep first
  const Mesh three{.axes = {{"ep", 2}, {"dp_shard", 3}, {"tp", 5}}};
  EXPECT_EQ(Placed("l.self_attn.q_proj.weight", {30, 3}, three), "S0/15 S0/5 S0");
}

}  // namespace
}  // namespace shardproof
