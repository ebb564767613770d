// What the writer writes, the reader reads back.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "verify/evidence/fixture_rank.h"
#include "verify/evidence/records_json.h"

namespace shardproof {
namespace {

using ::testing::ElementsAre;

void ExpectEqual(const TensorState& a, const TensorState& b) {
  EXPECT_EQ(a.device, b.device);
  EXPECT_EQ(a.is_meta, b.is_meta);
  EXPECT_EQ(a.content, b.content);
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_EQ(a.coverage, b.coverage);
  EXPECT_EQ(a.nan_count, b.nan_count);
  EXPECT_EQ(a.inf_count, b.inf_count);
  EXPECT_EQ(a.first_nonfinite, b.first_nonfinite);
  EXPECT_EQ(a.blocks.block_bytes, b.blocks.block_bytes);
  EXPECT_EQ(a.blocks.first_block, b.blocks.first_block);
  EXPECT_EQ(a.blocks.blocks, b.blocks.blocks);
  ASSERT_EQ(a.bytes.size(), b.bytes.size());
  for (size_t i = 0; i < a.bytes.size(); ++i) EXPECT_EQ(a.bytes[i].bytes, b.bytes[i].bytes);
}

TEST_F(EvidenceFiles, RoundTripEveryRecord) {
  WriteSmallRank(directory_);
  const RankEvidence rank = Read();
  EXPECT_EQ(rank.damage, "");
  EXPECT_TRUE(rank.closed);
  ASSERT_EQ(rank.descriptors.size(), 1u);  // the one that no state used is not written
  const TensorDescriptor& d = rank.descriptors[0];
  EXPECT_EQ(d.name, "layer.weight");
  EXPECT_EQ(d.placements[0].split_factor, 2);
  EXPECT_EQ(d.placements[2].dim, 1);
  EXPECT_EQ(d.owned[1].stride, 3u);
  EXPECT_EQ(d.OwnedElements(), 11u);
  EXPECT_EQ(d.ElementCount(), 15u);
  EXPECT_EQ(d.alias_group, 4);
  EXPECT_EQ(d.identity, 9);
  EXPECT_TRUE(d.requires_grad);
  EXPECT_EQ(d.attributes, Weight().attributes);
  EXPECT_EQ(d.local_stride, Weight().local_stride);

  ASSERT_EQ(rank.stages.size(), 3u);
  ExpectEqual(rank.Stage(Stage::kLoaded)->tensors.at("b"), Value(0));
  ExpectEqual(rank.Stage(Stage::kReady)->tensors.at("layer.weight"), Value(0));
  EXPECT_EQ(rank.Stage(Stage::kReady)->tensors.at("b").storage_bytes, 4096u);
  EXPECT_EQ(rank.Stage(Stage::kReady)->tensors.at("b").committed_bytes, 0u);
  EXPECT_FALSE(rank.Stage(Stage::kLoaded)->tensors.at("b").storage_bytes.has_value());
  EXPECT_EQ(rank.Stage(std::string("restored@2"))->step, 2);
  EXPECT_EQ(rank.Stage(std::string("restored@2"))->tensors.size(), 1u);
  EXPECT_EQ(rank.Stage(std::string("restored@2"))->tensors.at("layer.weight").nan_count, 0u);
  for (const StageRecord& stage : rank.stages) EXPECT_TRUE(stage.complete);

  EXPECT_EQ(rank.collectives.at(0).count, 15u);
  EXPECT_EQ(rank.collectives.at(0).root, 0);
  EXPECT_EQ(rank.collectives.at(0).group, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(rank.faults.at(0).detail, "read of w");
  EXPECT_EQ(rank.faults.at(0).call, "read");
  EXPECT_EQ(rank.faults.at(0).error, "Input/output error");
  EXPECT_EQ(rank.faults.at(0).file, "f");
  EXPECT_EQ(rank.faults.at(0).byte, 9u);
  EXPECT_EQ(rank.faults.at(0).tensors, (std::vector<std::string>{"v", "w"}));
  EXPECT_EQ(rank.faults.at(0).rows, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(rank.errors.at(0).message, "rank 1 vanished");
  EXPECT_EQ(rank.errors.at(0).type, "ConnectionError");
  EXPECT_EQ(rank.keys->missing, std::vector<std::string>{"m"});
  EXPECT_EQ(rank.host, "node-3");
  EXPECT_EQ(rank.process_id, 42);
  EXPECT_EQ(rank.memory->samples.at(0).stage, "loaded");
  EXPECT_EQ(rank.memory->samples.at(0).device_bytes, 300u);
  EXPECT_EQ(rank.memory->own_shard_bytes, 3u);
}

// What an optimizer keeps is carried forward by itself: the model's states stay beside it.
TEST_F(EvidenceFiles, KeepsModelAndOptimizerApart) {
  const std::string stage = "{\"record\":\"stage\",\"name\":\"stepped\",\"step\":1";
  const auto end = [](int tensors) {
    return fmt::format(
        "{{\"record\":\"stage_end\",\"name\":\"stepped\",\"step\":1,\"tensors\":{}}}\n", tensors);
  };
  const std::string rng = "{\"record\":\"rng\",\"cpu\":\"0123456789abcdef0123456789abcdef\"}\n";
  const std::string optimizer =
      R"({"record":"optimizer","groups":[{"options":{"lr":"0.1"},"parameters":["w"]}],)"
      R"("strangers":[{"group":0,"index":1,"was":"old","shape":[2,3]}],"values":{"w.step":"3"}})"
      "\n";
  StepsRecord steps{2, "ready", 3, "it may be so", {{"w", "due", "it must", 4, 5}, {"v"}}};
  steps.still[1].why = "undecided";
  const RankEvidence rank =
      ReadLines(Tensor(0) + stage + "}\n" + StateLine(0) + rng + end(1) + stage +
                ",\"of\":\"optimizer\"}\n" + optimizer + StepsLine(steps) + "\n" + end(0));
  EXPECT_EQ(rank.damage, "");
  ASSERT_EQ(rank.stages.size(), 2u);
  EXPECT_EQ(rank.stages[1].Key(), "stepped@1.optimizer");
  EXPECT_EQ(rank.Stage(std::string("stepped@1"))->tensors.size(), 1u);
  EXPECT_EQ(rank.Stage(std::string("stepped@1"))->rng, "0123456789abcdef0123456789abcdef");
  const StageRecord& kept = *rank.Stage(std::string("stepped@1.optimizer"));
  EXPECT_TRUE(kept.tensors.empty());
  ASSERT_TRUE(kept.optimizer.has_value());
  EXPECT_EQ(kept.optimizer->groups.at(0).options.at("lr"), "0.1");
  EXPECT_THAT(kept.optimizer->groups.at(0).parameters, ElementsAre("w"));
  EXPECT_EQ(kept.optimizer->strangers.at(0).was, "old");
  EXPECT_THAT(kept.optimizer->strangers.at(0).shape, ElementsAre(2, 3));
  EXPECT_EQ(kept.optimizer->values.at("w.step"), "3");
  ASSERT_TRUE(kept.steps.has_value());
  EXPECT_EQ(StepsLine(*kept.steps), StepsLine(steps));
  EXPECT_EQ(kept.steps->still.at(0).index, 5u);
  EXPECT_EQ(kept.steps->since, "ready");
}

TEST_F(EvidenceFiles, FactsAreAlikeByteForByteAndHoldOnlyWhatChanged) {
  WriteSmallRank(directory_);
  WriteSmallRank(directory_ + "/again");
  const std::string facts = Slurp(Facts());
  EXPECT_EQ(facts, Slurp(directory_ + "/again/values/rank_0.facts.jsonl"));
  size_t states = 0;
  std::istringstream lines(facts);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line.rfind("{\"record\":\"", 0), 0u) << line;
    states += line.rfind("{\"record\":\"state\"", 0) == 0;
  }
  EXPECT_EQ(states, 3u);
  EXPECT_EQ(facts.find("node-3"), std::string::npos);
}

TEST_F(EvidenceFiles, OracleRoundTrips) {
  OracleRecord oracle;
  FileTensor tensor{"w",
                    "model.safetensors",
                    8,
                    "F32",
                    {2, 2},
                    Digest(1, 2),
                    Digest(3, 4),
                    1,
                    2,
                    3,
                    {4096, 0, {Digest(5, 6)}},
                    {{0, "abcd"}}};
  oracle.source.tensors["w"] = tensor;
  oracle.saved[Phase::kValues].error = "cannot read";
  oracle.roots[Phase::kTrain] = {.error = "e",
                                 .was_empty = false,
                                 .latest = "step-00000002\n",
                                 .names = {"latest", "step-00000002"},
                                 .steps = {{"step-00000002", true, 3, {"one", "two"}}}};
  oracle.ties = {{"a", "b"}};
  oracle.derived["rope"] = {"rope default", {1.0f, 0.1f, -0.0f, INFINITY}, 2};
  oracle.missing["m"] = tensor;
  tensor.keys = {"w.0", "w.1"};
  oracle.source.tensors["packed"] = tensor;
  oracle.missing_allowed = {"m"};
  oracle.unexpected_allowed = {"u"};
  oracle.declared["w"].name = "w";
  oracle.declared["w"].shape = {2, 2};
  ASSERT_TRUE(WriteOracle(directory_, oracle).ok());
  const OracleRecord read = ReadOracle(directory_ + "/oracle.json").value();
  EXPECT_EQ(read.source.tensors.at("w").digest, tensor.digest);
  EXPECT_EQ(read.source.tensors.at("w").bytes.at(0).bytes, "abcd");
  EXPECT_EQ(read.source.tensors.at("w").first_nonfinite, 3u);
  EXPECT_EQ(read.source.tensors.at("w").name, "w");
  EXPECT_TRUE(read.source.tensors.at("w").keys.empty());
  EXPECT_EQ(read.source.tensors.at("packed").keys, tensor.keys);
  EXPECT_EQ(read.saved.at(Phase::kValues).error, "cannot read");
  const SavedRoot& root = read.roots.at(Phase::kTrain);
  EXPECT_EQ(root.error, "e");
  EXPECT_FALSE(root.was_empty);
  EXPECT_EQ(root.latest, "step-00000002\n");
  EXPECT_EQ(root.names, oracle.roots[Phase::kTrain].names);
  EXPECT_EQ(root.steps.at(0).name, "step-00000002");
  EXPECT_TRUE(root.steps.at(0).sealed);
  EXPECT_EQ(root.steps.at(0).tensors, 3);
  EXPECT_EQ(root.steps.at(0).damage, oracle.roots[Phase::kTrain].steps[0].damage);
  EXPECT_EQ(read.ties, oracle.ties);
  EXPECT_EQ(read.derived.at("rope").values, oracle.derived["rope"].values);
  EXPECT_TRUE(std::signbit(read.derived.at("rope").values[2]));
  EXPECT_EQ(read.missing.at("m").blocks.blocks, tensor.blocks.blocks);
  EXPECT_EQ(read.missing_allowed, oracle.missing_allowed);
  EXPECT_EQ(read.declared.at("w").shape, oracle.declared["w"].shape);

  const std::string text = Slurp(directory_ + "/oracle.json");
  for (size_t size = 0; size + 2 < text.size(); size += 7) {
    Spill(directory_ + "/oracle.json", text.substr(0, size));
    EXPECT_FALSE(ReadOracle(directory_ + "/oracle.json").ok());
  }
}

TEST_F(EvidenceFiles, StepsOfTheTwinRoundTrip) {
  OracleRecord oracle;
  oracle.twin_steps = {{.stage = std::string("stepped@1"),
                        .compared = 9,
                        .exact = 8,
                        .why_not = "why",
                        .left_out = "left",
                        .averages = {"v", "w"},
                        .adds_otherwise = true,
                        .deviations = {{"norm", "w", {1}, 4, 2, "e", "s", "what", "cause"}}}};
  oracle.why_no_twin_steps = "none";
  ASSERT_TRUE(WriteOracle(directory_, oracle).ok());
  const OracleRecord read = ReadOracle(directory_ + "/oracle.json").value();
  const TwinStep& step = read.twin_steps.at(0);
  EXPECT_EQ(step.stage.text(), "stepped@1");
  EXPECT_EQ(step.compared + step.exact, 17u);
  EXPECT_EQ(step.why_not + step.left_out + read.why_no_twin_steps, "whyleftnone");
  EXPECT_EQ(step.averages, (std::vector<std::string>{"v", "w"}));
  EXPECT_TRUE(step.adds_otherwise);
  const TwinStepDeviation& one = step.deviations.at(0);
  EXPECT_EQ(one.kind + one.tensor + one.expected + one.seen + one.what + one.cause,
            "normweswhatcause");
  EXPECT_EQ(one.ranks, std::vector<int64_t>{1});
  EXPECT_EQ(one.index, 4u);
  EXPECT_EQ(one.differing, 2u);
}

TEST(StageKeyTest, IsAtItsStageAtEveryStep) {
  EXPECT_TRUE(IsAt(std::string("stepped@3.optimizer"), Stage::kStepped));
  EXPECT_TRUE(IsAt(std::string("bound.optimizer"), Stage::kBound));
  EXPECT_TRUE(IsAt(Stage::kReady, Stage::kReady));
  EXPECT_FALSE(IsAt(std::string("stepped_twice"), Stage::kStepped));
  EXPECT_FALSE(IsAt({}, Stage::kStepped));
}

}  // namespace
}  // namespace shardproof
