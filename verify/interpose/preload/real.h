// The libraries behind this one, wherever the program has them from.
#pragma once

#include <atomic>

#include "verify/interpose/rule.h"

namespace shardproof::interpose {

/// A function of the library of this family that the program has loaded; null if it has none yet.
void* Find(Family family, const char* name);

/// What has been found.
extern std::atomic<void*> found[kFunctions];

/// The function itself; null as long as the program has no library with it.
inline void* RealOf(Function function) {
  std::atomic<void*>& place = found[static_cast<int>(function)];
  void* real = place.load(std::memory_order_acquire);
  if (real != nullptr) [[likely]]
    return real;
  real = Find(InfoOf(function).family, InfoOf(function).name);
  if (real != nullptr) place.store(real, std::memory_order_release);
  return real;
}

/// The same, as what it is called as.
template <typename Signature>
Signature* Named(Family family, const char* name) {
  return reinterpret_cast<Signature*>(Find(family, name));
}

/// What a function of this family says when there is no library behind it; says so on stderr once.
int Missing(Function function);

}  // namespace shardproof::interpose
