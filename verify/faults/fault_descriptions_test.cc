#include "verify/fault/fault_descriptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace shardproof {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

/// Two ranks, and a buffer.
Case TwoRanks() {
  Case made;
  made.mesh = {{"dp_shard", 2}};
  made.steps = 3;
  return made;
}

struct Said {
  FaultCase fault;
  std::string words;
};

const std::vector<Said>& SaidOfAll() {
  static const std::vector<Said> all = {
      {{"file/enospc", "2:1"},
       "on rank 1, the third write to a file and all after it fail with ENOSPC: No space left on "
       "device"},
      {{"file/edquot", "0"},
       "on rank 1, the first write to a file and all after it fail with EDQUOT: Disk quota "
       "exceeded"},
      {{"file/eio", "what=norm.weight,rank=all,bytes=64,stage=saved"},
       "on every rank, the first write to a file, of those of at least 64 bytes, of those with "
       "'norm.weight' in their name, of those on the way to `saved`, fails with EIO: Input/output "
       "error"},
      {{"file/short", "0:0"},
       "on rank 0, the first write to a file fails with ENOSPC: No space left on device, when its "
       "first half is done"},
      {{"file/fsync", "11:0"},
       "on rank 0, the 12th sync of a file or directory fails with EIO: Input/output error, and "
       "what "
       "it was to make durable is lost"},
      {{"file/map", "0:0"},
       "on rank 0, the first mapping of a file fails with ENOMEM: Cannot allocate memory"},
      {{"file/read", "1:0"},
       "on rank 0, the second read of a small file fails with EIO: Input/output error"},
      {{"file/read-only", "0:0"},
       "on rank 0, the first attempt to make or change a file and all after it fail with EROFS: "
       "Read-only file system"},
      {{"file/rename", "0:0"},
       "on rank 0, the first rename and all after it fail with EIO: Input/output error"},
      {{"file/slow", "0:0"},
       "on rank 0, the first write to or sync of a file and all after it take 20 ms longer"},
      {{"file/flip", "model.norm.weight:5"},
       "the lowest bit of element 5 of model.norm.weight is flipped on its way from the file"},
      {{"file/rot", "1000"},
       "of the newest saved checkpoint, the lowest bit of the 1001st byte of all its tensors is "
       "flipped when it is restored"},
      {{"memory/tensor", "what=norm.weight,rank=0"},
       "on rank 0, the first allocation of a tensor or of what tensors travel through, of those "
       "with "
       "'norm.weight' in their name, fails with ENOMEM: Cannot allocate memory"},
      {{"memory/pinned", "3:0"},
       "on rank 0, the fourth allocation of the host's memory that side streams reach and all "
       "after it "
       "fail with ENOMEM: Cannot allocate memory"},
      {{"memory/device", "4096:1"}, "the device of rank 1 has 4096 bytes of memory, and no more"},
      {{"rank/kill", "1@sharded"}, "rank 1 is killed when it has reached stage `sharded`"},
      {{"rank/leave", "0@#12"},
       "rank 0 ends early, as if all were well, before its 13th collective"},
      {{"rank/stop", "1@stepped@2"},
       "rank 1 stops and never answers again, when it has reached stage `stepped` of step 2"},
      {{"rank/slow", "1@ready"},
       "rank 1 does nothing for 300 ms when it has reached stage `ready`"},
      {{"net/reset", "1@ready"},
       "rank 1 has all of its connections reset when it has reached stage `ready`"},
      {{"net/blackhole", "0@#3"},
       "rank 0 is cut off, none of its packets arriving any more, before its fourth collective"},
      {{"memory/oom-kill", "1@ready"},
       "rank 1 is killed by the kernel for want of memory when it has reached stage `ready`"},
      {{"memory/new", "120:0"}, "on rank 0, the 121st allocation that is for no tensor fails"},
      {{"store/gone", "0@sharded"},
       "rank 0 loses the store that all ranks met by, when it has reached stage `sharded`"},
      {{"comm/drop", "2:1"}, "on rank 1, the third collective is left out"},
      {{"comm/mismatch", "0:0"},
       "on rank 0, the first collective is another one there, a sum of 1001 numbers"},
      {{"comm/flip", "0:1"},
       "on rank 1, the first broadcast or scatter that brings it something arrives with the lowest "
       "bit "
       "of its middle byte flipped"},
      {{"comm/swap-rows", "lm_head.weight:1"},
       "two rows of lm_head.weight arrive swapped at rank 1"},
      {{"buffer/nan", "rotary.inv_freq:0"},
       "on rank 0, the elements of rotary.inv_freq become NaN once buffers are computed"},
      {{"nccl/error", "0"}, "on rank 1, the first call of ncclAllReduce returns ncclRemoteError"},
      {{"nccl/init", "0:0"},
       "on rank 0, the first call of ncclCommInitRankConfig returns ncclSystemError"},
      {{"nccl/async-error", "0:0"},
       "on rank 0, the first call of ncclAllReduce has its communicator report ncclRemoteError "
       "from then on"},
      {{"nccl/drop", "what=ncclBroadcast,rank=all"},
       "on every rank, the first call of ncclBroadcast is left out, and returns success"},
      {{"nccl/hang", "3:0"}, "on rank 0, the fourth call of ncclAllReduce does not return"},
      {{"nccl/slow", "0:0"}, "on rank 0, the first call of ncclAllReduce begins 300 ms late"},
      {{"nccl/flip", "0:0"},
       "on rank 0, the first call of ncclAllReduce has the lowest bit of its result flipped"},
      {{"cuda/memory", "bytes=64,rank=0"},
       "on rank 0, the first call of cudaMalloc, of those of at least 64 bytes, and all after it "
       "return cudaErrorMemoryAllocation"},
      {{"cuda/pinned", "0:0"},
       "on rank 0, the first call of cudaHostAlloc returns cudaErrorMemoryAllocation"},
      {{"cuda/copy", "0:0"},
       "on rank 0, the first call of cudaMemcpyAsync returns cudaErrorIllegalAddress"},
      {{"cuda/flip", "0:0"},
       "on rank 0, the first call of cudaMemcpyAsync has the lowest bit of its result flipped"}};
  return all;
}

TEST(FaultWords, EveryFaultOfTheCatalogueIsSaidInPlainWords) {
  std::set<std::string> said, known;
  for (const auto& [fault, words] : SaidOfAll()) {
    EXPECT_EQ(DescribeFault(TwoRanks(), fault), words);
    said.insert(fault.id);
  }
  for (const Fault& fault : AllFaults()) known.insert(fault.id);
  EXPECT_THAT(said, UnorderedElementsAreArray(known));
}

TEST(FaultWords, AWhereThatSaysNothingIsShownAsItIs) {
  EXPECT_THAT(DescribeFault(TwoRanks(), {"rank/kill", "nowhere"}),
              HasSubstr("a rank is killed (nowhere)"));
  EXPECT_EQ(DescribeFault(TwoRanks(), {"no/such", "1"}), "no/such at 1");
  EXPECT_THAT(DescribeFault(TwoRanks(), {"file/eio", "never"}),
              HasSubstr("unless fiu-ctrl has it"));
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
