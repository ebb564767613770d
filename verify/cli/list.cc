// shardproof list: the catalogue of what is registered.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "verify/cli/command.h"
#include "verify/faults/fault.h"
#include "verify/run/bug.h"
#include "verify/verdict/property.h"

namespace shardproof {
namespace {

void PrintProperties() {
  for (const Property& property : AllProperties()) {
    fmt::print("{}\n  {}\n  reads: {}; tolerance: {}\n  killed by: {}\n", property.id,
               property.claim, property.needs, property.tolerance,
               fmt::join(property.killed_by, ", "));
  }
}

void PrintCapabilities() {
  for (const Capability& capability : KnownCapabilities()) {
    fmt::print("{}\n  {}\n", capability.name, capability.meaning);
  }
}

void PrintBugs() {
  for (const PlantedBug& bug : AllBugs()) {
    fmt::print("{}\n  {}\n  seen in: {}\n  must turn red: {}\n", bug.id, bug.mistake, bug.seen_in,
               fmt::join(bug.killed_by, ", "));
  }
}

const char* ModelText(FaultModel model) {
  switch (model) {
    case FaultModel::kMustBeSeen:
      return "a property must see the damage";
    case FaultModel::kMustGoOn:
      return "every rank must end well, as without the fault";
    case FaultModel::kMustRecover:
      return "an older checkpoint must be restored, or every rank must say what is damaged";
    case FaultModel::kMustAbortCleanly:
      return "every rank must end with a clear error, and nothing may be lost";
    case FaultModel::kMustEndTheRun:
      return "the other ranks must end within the deadline and name the faulted rank";
    case FaultModel::kMustTellAll:
      return "every rank must end within the deadline and name the faulted rank";
    case FaultModel::kMustEndInTime:
      return "every rank must end within the deadline, and the others must name the faulted rank "
             "if it "
             "failed";
  }
  return "";
}

void PrintFaults() {
  for (const Fault& fault : AllFaults()) {
    const bool is_call = fault.where == kTriggerHelp;
    fmt::print("{}@WHERE\n  {}; {}\n  WHERE: {}\n", fault.id, fault.what, ModelText(fault.model),
               is_call ? "a call, see below" : fault.where);
  }
  fmt::print(
      "\n  Calls are counted per rank, from the start of the faulted phase, and only those the "
      "fault\n"
      "  applies to: {}\n",
      kTriggerHelp);
}

}  // namespace

void AddList(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("list", "List the properties, faults, planted bugs and capabilities");
  command->group(kFrameworkDoor);
  command->footer("Example:\n  shardproof list faults");
  command->require_subcommand(1);
  command
      ->add_subcommand("properties", "What is judged, with what each property reads and compares")
      ->callback([exit_code] {
        PrintProperties();
        *exit_code = 0;
      });
  command->add_subcommand("capabilities", "What a subject can declare that it does not support")
      ->callback([exit_code] {
        PrintCapabilities();
        *exit_code = 0;
      });
  command
      ->add_subcommand("bugs",
                       "Known bugs that --bug and --bugs can plant in the reference pipeline")
      ->callback([exit_code] {
        PrintBugs();
        *exit_code = 0;
      });
  command
      ->add_subcommand("faults", "Faults that --inject can inject, and what a correct job must do")
      ->callback([exit_code] {
        PrintFaults();
        *exit_code = 0;
      });
}

}  // namespace shardproof
