// What self-registering things with an id share: sorted, unique, found by id.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/core/check.h"
#include "src/core/result.h"

namespace shardproof {

template <typename Entry>
class Registry {
 public:
  explicit Registry(std::string noun) : noun_(std::move(noun)) {}

  void Add(Entry entry) {
    const auto place = std::lower_bound(entries_.begin(), entries_.end(), entry,
                                        [](const Entry& a, const Entry& b) { return a.id < b.id; });
    SP_CHECK(place == entries_.end() || place->id != entry.id, "%s '%s' is registered twice",
             noun_.c_str(), entry.id.c_str());
    entries_.insert(place, std::move(entry));
  }

  const std::vector<Entry>& All() const { return entries_; }

  Result<Entry> Find(const std::string& id) const {
    std::string known;
    for (const Entry& entry : entries_) {
      if (entry.id == id) return entry;
      known += (known.empty() ? "" : ", ") + entry.id;
    }
    return BadInput(fmt::format("{} '{}' is unknown: known are {}", noun_, id, known));
  }

 private:
  std::string noun_;
  std::vector<Entry> entries_;
};

}  // namespace shardproof
