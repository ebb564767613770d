#include "verify/oracle/twin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/fixture_files.h"

namespace shardproof::oracle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

const std::string kOne = BytesOf<float>({1, 2, 3, 4});
const std::string kTwo = BytesOf<float>({5, 6, 7, 8});

FileTensor ValueOf(const std::string& name, const std::string& dtype,
                   const std::vector<int64_t>& shape, const std::string& bytes) {
  FileTensor value;
  value.name = name;
  value.dtype = dtype;
  value.shape = shape;
  ScalarDigest digest(bytes.size(), *FindDtype(dtype));
  digest.Add(bytes.data(), bytes.size());
  digest.Finish(value);
  return value;
}

/// A directory with a and b, F32 [4] each, and a twin that has what a test adds to it.
class TwinTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(
        WriteSafetensors(directory_ / "model.safetensors",
                         {PlannedBytes("a", "F32", {4}, kOne), PlannedBytes("b", "F32", {4}, kTwo)})
            .ok());
    case_.subject = "f.py";
    case_.model.checkpoint = directory_.path();
    twin_.says.made_by = "make()";
  }

  void Add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
           const std::string& bytes, const std::string& kind = "parameter",
           bool persistent = true) {
    TensorCase tensor;
    tensor.name = name;
    tensor.kind = kind;
    tensor.persistent = persistent;
    tensor.dtype = dtype;
    tensor.shape = shape;
    twin_.model.tensors.push_back(tensor);
    twin_.values.emplace(name, ValueOf(name, dtype, shape, bytes));
  }

  OracleRecord Consulted() {
    auto record = ConsultTwin(case_, directory_.path(), {}, twin_);
    EXPECT_TRUE(record.ok()) << (record.ok() ? "" : record.error().message);
    return std::move(record).value();
  }

  /// The only deviation.
  TwinDeviation Deviation() {
    const OracleRecord record = Consulted();
    EXPECT_EQ(record.twin->deviations.size(), 1u);
    return record.twin->deviations.empty() ? TwinDeviation() : record.twin->deviations[0];
  }

  TemporaryDirectory directory_;
  Case case_;
  Twin twin_;
};

TEST_F(TwinTest, WhatTheFilesHoldIsExpectedAsTheyHoldIt) {
  Add("a", "F32", {4}, kOne);
  Add("b", "F32", {4}, kTwo);
  const OracleRecord record = Consulted();
  EXPECT_EQ(record.twin->held, 2u);
  EXPECT_TRUE(record.twin->deviations.empty());
  EXPECT_TRUE(record.twin->values.empty());
  EXPECT_TRUE(record.twin->unheld.empty());
  EXPECT_EQ(record.declared.size(), 2u);
}

TEST_F(TwinTest, AnotherValueIsADeviationAndIsExpectedFromThenOn) {
  Add("a", "F32", {4}, kTwo);
  const TwinDeviation deviation = Deviation();
  EXPECT_EQ(deviation.tensor, "a");
  EXPECT_EQ(deviation.kind, "differs");
  EXPECT_TRUE(Consulted().twin->values.contains("a"));
}

TEST_F(TwinTest, AnotherShapeIsADeviation) {
  Add("a", "F32", {2, 2}, kOne);
  const TwinDeviation deviation = Deviation();
  EXPECT_EQ(deviation.kind, "shape");
  EXPECT_THAT(deviation.what, HasSubstr("[2, 2] on the plain path, and [4] in the checkpoint"));
}

TEST_F(TwinTest, AKeyThatIsThereAndCalledMissingIsADeviation) {
  twin_.keys.missing = {"a"};
  Add("a", "F32", {4}, kTwo);
  EXPECT_THAT(Deviation().what, HasSubstr("called missing"));
}

TEST_F(TwinTest, AnotherFloatingPointDtypeIsRoundedByTheReader) {
  Add("a", "BF16", {4}, BytesOf<uint16_t>({0x3f80, 0x4000, 0x4040, 0x4080}));
  Add("b", "F64", {4}, BytesOf<double>({5, 6, 7, 8}));
  const OracleRecord record = Consulted();
  EXPECT_TRUE(record.twin->deviations.empty());
  EXPECT_EQ(record.source.tensors.at("a").dtype, "BF16");
  EXPECT_EQ(record.source.tensors.at("b").bytes.at(0).bytes, BytesOf<double>({5, 6, 7, 8}));
}

