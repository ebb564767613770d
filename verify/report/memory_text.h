// The memory of a job's ranks and nodes in a report: as text, and in the JSON document.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "verify/verdict/memory.h"

namespace shardproof {

/// Lines for a terminal: a table of at most 100 columns, then what was retained, where the job was
/// at its peak, and who held what. Empty if nothing was recorded. Lines that are no table's are
/// wrapped at `width` columns (0: never).
std::string MemoryText(const std::vector<StageMemory>& stages, int width);

/// One line: what loading needed on each rank, or of many on those that needed least and most.
std::string LoadingText(const std::vector<LoadingMemory>& ranks);

nlohmann::json LoadingToJson(const std::vector<LoadingMemory>& ranks);
nlohmann::json MemoryToJson(const std::vector<StageMemory>& stages);

/// A tensor that is neither the model's nor its optimizer's nor a gradient is told of as retained
/// if such tensors come to this much and to a part of what the model has. Bytes.
inline constexpr uint64_t kRetainedBytesMin = 16 << 20;
inline constexpr uint64_t kRetainedPart = 16;

}  // namespace shardproof
