// Where an entry stands in a nested state dict.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace shardproof {

/// The keys that lead to it, of dicts and of lists.
using StatePath = std::vector<std::variant<std::string, int64_t>>;

/// What is no tensor in a state dict.
struct StateValue {
  StatePath path;
  std::string pickle;
};

/// The key at a place, if it is a dict's; else empty.
inline std::string NameAt(const StatePath& path, size_t place) {
  const auto* name = place < path.size() ? std::get_if<std::string>(&path[place]) : nullptr;
  return name == nullptr ? "" : *name;
}

/// The keys joined by dots, as torch.distributed.checkpoint flattens a state dict.
inline std::string FlatKey(const StatePath& path) {
  std::string flat;
  for (const auto& key : path) {
    if (!flat.empty()) flat += '.';
    if (const auto* name = std::get_if<std::string>(&key))
      flat += *name;
    else
      flat += std::to_string(std::get<int64_t>(key));
  }
  return flat;
}

}  // namespace shardproof
