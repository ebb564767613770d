// What a seed chooses, where more than one way is right.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "verify/oracle/digest_scalar.h"

namespace shardproof::oracle {

/// The same choices from the same seed, on every rank.
class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}

  /// \pre count > 0.
  uint64_t Below(uint64_t count) { return (state_ = Mix(state_ + kStep)) % count; }
  bool Flag() { return Below(2) == 1; }
  /// Puts the items into another order.
  template <typename Item>
  void Shuffle(std::vector<Item>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[Below(i)]);
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

  uint64_t state_;
};

}  // namespace shardproof::oracle
