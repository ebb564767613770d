#include "verify/decorators/late_copies.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <set>

namespace shardproof {
namespace {

at::Tensor Bytes(int64_t value) { return at::full({4}, value, at::kByte); }
int64_t First(const at::Tensor& tensor) { return tensor.data_ptr<uint8_t>()[0]; }

TEST(LateCopies, ReadAndWriteOnlyWhenWaitedFor) {
  const auto device = DelayCopies(MakeHostDevice(), CopyTiming::kWhenWaited, 1);
  const at::Tensor from = Bytes(1);
  const at::Tensor to = Bytes(9);
  const auto copy = device->StartCopy(CopyStream::kToHost, {to, 1}, {from, 0}, 3);
  EXPECT_EQ(to.data_ptr<uint8_t>()[1], 9);
  from.fill_(2);  // too early: it is what arrives
  copy->Wait();
  EXPECT_EQ(First(to), 9);
  EXPECT_EQ(to.data_ptr<uint8_t>()[1], 2);
  EXPECT_EQ(to.data_ptr<uint8_t>()[3], 2);
}

TEST(LateCopies, KeepTheirOrderInAStreamAndHaveNoneAcrossStreams) {
  const auto device = DelayCopies(MakeHostDevice(), CopyTiming::kWhenWaited, 1);
  const at::Tensor to = Bytes(0);
  const at::Tensor other = Bytes(0);
  const auto first = device->StartCopy(CopyStream::kToHost, {to, 0}, {Bytes(1), 0}, 4);
  const auto second = device->StartCopy(CopyStream::kToHost, {to, 0}, {Bytes(2), 0}, 4);
  const auto elsewhere = device->StartCopy(CopyStream::kToDevice, {other, 0}, {Bytes(3), 0}, 4);
  second->Wait();
  EXPECT_EQ(First(to), 2);
  EXPECT_EQ(First(other), 0);
  first->Wait();  // done long ago
  EXPECT_EQ(First(to), 2);
  elsewhere->Wait();
  elsewhere->Wait();
  EXPECT_EQ(First(other), 3);
}

TEST(LateCopies, HappenAtTimesThatTheSeedPicks) {
  const auto run = [](uint64_t seed) {
    const auto device = DelayCopies(MakeHostDevice(), CopyTiming::kSeeded, seed);
    const at::Tensor to = Bytes(0);
    const at::Tensor scratch = Bytes(0);
    const auto copy = device->StartCopy(CopyStream::kToHost, {to, 0}, {Bytes(1), 0}, 4);
    int passed = 0;
    for (; First(to) == 0 && passed < 100; ++passed) {
      device->Copy(scratch.mutable_data_ptr(), scratch.const_data_ptr(), 0);
    }
    EXPECT_EQ(First(to), 1);
    return passed;
  };
  std::set<int> seen;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    EXPECT_EQ(run(seed), run(seed));
    seen.insert(run(seed));
  }
  EXPECT_TRUE(seen.contains(0));  // at once
  EXPECT_GE(seen.size(), 3u);
}

TEST(LateCopies, OfWhatNobodyWaitedForOutliveItsDevice) {
  const at::Tensor to = Bytes(0);
  std::unique_ptr<PendingCopy> copy;
  {
    const auto device = DelayCopies(MakeHostDevice(), CopyTiming::kWhenWaited, 1);
    copy = device->StartCopy(CopyStream::kToHost, {to, 0}, {Bytes(1), 0}, 4);
  }
  EXPECT_EQ(First(to), 0);
  copy->Wait();
  EXPECT_EQ(First(to), 1);
}

}  // namespace
}  // namespace shardproof
