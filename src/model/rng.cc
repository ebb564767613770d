#include "src/model/rng.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "src/aten/torch_try.h"
#include "src/numeric/mix.h"

namespace shardproof {
namespace {

constexpr std::string_view kKeyPrefix = "rng_";

std::shared_ptr<Slot> SlotOf(int64_t bytes) {
  return std::make_shared<Slot>(TensorSpec{.name = "rng",
                                           .kind = TensorKind::kBuffer,
                                           .dtype = at::kByte,
                                           .shape = {bytes},
                                           .requires_grad = false});
}

}  // namespace

at::Generator MakeRng(uint64_t seed, int64_t rank) {
  return at::detail::createCPUGenerator(Mix(Mix(seed) ^ static_cast<uint64_t>(rank)));
}

void DrawForStep(at::Generator& rng) { at::check_generator<at::CPUGeneratorImpl>(rng)->random64(); }

std::string RngKey(int64_t rank) { return std::string(kKeyPrefix) + std::to_string(rank); }

bool IsRngKey(std::string_view key) {
  return key.starts_with(kKeyPrefix) &&
         key.find_first_not_of("0123456789", kKeyPrefix.size()) == key.npos;
}

std::shared_ptr<Slot> RngSlot() {
  static const int64_t bytes = at::detail::createCPUGenerator(0).get_state().numel();
  return SlotOf(bytes);
}

std::shared_ptr<Slot> StateOfRng(const at::Generator& rng) {
  auto slot = RngSlot();
  slot->value = rng.get_state();
  slot->content = SlotContent::kDefined;
  return slot;
}

Status RestoreRng(const std::vector<std::byte>& state, at::Generator& rng) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(state.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), state.data(), state.size());
  return TorchTry(ErrorCode::kBadInput, "restoring the random number generator", [&] {
    rng.set_state(bytes);
    return Unit{};
  });
}

}  // namespace shardproof
