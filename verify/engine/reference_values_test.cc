// Values that no checkpoint holds: the reference pipeline against the independent oracle.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "src/aten/dtype.h"
#include "src/load/load.h"
#include "src/model/initial_value.h"
#include "verify/oracle/oracle.h"

namespace shardproof {
namespace {

std::string BytesOf(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return flat.nbytes() == 0
             ? ""
             : std::string(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
}

constexpr const char* kDtypes[] = {"F32", "BF16", "F16", "F64", "F8_E4M3", "F8_E5M2", "I64", "I32",
                                   "I16", "I8",   "U64", "U32", "U16",     "U8",      "BOOL"};

Slot SlotOf(const std::string& dtype, const std::vector<int64_t>& shape, InitialValue init) {
  Slot slot(
      {.name = "model.layers.3.w", .dtype = *DtypeFromName(dtype), .shape = shape, .init = init});
  return slot;
}

TEST(FillInitialValue, IsTheOraclesToTheBitForEveryDtypeAndInit) {
  const std::vector<std::pair<InitialValue, std::string>> inits = {
      {InitialValue::kUniform, "uniform"},
      {InitialValue::kOnes, "ones"},
      {InitialValue::kZeros, "zeros"}};
  for (const char* dtype : kDtypes) {
    for (const auto& [init, name] : inits) {
      for (const std::vector<int64_t>& shape :
           {std::vector<int64_t>{}, {5}, {3, 3001}, {0, 2}, {2, 1, 3}}) {
        for (const double scale : {0.02 * std::sqrt(3.0), 1.0, 1e-4, 300.0}) {
          Slot slot = SlotOf(dtype, shape, init);
          slot.value = at::empty(shape, at::TensorOptions().dtype(slot.spec.dtype));
          if (slot.value.nbytes() > 0) {
            std::memset(slot.value.mutable_data_ptr(), 0xff, slot.value.nbytes());
          }
          FillInitialValue(slot, 42, scale);
          EXPECT_EQ(slot.content, SlotContent::kDefined);
          ASSERT_TRUE(BytesOf(slot.value) ==
                      oracle::InitialBytes(42, slot.spec.name, dtype, shape, name, scale))
              << dtype << " " << name << " " << testing::PrintToString(shape) << " " << scale;
        }
      }
    }
  }
}

TEST(FillInitialValue, AShardIsTheSliceOfTheWhole) {
  const std::vector<int64_t> shape = {7, 1300, 3};
  for (const char* dtype : {"F32", "BF16", "I64", "BOOL"}) {
    Slot whole = SlotOf(dtype, shape, InitialValue::kUniform);
    whole.value = at::empty(shape, at::TensorOptions().dtype(whole.spec.dtype));
    FillInitialValue(whole, 9, 1.0);
    for (int64_t dim = 0; dim < 3; ++dim) {
      for (const int64_t ranks : {2, 3, 8}) {
        for (int64_t rank = 0; rank < ranks; ++rank) {
          Slot part = SlotOf(dtype, shape, InitialValue::kUniform);
          part.shard = ShardOf(shape, {Placement::Shard(dim)}, {{{"dp_shard", ranks}}}, {rank});
          part.value =
              at::empty(part.shard.local_shape, at::TensorOptions().dtype(part.spec.dtype));
          FillInitialValue(part, 9, 1.0);
          const IndexRange range = ChunkOf(shape[dim], ranks, rank);
          ASSERT_TRUE(BytesOf(part.value) ==
                      BytesOf(whole.value.slice(dim, range.begin, range.end)))
              << dtype << " dim " << dim << " rank " << rank << " of " << ranks;
        }
      }
    }
  }
}

TEST(FillInitialValue, DependsOnSeedAndName) {
  const auto bytes = [](uint64_t seed, const std::string& name) {
    Slot slot({.name = name, .shape = {64}});
    slot.value = at::empty({64}, at::kFloat);
    FillInitialValue(slot, seed, 1.0);
    return BytesOf(slot.value);
  };
  EXPECT_EQ(bytes(1, "a"), bytes(1, "a"));
  EXPECT_NE(bytes(1, "a"), bytes(2, "a"));
  EXPECT_NE(bytes(1, "a"), bytes(1, "b"));
}

TEST(ComputeBuffers, InverseFrequenciesAreTheFormulasToTwoUlp) {
  for (const double theta : {1.5, 10000.0, 500000.0, 1000000.0, 12345.678}) {
    for (const int64_t dim : {2, 6, 64, 80, 128, 256}) {
      auto model = BuildOnMeta({.tensors = {{.name = "rope",
                                             .kind = TensorKind::kBuffer,
                                             .persistent = false,
                                             .shape = {dim / 2},
                                             .rope = RopeSpec{.theta = theta}}}},
                               0, *MakeHostDevice());
      ASSERT_TRUE(model.ok());
      const auto slot = model.value().Slots()[0];
      slot->value = at::full({dim / 2}, std::nanf(""));
      World world;
      ASSERT_TRUE(ComputeBuffers(model.value(), Job{}, world).ok());
      EXPECT_EQ(slot->content, SlotContent::kDefined);
      // As Transformers writes it.
      const at::Tensor library =
          1.0 / at::pow(theta, at::arange(0, dim, 2, at::kLong).to(at::kFloat) / dim);
      EXPECT_EQ(BytesOf(slot->value), BytesOf(library)) << theta << " " << dim;
      const std::vector<float> expected = oracle::DefaultInverseFrequencies(theta, dim);
      ASSERT_EQ(expected.size(), static_cast<size_t>(dim / 2));
      for (size_t i = 0; i < expected.size(); ++i) {
        const float seen = slot->value.const_data_ptr<float>()[i];
        int32_t bits[2];
        std::memcpy(bits, &seen, 4);
        std::memcpy(bits + 1, &expected[i], 4);
        EXPECT_LE(std::abs(bits[0] - bits[1]), 2) << theta << " " << dim << " " << i;
      }
    }
  }
}

TEST(ComputeBuffers, LeavesPersistentAndDefinedBuffersAlone) {
  ModelSpec spec;
  for (const char* name : {"loaded", "made", "plain"}) {
    spec.tensors.push_back({.name = name, .kind = TensorKind::kBuffer, .shape = {3}});
  }
  spec.tensors[1].persistent = false;
  spec.tensors[2].persistent = false;
  spec.tensors[2].init = InitialValue::kOnes;
  auto model = BuildOnMeta(spec, 0, *MakeHostDevice());
  ASSERT_TRUE(model.ok());
  const auto slots = model.value().Slots();
  for (const auto& slot : slots) slot->value = at::full({3}, 42.0f);
  slots[1]->content = SlotContent::kDefined;
  World world;
  ASSERT_TRUE(ComputeBuffers(model.value(), Job{}, world).ok());
  EXPECT_TRUE(at::equal(slots[0]->value, at::full({3}, 42.0f)));
  EXPECT_TRUE(at::equal(slots[1]->value, at::full({3}, 42.0f)));
  EXPECT_TRUE(at::equal(slots[2]->value, at::ones({3})));
  EXPECT_NE(slots[0]->content, SlotContent::kDefined);
}

}  // namespace
}  // namespace shardproof
