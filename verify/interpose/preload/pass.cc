#include "verify/interpose/preload/pass.h"

#include <nccl.h>
#include <stdio.h>

#include "verify/interpose/preload/flip.h"
#include "verify/interpose/preload/log.h"

namespace shardproof::interpose {
namespace {

constexpr int kSuccess = 0;  // of CUDA and of NCCL

bool HasBegun(Function function, int result) {
  const bool is_nccl = InfoOf(function).family == Family::kNccl;
  return result == kSuccess || (is_nccl && result == ncclInProgress);
}

void FlipAll(Function function, const Facts& facts, const Acts& acts, int result) {
  for (int i = 0; i < acts.flips; ++i) {
    const Rule& rule = *acts.flipping[static_cast<size_t>(i)];
    if (!HasBegun(function, result)) {
      char why[64];
      ::snprintf(why, sizeof why, "the call itself returned %d", result);
      LogUndone(rule, why);
    } else if (facts.comm != nullptr && InGroup()) {
      FlipAfterGroup(rule, facts);
    } else {
      Flip(rule, facts);
    }
  }
}

}  // namespace

int After(Function function, const Facts& facts, const Acts& acts, int result) {
  FlipAll(function, facts, acts, result);
  if (function == Function::ncclGroupStart && result == kSuccess) GroupBegun();
  if (function == Function::ncclGroupEnd) GroupEnded();
  if (function == Function::ncclCommDestroy || function == Function::ncclCommAbort) {
    Forget(facts.comm);
  }
  if (function == Function::ncclCommGetAsyncError && result == kSuccess &&
      *facts.async_error == ncclSuccess) {
    *facts.async_error = BrokenBy(facts.comm);
  }
  return result;
}

}  // namespace shardproof::interpose
