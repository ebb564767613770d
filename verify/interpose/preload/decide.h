// Which rules strike a call, and what they do to it.
#pragma once

#include <array>

#include "verify/interpose/preload/facts.h"
#include "verify/interpose/rule.h"

namespace shardproof::interpose {

/// What is done to one call; several rules may strike it.
struct Acts {
  int error = 0;       ///< returned instead of calling; 0: none
  bool drops = false;  ///< success is
  int64_t delay_ms = 0;
  bool hangs = false;
  int64_t hang_s = 0;  ///< 0: for ever
  int flips = 0;       ///< so many of `flipping`
  std::array<const Rule*, kRulesMax> flipping;
};

/// Whether calls of a function have to be looked at: a rule names it, or one needs what it says.
extern bool watched[kFunctions];

/// The rules that strike this call, each on record when this returns.
Acts Decide(Function function, const Facts& facts);

/// What is done before the call, or instead of it.
void Delay(const Acts& acts);

/// The errno of a rule that strikes this call of libfiu's point; 0: none does.
int DecidePoint(const char* point);

/// The communicator reports this error from now on; forgets it. `code` is 0 if it has none.
bool Break(void* comm, int code);
int BrokenBy(void* comm);
void Forget(void* comm);

}  // namespace shardproof::interpose
