// shardproof list: the catalogue of what is registered.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "verify/cli/command.h"
#include "verify/faults/fault.h"
#include "verify/run/bug.h"
#include "verify/verdict/property.h"

namespace shardproof {
namespace {

void PrintProperties() {
  for (const Property& property : AllProperties()) {
    fmt::print("{}\n  {}\n  reads: {}; tolerance: {}\n  killed by: {}\n", property.id,
               property.claim, ReadsInWords(property), property.tolerance,
               fmt::join(property.killed_by, ", "));
  }
}

const char* NameOf(JudgedOn judged_on) {
  switch (judged_on) {
    case JudgedOn::kAny:
      return "any";
    case JudgedOn::kHost:
      return "host";
    case JudgedOn::kDevice:
      return "device";
  }
  return "";
}

void PrintPropertiesAsJson() {
  nlohmann::json all = nlohmann::json::array();
  for (const Property& property : AllProperties()) {
    all.push_back({{"id", property.id},
                   {"claim", property.claim},
                   {"reads", ReadsInWords(property)},
                   {"tolerance", property.tolerance},
                   {"source", property.source},
                   {"killed_by", property.killed_by},
                   {"capabilities", property.capabilities},
                   {"needs_processes", property.needs_processes},
                   {"judged_on", NameOf(property.judged_on)},
                   {"case_needs", nlohmann::json::parse(property.case_needs)},
                   {"only_subjects", property.only_subjects}});
  }
  fmt::print("{}\n", all.dump(1));
}

void PrintCapabilities() {
  for (const Capability& capability : KnownCapabilities()) {
    fmt::print("{}\n  {}\n", capability.name, capability.meaning);
  }
}

void PrintBugs() {
  for (const PlantedBug& bug : AllBugs()) {
    fmt::print("{}\n  {}\n  kind: {}\n  seen in: {}\n  must turn red: {}\n", bug.id, bug.mistake,
               bug.kind.empty() ? "none" : bug.kind, bug.seen_in, fmt::join(bug.killed_by, ", "));
  }
}

/// A row for each kind of mistake, and one for bugs of no kind.
void PrintBugTable() {
  std::map<std::string, std::vector<std::string>> planted;
  for (const PlantedBug& bug : AllBugs()) {
    planted[bug.kind].push_back(fmt::format("`{}`", bug.id));
  }
  fmt::print("| kind | the mistake | planted |\n| --- | --- | --- |\n");
  for (const KindOfMistake& kind : KnownKinds()) {
    const auto& ids = planted[kind.name];
    fmt::print("| {} | {} | {} |\n", kind.name, kind.mistake,
               ids.empty() ? "-" : fmt::to_string(fmt::join(ids, ", ")));
  }
  fmt::print("| none | of no such kind | {} |\n", fmt::join(planted[""], ", "));
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

/// A row for each fault.
void PrintFaultTable() {
  fmt::print("| fault | what happens | a correct job | example |\n| --- | --- | --- | --- |\n");
  for (const Fault& fault : AllFaults()) {
    fmt::print("| `{}` | {} | {} | `{}@{}`: {} |\n", fault.id, fault.what, ModelText(fault.model),
               fault.id, fault.example.where, fault.example.words);
  }
}

/// One of the registries: its lines, and if it has one, the same in another form.
struct Listing {
  const char* name;
  const char* what;
  std::function<void()> print;
  const char* option = nullptr;
  const char* option_help = nullptr;
  std::function<void()> print_otherwise = {};
};

}  // namespace

void AddList(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("list", "List what there is to judge, to plant, to inject");
  command->require_subcommand(1);
  const std::vector<Listing> listings = {
      {"properties", "What is judged", PrintProperties, "--json", "Print all fields as JSON",
       PrintPropertiesAsJson},
      {"capabilities", "What a subject may declare that it cannot do", PrintCapabilities},
      {"bugs", "Known mistakes that can be planted", PrintBugs, "--markdown",
       "Print a table of the kinds of mistake", PrintBugTable},
      {"faults", "What can be injected", PrintFaults, "--markdown", "Print a table",
       PrintFaultTable}};
  for (const Listing& listing : listings) {
    CLI::App* list = command->add_subcommand(listing.name, listing.what);
    const CLI::Option* otherwise =
        listing.option == nullptr ? nullptr : list->add_flag(listing.option, listing.option_help);
    list->callback([listing, otherwise, exit_code] {
      const bool asked = otherwise != nullptr && otherwise->count() > 0;
      asked ? listing.print_otherwise() : listing.print();
      *exit_code = 0;
    });
  }
}

}  // namespace shardproof
