#include "verify/fault/trigger.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "verify/fault/fault.h"

namespace shardproof {
namespace {

constexpr int64_t kCallsMax = int64_t{1} << 32;

Status SetRank(const Case& test_case, const std::string& text, Trigger& trigger) {
  if (text == "all") {
    trigger.rank.reset();
    return Ok();
  }
  SP_ASSIGN(trigger.rank, ParseIndex(text, test_case.WorldSize(), "the rank"));
  return Ok();
}

Status SetField(const Case& test_case, const std::string& key, const std::string& value,
                Trigger& trigger) {
  if (key == "rank") return SetRank(test_case, value, trigger);
  if (key == "call") {
    SP_ASSIGN(trigger.number, ParseIndex(value, kCallsMax, "the call's number"));
  } else if (key == "bytes") {
    SP_ASSIGN(const int64_t bytes,
              ParseIndex(value, std::numeric_limits<int64_t>::max(), "the number of bytes"));
    trigger.bytes_min = static_cast<uint64_t>(bytes);
  } else if (key == "what" && !value.empty()) {
    trigger.what = value;
  } else if (key == "stage") {
    trigger.stage = FindStage(value);
    if (!trigger.stage) {
      return BadInput(fmt::format("stage='{}': expected one of {}", value, ListStages()));
    }
  } else {
    return BadInput(fmt::format(
        "'{}={}': expected call=N, rank=R, what=TEXT, bytes=N or stage=NAME", key, value));
  }
  return Ok();
}

}  // namespace

bool Trigger::Matches(const FaultCall& call, const std::string& at) const {
  return call.bytes >= bytes_min && (what.empty() || call.what.find(what) != std::string::npos) &&
         (!stage || at == *stage);
}

Result<std::optional<Trigger>> ParseTrigger(const Case& test_case, const std::string& where) {
  if (where == kNever) return std::optional<Trigger>();
  Trigger trigger{.rank = test_case.WorldSize() - 1};
  if (where.find('=') == std::string::npos) {
    const size_t colon = where.find(':');
    SP_TRY(SetField(test_case, "call", where.substr(0, colon), trigger));
    if (colon != std::string::npos) SP_TRY(SetRank(test_case, where.substr(colon + 1), trigger));
    return std::optional(trigger);
  }
  std::set<std::string> keys;
  for (size_t begin = 0; begin <= where.size();) {
    const size_t end = std::min(where.find(',', begin), where.size());
    const std::string part = where.substr(begin, end - begin);
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    if (!keys.insert(key).second) return BadInput(fmt::format("'{}' is given twice", key));
    SP_TRY(SetField(test_case, key, equals == std::string::npos ? "" : part.substr(equals + 1),
                    trigger));
    begin = end + 1;
  }
  return std::optional(trigger);
}

}  // namespace shardproof
