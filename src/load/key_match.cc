#include "src/load/key_match.h"

#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace shardproof {

Result<KeyMatch> MatchKeys(const Model& model, const Source& source) {
  KeyMatch match;
  std::set<std::string> known;
  for (const auto& slot : model.Slots()) {
    if (!slot->spec.persistent) continue;
    const SourceTensor* found = nullptr;
    for (const std::string& name : slot->names) {
      const auto entry = source.tensors.find(name);
      if (entry == source.tensors.end()) continue;
      known.insert(name);
      if (entry->second.shape != slot->spec.shape) {
        return BadInput(fmt::format("tensor '{}': the checkpoint has shape [{}], the model [{}]",
                                    name, fmt::join(entry->second.shape, ", "),
                                    fmt::join(slot->spec.shape, ", ")));
      }
      if (found != nullptr) continue;
      found = &entry->second;
      match.loads.emplace_back(slot, name);
    }
    if (found == nullptr) match.missing.push_back(slot);
  }
  for (const auto& [name, tensor] : source.tensors) {
    if (!known.contains(name)) match.unexpected.push_back(name);
  }
  return match;
}

}  // namespace shardproof