TEST_F(TwinTest, PiecesAreReadAndHeldAgainstTheTwin) {
  twin_.says.pieces["ab"] = {{"b", 1, 3}, {"a", 0, 4}};
  Add("ab", "F32", {7}, kTwo.substr(4) + kOne);
  const OracleRecord record = Consulted();
  EXPECT_TRUE(record.twin->deviations.empty());
  EXPECT_EQ(record.twin->held, 1u);
  EXPECT_THAT(record.source.tensors.at("ab").keys, ElementsAre("b", "a"));
  EXPECT_EQ(record.source.tensors.size(), 1u);  // its keys are no tensors of their own any more
}

TEST_F(TwinTest, AWrongClaimOfPiecesIsADeviation) {
  twin_.says.pieces["ab"] = {{"a", 0, 4}, {"b", 0, 4}};
  Add("ab", "F32", {8}, kTwo + kOne);
  EXPECT_EQ(Deviation().tensor, "ab");
}

TEST_F(TwinTest, PiecesThatAreNotThereMakeNothing) {
  Add("x", "F32", {4}, kOne);
  for (const std::vector<StoredPiece>& pieces :
       {std::vector<StoredPiece>{{"c", 0, 4}}, {{"a", 0, 3}}, {{"a", 1, 4}}, {{"a", ~0ull, 4}}}) {
    twin_.says.pieces["x"] = pieces;
    const OracleRecord record = Consulted();
    EXPECT_THAT(record.twin->unheld, ElementsAre("x"));
    EXPECT_TRUE(record.twin->values.contains("x"));
  }
}

TEST_F(TwinTest, NothingIsExpectedOfWhatIsMissing) {
  twin_.keys.missing = {"c"};
  Add("c", "F32", {4}, kOne);
  const OracleRecord record = Consulted();
  EXPECT_TRUE(record.twin->values.empty());
  EXPECT_TRUE(record.twin->unheld.empty());
}

TEST_F(TwinTest, ABufferThatNoCheckpointHoldsIsExpectedAsTheTwinHasIt) {
  Add("scale", "F32", {4}, kOne, "buffer", false);
  Add("a", "F32", {4}, kTwo, "buffer", false);  // a key of its name says nothing of it
  const OracleRecord record = Consulted();
  EXPECT_EQ(record.twin->values.size(), 2u);
  EXPECT_TRUE(record.twin->deviations.empty());
}

TEST_F(TwinTest, ABufferThatNobodyHasFilledIsADeviation) {
  Add("scale", "F32", {1}, BytesOf<uint32_t>({0xffffffff}), "buffer", false);
  EXPECT_EQ(Deviation().kind, "nan");
  EXPECT_TRUE(Consulted().twin->values.empty());
}

TEST_F(TwinTest, ATiedNameIsHeldAgainstTheOtherOnesKey) {
  Add("a", "F32", {4}, kOne);
  Add("head", "F32", {4}, kOne);
  twin_.model.ties = {{"a", "head"}};
  const OracleRecord record = Consulted();
  EXPECT_TRUE(record.twin->unheld.empty());
  EXPECT_EQ(record.twin->held, 2u);
}

TEST_F(TwinTest, WhatAFrameworkAddsIsDeclaredOnlyIfTheFilesAreAskedForIt) {
  Add("a", "F32", {4}, kOne);
  Add("lora", "F32", {4}, kTwo);
  twin_.added = {"a", "lora"};
  EXPECT_THAT(Consulted().declared, UnorderedElementsAre(Key("a")));
  twin_.keys.missing = {"lora"};
  EXPECT_THAT(Consulted().declared, UnorderedElementsAre(Key("a"), Key("lora")));
}

TEST(TwinFromTest, ATwinThatSaysWhyItIsNoneIsQuoted) {
  RankEvidence rank;
  rank.errors = {{"subject", "start", "D has no config.json: expected --model", "CannotBuild"}};
  EXPECT_EQ(TwinFrom(rank).error().message, "D has no config.json: expected --model");
  rank.errors.clear();
  rank.exit = "signal 9";
  EXPECT_THAT(TwinFrom(rank).error().message, HasSubstr("it ended (signal 9) before"));
  rank.exit = "hang";
  rank.damage = "twin/rank_0.facts.jsonl: No such file or directory";
  EXPECT_THAT(TwinFrom(rank).error().message, HasSubstr("no progress until the deadline, before"));
}

}  // namespace
}  // namespace shardproof::oracle
