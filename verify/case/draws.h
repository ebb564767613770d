// What rows of the tables of fields share: how a field is drawn, in short.
#pragma once

#include <utility>
#include <vector>

#include "verify/case/field.h"

namespace shardproof {

inline constexpr uint64_t kStepsMax = 10000;

inline FieldDraw Flag(int percent) { return {.how = FieldDraw::How::kFlag, .percent = percent}; }

inline FieldDraw Sometimes(int percent, std::vector<FieldDraw::Value> values) {
  return {.how = FieldDraw::How::kValue, .percent = percent, .values = std::move(values)};
}

inline const FieldDraw kByHand = {.how = FieldDraw::How::kByHand};

}  // namespace shardproof
