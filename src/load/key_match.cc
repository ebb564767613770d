#include "src/load/key_match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "src/aten/dtype.h"

namespace shardproof {
namespace {

class Matcher {
 public:
  explicit Matcher(const Source& source) : source_(source) {}

  Status Add(const std::shared_ptr<Slot>& slot) {
    if (!slot->spec.persistent) return Ok();
    SP_ASSIGN(const std::optional<std::vector<StoredKey>> way, WayOf(*slot));
    if (way) {
      slot->saved_as = *way;
      SP_TRY(Take(slot, *way));
    }
    bool found = way.has_value();
    for (const std::string& name : slot->names) {
      if (!source_.tensors.contains(name) || (way && name == slot->spec.name)) continue;
      SP_TRY(Check(*slot, {name, slot->spec.shape}));
      known_.insert(name);
      if (!found) match_.loads.push_back({slot, {{name, 0, source_.tensors.at(name).length}}});
      if (!found && name == slot->spec.name) slot->saved_as.clear();
      found = true;
    }
    if (!found) match_.missing.push_back(slot);
    return Ok();
  }

  KeyMatch Finish() {
    for (const auto& [name, tensor] : source_.tensors) {
      if (!known_.contains(name)) match_.unexpected.push_back(name);
    }
    return std::move(match_);
  }

 private:
  /// The first way that the source has whole; none if it has nothing of any.
  Result<std::optional<std::vector<StoredKey>>> WayOf(const Slot& slot) const {
    const auto present = [&](const StoredKey& part) { return source_.tensors.contains(part.key); };
    std::optional<std::string> gap;
    for (const auto& way : slot.spec.stored) {
      const auto count = std::count_if(way.begin(), way.end(), present);
      if (count == static_cast<int64_t>(way.size())) return std::optional(way);
      if (count == 0 || gap) continue;
      gap = fmt::format("tensor '{}': the checkpoint has {} of its {} keys, and lacks '{}'",
                        slot.spec.name, count, way.size(),
                        std::find_if_not(way.begin(), way.end(), present)->key);
    }
    const bool own = std::any_of(slot.names.begin(), slot.names.end(),
                                 [&](const auto& name) { return source_.tensors.contains(name); });
    if (gap && !own) return BadInput(*gap);
    return std::optional<std::vector<StoredKey>>();
  }

  Status Check(const Slot& slot, const StoredKey& part) const {
    const SourceTensor& tensor = source_.tensors.at(part.key);
    if (tensor.shape != part.shape) {
      return BadInput(fmt::format("tensor '{}': the checkpoint has shape [{}], the model [{}]",
                                  part.key, fmt::join(tensor.shape, ", "),
                                  fmt::join(part.shape, ", ")));
    }
    if (tensor.dtype == slot.spec.dtype) return Ok();
    return BadInput(fmt::format("tensor '{}': the checkpoint has dtype {}, the rest of '{}' is {}",
                                part.key, DtypeName(tensor.dtype), slot.spec.name,
                                DtypeName(slot.spec.dtype)));
  }

  Status Take(const std::shared_ptr<Slot>& slot, const std::vector<StoredKey>& way) {
    SlotKeys& load = match_.loads.emplace_back(SlotKeys{slot, {}});
    uint64_t start = 0;
    for (const StoredKey& part : way) {
      SP_TRY(Check(*slot, part));
      known_.insert(part.key);
      const uint64_t length = source_.tensors.at(part.key).length;
      load.parts.push_back({part.key, start, length});
      start += length;
    }
    return Ok();
  }

  const Source& source_;
  std::set<std::string> known_;
  KeyMatch match_;
};

}  // namespace

Result<KeyMatch> MatchKeys(const Model& model, const Source& source) {
  Matcher matcher(source);
  for (const auto& slot : model.Slots()) SP_TRY(matcher.Add(slot));
  return matcher.Finish();
}

}  // namespace shardproof
