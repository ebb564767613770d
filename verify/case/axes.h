// The axes of a mesh: those whose sizes multiply to the world, and those that are laid over some of
// them. `ep` 2 over dp_shard 4 splits that axis in two: dp_shard_mod_ep 2 and, within it, ep 2.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "verify/case/case.h"

namespace shardproof {

/// The axes that are laid over no others.
std::vector<AxisCase> WorldAxes(const std::vector<AxisCase>& mesh);

/// The axes that are.
std::vector<AxisCase> LaidOver(const std::vector<AxisCase>& mesh);

/// The number of ranks; 0 if it overflows.
int64_t RanksOf(const std::vector<AxisCase>& mesh);

/// What an axis that is laid over others leaves of them, by name and size: dp_shard_mod_ep 2.
/// \param world  WorldAxes of its mesh, of which the axis divides those that it names
AxisCase RestOf(const std::vector<AxisCase>& world, const AxisCase& axis);

/// A rank's coordinates on RestOf and on the axis itself.
/// \param coordinates  the rank's, one for each axis of `world`
std::pair<int64_t, int64_t> CoordinatesOver(const std::vector<AxisCase>& world,
                                            const std::vector<int64_t>& coordinates,
                                            const AxisCase& axis);

/// "dp_shard 4 x tp 2, ep 2 over dp_shard"
std::string MeshText(const std::vector<AxisCase>& mesh);

/// What is wrong with one of the axes besides its size, or empty.
std::string AxisFault(const std::vector<AxisCase>& mesh, const AxisCase& axis);

}  // namespace shardproof
