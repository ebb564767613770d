#include "verify/faults/interposed.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "src/text/quote.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/fault/trigger.h"
#include "verify/interpose/rule.h"

namespace shardproof {
namespace {

/// Beside the command, as both the build and the installed package have it.
std::string LibraryPath() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) return interpose::kLibrary;
  const std::filesystem::path command(std::string(path.data(), static_cast<size_t>(length)));
  return (command.parent_path() / interpose::kLibrary).string();
}

std::string WhyNoLibrary() {
  const std::string path = LibraryPath();
  if (::access(path.c_str(), R_OK) == 0) return "";
  return fmt::format("{} is not there: the torch that was built against has no CUDA", path);
}

/// The rule of a rank that is struck.
Result<std::string> RuleOf(const InterposedFault& fault, const Trigger& trigger) {
  if (trigger.stage) {
    return BadInput(
        "stage=: which stage a subject works towards is not known before it is there: expected "
        "call=, rank=, bytes= or what=");
  }
  std::string rule =
      fmt::format("{}:{},call={}", trigger.what.empty() ? fault.function : trigger.what, fault.act,
                  trigger.number);
  if (trigger.bytes_min > 0) rule += fmt::format(",bytes={}", trigger.bytes_min);
  if (fault.from_then_on) rule += ",then-on";
  SP_ASSIGN(const auto rules, interpose::ParseRules(rule));
  if (rules.size() == 1) return rule;
  return BadInput(fmt::format("what={}: expected one function", text::Quote(trigger.what)));
}

Result<SubjectFault> InSubject(const InterposedFault& fault, const Case& test_case,
                               const std::string& where) {
  SP_ASSIGN(const std::optional<Trigger> trigger, ParseTrigger(test_case, where));
  if (!trigger) return BadInput("never: fiu-ctrl does not reach what stands before CUDA and NCCL");
  SP_ASSIGN(const std::string rule, RuleOf(fault, *trigger));
  return SubjectFault{
      .rank = trigger->rank,
      .environment = {{"LD_PRELOAD", LibraryPath()}, {interpose::kRulesVariable, rule}}};
}

/// What is struck is a function, and not what has its name in its own.
std::string InWords(const InterposedFault& fault, const Case& test_case, const std::string& where) {
  const auto parsed = ParseTrigger(test_case, where);
  if (!parsed.ok() || !parsed.value()) return "";
  const Trigger& trigger = *parsed.value();
  const std::string function = trigger.what.empty() ? fault.function : trigger.what;
  const std::string rank = trigger.rank ? std::to_string(*trigger.rank) : "all";
  return CallInWords("call of " + function, fault.becomes, fault.from_then_on)(
      test_case, fmt::format("call={},rank={},bytes={}", trigger.number, rank, trigger.bytes_min));
}

}  // namespace

Fault MakeInterposedFault(InterposedFault fault) {
  Fault made;
  made.id = fault.id;
  made.what = fault.what;
  made.example = fault.example;
  made.model = fault.model;
  made.where = fmt::format(
      "for a subject: N or N:RANK, such as 0 or 3:1, where N counts calls of {} from 0 and RANK is "
      "the last rank if not given; or some of call=N, rank=R (or all), bytes=N (at least), "
      "what=FUNCTION, another function of verify/interpose/functions.inc",
      fault.function);
  made.check = [fault](const Case& test_case, const std::vector<oracle::TensorLocation>&,
                       const std::string& where) -> Status {
    if (test_case.subject == kReference) {
      return BadInput("it strikes a program's calls of CUDA and NCCL: expected --subject");
    }
    SP_TRY(InSubject(fault, test_case, where));
    return Ok();
  };
  made.in_subject = [fault](const Case& test_case, const std::string& where) {
    return InSubject(fault, test_case, where);
  };
  made.in_words = [fault](const Case& test_case, const std::string& where) {
    return InWords(fault, test_case, where);
  };
  made.cannot = WhyNoLibrary;
  return made;
}

}  // namespace shardproof
