// shardproof list: the catalogue of what is registered.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "verify/bug/bug.h"
#include "verify/cli/command.h"
#include "verify/fault/fault.h"
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
      return "a property must see it";
    case FaultModel::kMustGoOn:
      return "every rank must end well, as without it";
    case FaultModel::kMustRecover:
      return "an older checkpoint must be restored, or every rank must say what is damaged";
    case FaultModel::kMustAbortCleanly:
      return "every rank must end with a clear error, nothing lost";
    case FaultModel::kMustEndTheRun:
      return "the other ranks must end within the deadline and name the rank";
    case FaultModel::kMustTellAll:
      return "it and all others must end within the deadline and name the rank";
    case FaultModel::kMustEndInTime:
      return "all ranks must end within the deadline, and the others name it if it failed";
  }
  return "";
}

void PrintFaults() {
  for (const Fault& fault : AllFaults()) {
    const bool is_call = fault.where == kTriggerHelp;
    fmt::print("{}@WHERE\n  {}; {}\n  WHERE: {}\n", fault.id, fault.what, ModelText(fault.model),
               is_call ? "a call, as below" : fault.where);
  }
  fmt::print(
      "\n  A call is counted on its rank, among those that the fault is about, from the begin of "
      "the phase\n"
      "  that is struck: {}\n",
      kTriggerHelp);
}

}  // namespace

void AddList(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("list", "List what there is to judge, to plant, to inject");
  command->require_subcommand(1);
  command->add_subcommand("properties", "What is judged")->callback([exit_code] {
    PrintProperties();
    *exit_code = 0;
  });
  command->add_subcommand("capabilities", "What a subject may declare that it cannot do")
      ->callback([exit_code] {
        PrintCapabilities();
        *exit_code = 0;
      });
  command->add_subcommand("bugs", "Known mistakes that can be planted")->callback([exit_code] {
    PrintBugs();
    *exit_code = 0;
  });
  command->add_subcommand("faults", "What can be injected")->callback([exit_code] {
    PrintFaults();
    *exit_code = 0;
  });
}

}  // namespace shardproof
