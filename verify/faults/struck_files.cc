#include "verify/faults/struck_files.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "verify/decorators/asked_files.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/fault/point.h"

namespace shardproof {
std::function<Result<SubjectFault>(const Case&, const std::string& where)> InSystemCalls(
    SubjectCalls calls) {
  return [calls](const Case& test_case, const std::string& where) -> Result<SubjectFault> {
    SubjectFault fault{.calls = calls};
    SP_ASSIGN(fault.calls->trigger, ParseTrigger(test_case, where));
    if (!fault.calls->trigger) return fault;
    if (fault.calls->trigger->stage) {
      return BadInput(
          "stage=: which stage a subject works towards is not known before it is there: "
          "expected call=, rank=, what= or bytes=");
    }
    fault.rank = fault.calls->trigger->rank;
    return fault;
  };
}

Fault MakeFileFault(FileFault fault) {
  const auto arm = [fault](FaultSite site, const std::string& where) {
    const auto point = site.Point(fault.id, where, fault.from_then_on);
    site.world.files = AskBefore(site.world.files, [=](const FileCall& call) -> Status {
      if (!fault.ops.contains(call.op)) return Ok();
      const std::string why = std::strerror(fault.error_number);
      if (!point->Strikes(
              {call.path, call.bytes},
              {.detail = call.action + ": " + why, .call = call.action, .error = why})) {
        return Ok();
      }
      // Whether the half is written or not makes no difference to what must happen.
      if (fault.half) {
        (void)call.file->WriteAt(call.offset, call.data.substr(0, call.data.size() / 2));
      }
      return Failed(call.action + ": " + why);
    });
  };
  return {.id = fault.id,
          .what = fault.what,
          .where = kTriggerHelp,
          .example = fault.example,
          .model = fault.model,
          .check = CheckTrigger,
          .arm = arm,
          .in_subject = InSystemCalls({.ops = fault.ops,
                                       .error_number = fault.error_number,
                                       .from_then_on = fault.from_then_on,
                                       .half = fault.half}),
          .in_words = CallInWords(fault.call,
                                  fmt::format("{} with {}{}", fault.from_then_on ? "fail" : "fails",
                                              ErrnoInWords(fault.error_number), fault.also),
                                  fault.from_then_on),
          .draw = fault.draw};
}

}  // namespace shardproof
