#include "verify/faults/fault.h"

#include <charconv>

#include <fmt/format.h>

#include "verify/run/registry.h"

namespace shardproof {
namespace {

Registry<Fault>& Faults() {
  static Registry<Fault> faults("fault");
  return faults;
}

/// The name that shares the longest end with `name`: FQNs are most often wrong in the prefix.
std::string Nearest(const std::vector<oracle::TensorLocation>& source, const std::string& name) {
  std::string best;
  size_t best_shared = 0;
  for (const auto& tensor : source) {
    size_t shared = 0;
    while (shared < name.size() && shared < tensor.name.size() &&
           name[name.size() - 1 - shared] == tensor.name[tensor.name.size() - 1 - shared]) {
      ++shared;
    }
    if (shared > best_shared) {
      best_shared = shared;
      best = tensor.name;
    }
  }
  return best;
}

}  // namespace

const std::vector<Fault>& AllFaults() { return Faults().All(); }
Result<Fault> FindFault(const std::string& id) { return Faults().Find(id); }
FaultRegistration::FaultRegistration(Fault fault) { Faults().Add(std::move(fault)); }

Result<TensorAndRest> SplitWhere(const std::vector<oracle::TensorLocation>& source,
                                 const std::string& where) {
  for (const auto& tensor : source) {
    if (tensor.name == where) return TensorAndRest{tensor, ""};
  }
  const size_t colon = where.rfind(':');
  const std::string name = where.substr(0, colon);
  for (const auto& tensor : source) {
    if (tensor.name == name && colon != std::string::npos) {
      return TensorAndRest{tensor, where.substr(colon + 1)};
    }
  }
  const std::string nearest = Nearest(source, name);
  return BadInput(fmt::format("the checkpoint has no tensor '{}'{}", name,
                              nearest.empty() ? "" : ": did you mean '" + nearest + "'?"));
}

Result<int64_t> ParseIndex(const std::string& text, int64_t limit, const std::string& what) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= limit) {
    return BadInput(fmt::format("{} is '{}': expected a whole number from 0 to {}", what, text,
                                limit - 1));
  }
  return value;
}

}  // namespace shardproof
