#include "verify/fault/fault_descriptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardproof {
namespace {

using ::testing::HasSubstr;

/// Two ranks, and a buffer.
Case TwoRanks() {
  Case made;
  made.mesh = {{"dp_shard", 2}};
  made.steps = 3;
  return made;
}

TEST(FaultWords, EveryFaultSaysItsExampleInPlainWords) {
  ASSERT_FALSE(AllFaults().empty());
  for (const Fault& fault : AllFaults()) {
    ASSERT_NE(fault.example.words, "") << fault.id;
    EXPECT_EQ(DescribeFault(TwoRanks(), {fault.id, fault.example.where}), fault.example.words);
  }
}

TEST(FaultWords, AWhereThatSaysNothingIsShownAsItIs) {
  EXPECT_THAT(DescribeFault(TwoRanks(), {"rank/kill", "nowhere"}),
              HasSubstr("a rank is killed (nowhere)"));
  EXPECT_EQ(DescribeFault(TwoRanks(), {"no/such", "1"}), "no/such at 1");
  EXPECT_THAT(DescribeFault(TwoRanks(), {"file/eio", "never"}),
              HasSubstr("until fiu-ctrl enables it"));
}

TEST(FaultWords, OrdinalsAreThoseOfEnglish) {
  EXPECT_EQ(Ordinal(1), "first");
  EXPECT_EQ(Ordinal(10), "tenth");
  EXPECT_EQ(Ordinal(11), "11th");
  EXPECT_EQ(Ordinal(22), "22nd");
  EXPECT_EQ(Ordinal(112), "112th");
  EXPECT_EQ(Ordinal(103), "103rd");
}

}  // namespace
}  // namespace shardproof
