#include "verify/fault/fault_descriptions.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "verify/fault/trigger.h"

namespace shardproof {
namespace {

/// "the third write to a file whose name has 'norm.weight' in it"
std::string WhichCall(const Trigger& trigger, const std::string& call) {
  std::string text = fmt::format("the {} {}", Ordinal(trigger.number + 1), call);
  if (trigger.bytes_min > 0)
    text += fmt::format(", of those of at least {} bytes", trigger.bytes_min);
  if (!trigger.what.empty())
    text += fmt::format(", of those with '{}' in their name", trigger.what);
  if (trigger.stage) text += fmt::format(", of those on the way to `{}`", NameOf(*trigger.stage));
  const bool has_conditions = trigger.bytes_min > 0 || !trigger.what.empty() || trigger.stage;
  return has_conditions ? text + "," : text;
}

}  // namespace

std::string Ordinal(int64_t number) {
  constexpr std::array kFirst = {"first", "second",  "third",  "fourth", "fifth",
                                 "sixth", "seventh", "eighth", "ninth",  "tenth"};
  if (number >= 1 && number <= static_cast<int64_t>(kFirst.size())) return kFirst[number - 1];
  const int64_t last = number % 10;
  const bool is_teen = number % 100 / 10 == 1;
  const char* ending = is_teen     ? "th"
                       : last == 1 ? "st"
                       : last == 2 ? "nd"
                       : last == 3 ? "rd"
                                   : "th";
  return fmt::format("{}{}", number, ending);
}

std::string ErrnoInWords(int error_number) {
  const char* name = ::strerrorname_np(error_number);
  return fmt::format("{}: {}", name == nullptr ? std::to_string(error_number) : name,
                     std::strerror(error_number));
}

std::function<std::string(const Case&, const std::string& where)> CallInWords(std::string call,
                                                                              std::string becomes,
                                                                              bool from_then_on) {
  return [=](const Case& test_case, const std::string& where) -> std::string {
    const auto parsed = ParseTrigger(test_case, where);
    if (!parsed.ok() || !parsed.value()) return "";
    const Trigger& trigger = *parsed.value();
    const std::string rank = trigger.rank ? fmt::format("rank {}", *trigger.rank) : "every rank";
    return fmt::format("on {}, {}{} {}", rank, WhichCall(trigger, call),
                       from_then_on ? " and all after it" : "", becomes);
  };
}

std::string DescribeFault(const Case& test_case, const FaultCase& fault) {
  const auto known = FindFault(fault.id);
  if (!known.ok()) return fmt::format("{} at {}", fault.id, fault.where);
  const Fault& found = known.value();
  if (fault.where == kNever) return "nothing, until fiu-ctrl enables it: " + found.what;
  const std::string words = found.in_words ? found.in_words(test_case, fault.where) : "";
  return words.empty() ? fmt::format("{} ({})", found.what, fault.where) : words;
}

std::vector<std::string> DescribeFaults(const Case& test_case) {
  std::vector<std::string> words;
  for (const FaultCase& fault : test_case.faults) words.push_back(DescribeFault(test_case, fault));
  return words;
}

}  // namespace shardproof
