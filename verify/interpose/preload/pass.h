// How each function of the table is passed on: what a rule does to it, around the call of the real
// one.
#pragma once

#include "verify/interpose/preload/decide.h"
#include "verify/interpose/preload/facts.h"
#include "verify/interpose/preload/real.h"

namespace shardproof::interpose {

/// What follows a call that was made. \returns what the caller is told, in place of `result`
int After(Function function, const Facts& facts, const Acts& acts, int result);

/// \param describe  makes the Facts, if they are needed
/// \param call      calls the function that it is given
template <typename Signature, typename Describe, typename Call>
auto Pass(Function function, Describe describe, Call call) {
  using Error = decltype(call(static_cast<Signature*>(nullptr)));
  auto* real = reinterpret_cast<Signature*>(RealOf(function));
  if (!watched[static_cast<int>(function)]) [[likely]] {
    return real != nullptr ? call(real) : static_cast<Error>(Missing(function));
  }
  const Facts facts = describe();
  const Acts acts = Decide(function, facts);
  Delay(acts);
  if (acts.error != 0) return static_cast<Error>(acts.error);
  if (acts.drops) return static_cast<Error>(0);
  const int result = real != nullptr ? static_cast<int>(call(real)) : Missing(function);
  return static_cast<Error>(After(function, facts, acts, result));
}

}  // namespace shardproof::interpose
