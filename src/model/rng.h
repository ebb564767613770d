// The random number generator that a rank of a training job has for itself: dropout, the order of
// its data. Nothing here draws what must be alike on all ranks.
#pragma once

#include <ATen/core/Generator.h>

#include <memory>
#include <string>
#include <string_view>

#include "src/model/model.h"

namespace shardproof {

/// One whose stream is this rank's own.
at::Generator MakeRng(uint64_t seed, int64_t rank);

/// What a step draws.
void DrawForStep(at::Generator& rng);

/// What the state of a rank's is saved under, "rng_7"; and whether a key is one of these.
std::string RngKey(int64_t rank);
bool IsRngKey(std::string_view key);

/// A slot for the state of one, U8, as torch.get_rng_state gives it; and one that holds it.
std::shared_ptr<Slot> RngSlot();
std::shared_ptr<Slot> StateOfRng(const at::Generator& rng);

/// Takes the bytes of a state that StateOfRng gave. \error kBadInput if they are no such state.
Status RestoreRng(const std::vector<std::byte>& state, at::Generator& rng);

}  // namespace shardproof
