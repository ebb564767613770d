// Keys of what a training loop keeps beside the optimizer: in Model::loop, and in what is saved.
#pragma once

#include <string_view>

namespace shardproof {

inline constexpr const char* kSamplerPosition = "sampler.position";     ///< I64: samples read
inline constexpr const char* kLossScale = "scaler.scale";               ///< F32
inline constexpr const char* kGrowthTracker = "scaler.growth_tracker";  ///< I64: steps since

inline bool IsLoopKey(std::string_view key) {
  return key == kSamplerPosition || key == kLossScale || key == kGrowthTracker;
}

}  // namespace shardproof
