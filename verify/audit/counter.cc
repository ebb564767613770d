#include "verify/audit/counter.h"

#include <algorithm>

#include "verify/oracle/header.h"
#include "verify/oracle/json.h"

namespace shardproof {
namespace {

constexpr uint64_t kTrainerStateBytesMax = 256u << 20;

bool IsNumber(const std::string& text) {
  return !text.empty() && text.size() < 19 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

std::string OfTrainerState(const std::string& directory) {
  simdjson::dom::parser parser;
  const auto state =
      oracle::FindJson(parser, directory + "/trainer_state.json", kTrainerStateBytesMax);
  int64_t step = -1;
  if (!state || (*state)["global_step"].get(step) || step < 0) return "";
  return std::to_string(step);
}

std::string OfValues(const std::vector<AuditedValue>& values) {
  for (const char* name : {"global_step", "iteration", "global_steps", "step", "train_state.step",
                           "trainer_state.global_step"}) {
    // Before it there may be the name of one of several files.
    const auto found = std::find_if(values.begin(), values.end(), [&](const AuditedValue& value) {
      return value.name.substr(value.name.rfind('/') + 1) == name;
    });
    if (found != values.end() && IsNumber(found->text)) return found->text;
  }
  return "";
}

}  // namespace

std::string CounterOf(const AuditResult& audited) {
  if (std::string step = OfTrainerState(audited.path); !step.empty()) return step;
  if (std::string step = OfValues(audited.values); !step.empty()) return step;
  for (const FileBeside& file : audited.beside) {
    if (std::string step = OfValues(file.values); !step.empty()) return step;
  }
  return "";
}

}  // namespace shardproof
