// The parts of locating a difference that the properties' own tests do not reach: grids that the
// sides do not share, bytes that contradict digests, causes that other digests show.
#include "verify/verdict/locate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardproof {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// F32 [4] on two ranks, two elements each.
class LocateTest : public ::testing::Test {
 protected:
  LocateTest() {
    phase_.mesh = {{"dp_shard", 2}};
    for (int64_t r = 0; r < 2; ++r) {
      RankEvidence rank;
      rank.rank = r;
      rank.coordinates = {r};
      TensorDescriptor descriptor;
      descriptor.name = "w";
      descriptor.dtype = "F32";
      descriptor.shape = {4};
      descriptor.placements = {{"shard", 0, 1}};
      descriptor.owned = {{static_cast<uint64_t>(2 * r), 2, 1, 0}};
      rank.descriptors = {descriptor};
      StageRecord ready{.name = "ready", .complete = true};
      TensorState state;
      state.content = Content::kDefined;
      state.digest = {10 + static_cast<uint64_t>(r), 20};
      state.coverage = {1, 2};
      ready.tensors["w"] = state;
      rank.stages = {ready};
      phase_.ranks.push_back(rank);
    }
    file_.name = "w";
    file_.dtype = "F32";
    file_.shape = {4};
    file_.digest = {21, 40};
    file_.coverage = {2, 4};
  }

  TensorState& State(int64_t rank) { return phase_.ranks[rank].stages[0].tensors["w"]; }
  std::optional<Finding> Judge() {
    return Compare({evidence_, phase_, Stage::kReady, "w", {Against::What::kCheckpoint}, {}},
                   ImageOf(file_), ImagesOf(phase_, Stage::kReady, "w").at(0));
  }

  Evidence evidence_;
  PhaseEvidence phase_;
  FileTensor file_;
};

TEST_F(LocateTest, SumsOverTheShardGroup) { EXPECT_FALSE(Judge().has_value()); }

TEST_F(LocateTest, WithoutBytesOrBlocksTheWholeTensorIsWanted) {
  State(1).digest.lane0 += 1;
  const auto finding = Judge();
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->kind, "differs");
  EXPECT_THAT(finding->ranks, ElementsAre(0, 1));
  ASSERT_EQ(finding->wanted.size(), 1u);
  EXPECT_EQ(finding->wanted[0].byte_length, 16u);
}

TEST_F(LocateTest, BlocksDifferThoughTheWholeIsEqual) {
  file_.blocks = {8, 0, {{10, 20}, {11, 20}}};
  State(0).blocks = {8, 0, {{10, 20}}};
  State(1).blocks = {8, 1, {{11, 20}}};
  EXPECT_FALSE(Judge().has_value());
  State(1).blocks.blocks = {{12, 20}};
  const auto finding = Judge();
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->kind, "differs");
  ASSERT_EQ(finding->wanted.size(), 1u);
  EXPECT_EQ(finding->wanted[0].byte_start, 8u);
  State(1).blocks = {4, 2, {{12, 20}}};  // of another grid: nothing to hold it against
  EXPECT_FALSE(Judge().has_value());
}

TEST_F(LocateTest, EqualBytesUnderUnequalDigestsAreTheVerifiersFault) {
  State(1).digest.lane0 += 1;
  file_.bytes = {{0, std::string(16, 'x')}};
  State(0).bytes = {{0, std::string(8, 'x')}};
  State(1).bytes = {{8, std::string(8, 'x')}};
  const auto finding = Judge();
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->failure_class, "verifier");
  EXPECT_TRUE(finding->wanted.empty());
}

TEST_F(LocateTest, BytesNameOwnerAndValues) {
  State(1).digest.lane0 += 1;
  file_.bytes = {{0, std::string(16, '\1')}};
  State(0).bytes = {{0, std::string(8, '\1')}};
  State(1).bytes = {{8, std::string(4, '\1') + std::string(4, '\3')}};
  const auto finding = Judge();
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->index, 3u);
  EXPECT_THAT(finding->ranks, ElementsAre(1));
  EXPECT_THAT(finding->seen, HasSubstr("0x03030303"));
  EXPECT_THAT(finding->message, HasSubstr("rank 1 of 2"));
}

TEST_F(LocateTest, NamesAnotherTensorWhoseValueItHolds) {
  FileTensor other = file_;
  other.name = "v";
  other.digest = {99, 40};
  evidence_.oracle.source.tensors["v"] = other;
  State(1).digest.lane0 = 89;
  EXPECT_EQ(Judge()->explanation, "holds the value of v");
  EXPECT_EQ(Judge()->facts.other, "v");
  EXPECT_EQ(Judge()->facts.cause, "value-of-another");
}

TEST_F(LocateTest, AnAbsentRankIsIncompleteNotDifferent) {
  phase_.ranks.pop_back();
  EXPECT_EQ(Judge()->kind, "incomplete");
}

TEST_F(LocateTest, RanksThatDisagreeOnPlacementsAreNotAddedUp) {
  phase_.ranks[1].descriptors[0].placements = {{"replicate", 0, 1}};
  EXPECT_EQ(ImagesOf(phase_, Stage::kReady, "w").size(), 2u);
}

}  // namespace
}  // namespace shardproof
