#include "verify/case/axes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace shardproof {
namespace {

/// Whether the axis is laid over this one of the world's.
bool IsOver(const AxisCase& axis, const AxisCase& below) {
  return std::find(axis.over.begin(), axis.over.end(), below.name) != axis.over.end();
}

std::vector<AxisCase> Those(const std::vector<AxisCase>& mesh, bool laid_over) {
  std::vector<AxisCase> axes;
  for (const AxisCase& axis : mesh) {
    if (axis.over.empty() != laid_over) axes.push_back(axis);
  }
  return axes;
}

std::vector<std::string> NamesOf(const std::vector<AxisCase>& axes) {
  std::vector<std::string> names;
  for (const AxisCase& axis : axes) names.push_back(axis.name);
  return names;
}

/// What is wrong with the axes that this one is said to be laid over.
std::string FaultBelow(const std::vector<AxisCase>& mesh, const AxisCase& axis) {
  const std::vector<std::string> world = NamesOf(WorldAxes(mesh));
  std::set<std::string> seen;
  for (const std::string& name : axis.over) {
    if (name == axis.name) return fmt::format("axis {} is laid over itself", axis.name);
    if (!seen.insert(name).second) {
      return fmt::format("axis {} is laid over {} twice", axis.name, name);
    }
    if (std::find(world.begin(), world.end(), name) != world.end()) continue;
    const std::vector<std::string> all = NamesOf(mesh);
    const bool is_laid = std::find(all.begin(), all.end(), name) != all.end();
    const std::string expected = world.empty()
                                     ? "the mesh has none that multiplies the world"
                                     : fmt::format("expected one of {}", fmt::join(world, ", "));
    return fmt::format("axis {} is laid over {}, which is {}: {}", axis.name, name,
                       is_laid ? "laid over others itself" : "no axis of the mesh", expected);
  }
  return "";
}

}  // namespace

std::vector<AxisCase> WorldAxes(const std::vector<AxisCase>& mesh) { return Those(mesh, false); }

std::vector<AxisCase> LaidOver(const std::vector<AxisCase>& mesh) { return Those(mesh, true); }

int64_t RanksOf(const std::vector<AxisCase>& mesh) {
  int64_t ranks = 1;
  for (const AxisCase& axis : mesh) {
    if (axis.over.empty() && __builtin_mul_overflow(ranks, axis.size, &ranks)) return 0;
  }
  return ranks;
}

AxisCase RestOf(const std::vector<AxisCase>& world, const AxisCase& axis) {
  AxisCase rest;
  for (const AxisCase& below : world) {
    if (!IsOver(axis, below)) continue;
    rest.name += below.name + "_";
    rest.size *= below.size;
  }
  rest.name += "mod_" + axis.name;
  rest.size /= axis.size;
  return rest;
}

std::pair<int64_t, int64_t> CoordinatesOver(const std::vector<AxisCase>& world,
                                            const std::vector<int64_t>& coordinates,
                                            const AxisCase& axis) {
  int64_t place = 0;
  for (size_t i = 0; i < std::min(world.size(), coordinates.size()); ++i) {
    if (IsOver(axis, world[i])) place = place * world[i].size + coordinates[i];
  }
  return {place / axis.size, place % axis.size};
}

std::string MeshText(const std::vector<AxisCase>& mesh) {
  std::string text;
  for (const AxisCase& axis : WorldAxes(mesh)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.name, axis.size);
  }
  for (const AxisCase& axis : LaidOver(mesh)) {
    text += fmt::format(", {} {} over {}", axis.name, axis.size, fmt::join(axis.over, " and "));
  }
  return text;
}

std::string AxisFault(const std::vector<AxisCase>& mesh, const AxisCase& axis) {
  if (axis.over.empty()) return "";
  if (const std::string fault = FaultBelow(mesh, axis); !fault.empty()) return fault;
  const std::vector<AxisCase> world = WorldAxes(mesh);
  int64_t below = 1;
  for (const AxisCase& each : world) {
    if (IsOver(axis, each) && __builtin_mul_overflow(below, each.size, &below)) {
      return fmt::format("axis {} is laid over more ranks than can be counted", axis.name);
    }
  }
  if (axis.size < 1 || below % axis.size != 0) {
    return fmt::format("axis {}: expected a size that divides the {} ranks of {}, found {}",
                       axis.name, below, fmt::join(axis.over, " and "), axis.size);
  }
  const std::string rest = RestOf(world, axis).name;
  for (const AxisCase& each : mesh) {
    if (each.name != rest) continue;
    return fmt::format("axis {} has the name of what axis {} leaves of {}", rest, axis.name,
                       fmt::join(axis.over, " and "));
  }
  return "";
}

}  // namespace shardproof
