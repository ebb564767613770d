#include "verify/decorators/isolated_device.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace shardproof {
namespace {

TEST(ApartDevice, GivesBackWhatWasCopiedThere) {
  const auto device = MakeApartDevice();
  auto first = device->Allocate({3000}, at::kInt, "first").value();
  auto second = device->Allocate({2000}, at::kInt, "second").value();
  std::vector<int32_t> values(3000);
  std::iota(values.begin(), values.end(), 7);
  device->Copy(first.mutable_data_ptr(), values.data(), 12000);
  // From one place there to another, neither at its beginning.
  device->Copy(static_cast<char*>(second.mutable_data_ptr()) + 400,
               static_cast<const char*>(first.const_data_ptr()) + 4000, 4000);
  std::vector<int32_t> seen(1000);
  device->Copy(seen.data(), static_cast<const char*>(second.const_data_ptr()) + 400, 4000);
  EXPECT_EQ(seen, std::vector<int32_t>(values.begin() + 1000, values.begin() + 2000));
}

TEST(ApartDevice, KnowsItsOwnTensorsAndCountsThem) {
  const auto device = MakeApartDevice();
  EXPECT_FALSE(device->IsHost());
  auto host = MakeHostDevice()->Allocate({5}, at::kFloat, "host").value();
  EXPECT_FALSE(device->Holds(host));
  {
    const auto one = device->Allocate({1000}, at::kByte, "one").value();
    EXPECT_TRUE(device->Holds(one));
    EXPECT_TRUE(device->Holds(one.narrow(0, 500, 10)));
    const auto two = device->Allocate({500}, at::kByte, "two").value();
    EXPECT_EQ(device->Held().now, 1500u);
  }
  const auto three = device->Allocate({700}, at::kByte, "three").value();
  EXPECT_EQ(device->Held().now, 700u);
  EXPECT_EQ(device->Held().peak, 1500u);
  EXPECT_FALSE(device->Holds(device->Allocate({0, 4}, at::kFloat, "empty").value()));
}

TEST(ApartDevice, MemoryOutlivesTheDevice) {
  auto device = MakeApartDevice();
  const auto tensor = device->Allocate({64}, at::kByte, "tensor").value();
  device.reset();
  EXPECT_EQ(tensor.numel(), 64);
}

TEST(ApartDeviceDeathTest, WhoeverReachesInDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto device = MakeApartDevice();
  auto tensor = device->Allocate({64}, at::kByte, "tensor").value();
  EXPECT_DEATH(*static_cast<volatile char*>(tensor.mutable_data_ptr()) = 1, "");
}

}  // namespace
}  // namespace shardproof
