#include "verify/interpose/rule.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "verify/interpose/rule_words.h"

namespace shardproof::interpose {
namespace {

constexpr FunctionInfo kInfos[] = {
#define CUDA_FUNCTION(name, kind, ...) {#name, Family::kCuda, Kind::kind},
#define DRIVER_FUNCTION(name, kind, ...) {#name, Family::kDriver, Kind::kind},
#define NCCL_FUNCTION(name, kind, ...) {#name, Family::kNccl, Kind::kind},
#include "verify/interpose/functions.inc"
    {"posix", Family::kPosix, Kind::kPosix},
};
static_assert(std::size(kInfos) == kFunctions + 1);

Status SetFunction(std::string_view name, Rule& rule) {
  for (int i = 0; i < kFunctions; ++i) {
    if (name != kInfos[i].name) continue;
    rule.function = static_cast<Function>(i);
    return Ok();
  }
  if (IsPoint(name)) {
    rule.point = std::string(name);
    return Ok();
  }
  return BadInput("the function " + Shown(name) +
                  ": expected one of CUDA or NCCL that verify/interpose/functions.inc has, such as "
                  "cudaMalloc or ncclAllReduce, or a point of libfiu's, such as posix/io/rw/write");
}

/// Whether what the rule does can be done to its function.
Status CheckTogether(const Rule& rule) {
  const FunctionInfo& info = InfoOf(rule.function);
  const std::string name = rule.point.empty() ? info.name : rule.point;
  if (info.kind == Kind::kPosix && (rule.act != Act::kError || rule.bytes_min > 0)) {
    return BadInput(name + ": libfiu's points take error=ERRNO, with call, rank and then-on");
  }
  if (rule.act == Act::kDrop && (info.kind == Kind::kGives || info.kind == Kind::kAsks)) {
    return BadInput(name +
                    " cannot be left out: its caller would go on with what nobody "
                    "has set; error=CODE makes it fail");
  }
  const bool fills = info.kind == Kind::kCopies || info.kind == Kind::kCollective;
  if (rule.act == Act::kFlip && !fills) {
    return BadInput(name + " has no result in which a bit could be flipped");
  }
  const bool has_communicator = info.kind == Kind::kCollective || info.kind == Kind::kSends ||
                                info.kind == Kind::kCommunicator || info.kind == Kind::kAsks;
  if (rule.act == Act::kAsyncError && !has_communicator) {
    return BadInput(name + " is not on a communicator, which an asynchronous error is of");
  }
  return Ok();
}

Status SetWord(std::string_view word, std::set<std::string_view>& keys, bool& has_act, Rule& rule) {
  const size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  std::optional<std::string_view> value;
  if (equals != word.npos) value = word.substr(equals + 1);
  if (!keys.insert(key).second) return BadInput(Shown(key) + " is given twice");
  const std::optional<Act> act = ActNamed(key);
  if (!act) return SetWhen(key, value, rule);
  if (has_act) return BadInput(Shown(key) + " is a second act; a rule has one");
  has_act = true;
  return SetAct(*act, key, value, rule);
}

Result<Rule> ParseRule(std::string_view text) {
  Rule rule;
  rule.text = std::string(text);
  const size_t colon = text.find(':');
  SP_TRY(SetFunction(text.substr(0, colon), rule));
  std::set<std::string_view> keys;
  bool has_act = false;
  for (size_t begin = colon; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin + 1), text.size());
    SP_TRY(SetWord(text.substr(begin + 1, end - begin - 1), keys, has_act, rule));
    begin = end;
  }
  if (!has_act) {
    return BadInput(
        "it does nothing: expected error=CODE, delay=MS, hang, drop, flip=BIT or "
        "async-error=CODE after the function and a colon");
  }
  SP_TRY(CheckTogether(rule));
  return rule;
}

}  // namespace

const FunctionInfo& InfoOf(Function function) { return kInfos[static_cast<int>(function)]; }

Result<std::vector<Rule>> ParseRules(std::string_view text) {
  std::vector<Rule> rules;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    if (part.empty()) {
      return BadInput(
          "a rule is empty: expected FUNCTION:ACT[,WHEN...], such as "
          "ncclAllReduce:call=3,rank=1,drop, and ';' between two");
    }
    Result<Rule> rule = ParseRule(part);
    if (!rule.ok()) return rule.error().While("rule " + Shown(part));
    rules.push_back(std::move(rule).value());
    begin = end + 1;
  }
  if (rules.size() > kRulesMax) {
    return BadInput(std::to_string(rules.size()) + " rules: expected at most " +
                    std::to_string(kRulesMax));
  }
  return rules;
}

}  // namespace shardproof::interpose
