// shardproof list: the catalogue of what is registered.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "src/stage/stage.h"
#include "verify/bug/bug.h"
#include "verify/case/case_schema.h"
#include "verify/case/phase.h"
#include "verify/cli/command.h"
#include "verify/fault/fault.h"
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
  if (AllBugs().empty()) fmt::print("{}\n", kWithoutBugs);
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
  for (const KindOfMistake& kind : KindsOfMistake()) {
    const auto& ids = planted[kind.name];
    fmt::print("| {} | {} | {} |\n", kind.name, kind.mistake,
               ids.empty() ? "-" : fmt::to_string(fmt::join(ids, ", ")));
  }
  fmt::print("| none | of no such kind | {} |\n", fmt::join(planted[""], ", "));
}

const char* ModelText(FaultModel model) {
  switch (model) {
    case FaultModel::kMustBeSeen:
      return "a property must see the damage";
    case FaultModel::kMustGoOn:
      return "every rank must end well, as without the fault";
    case FaultModel::kMustRecover:
      return "an older checkpoint must be restored, or every rank must say what is damaged";
    case FaultModel::kMustRefuse:
      return "every rank must refuse what is loaded, and name the file or the tensor";
    case FaultModel::kMustSpare:
      return "what no save has written must stay, and every rank must name it";
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

/// A row for each fault.
void PrintFaultTable() {
  fmt::print("| fault | what happens | a correct job | example |\n| --- | --- | --- | --- |\n");
  for (const Fault& fault : AllFaults()) {
    fmt::print("| `{}` | {} | {} | `{}@{}`: {} |\n", fault.id, fault.what, ModelText(fault.model),
               fault.id, fault.example.where, fault.example.words);
  }
}

/// What sets a phase apart, in words.
std::string NotesOf(const PhaseFacts& facts) {
  std::vector<std::string> notes = {
      facts.on_resume_mesh ? "on the case's resume_mesh" : "on the case's mesh",
      "from " + StartInWords(facts)};
  if (facts.repeats_struck) notes.emplace_back("trains and saves as the struck phase does");
  if (facts.trains) notes.emplace_back("trains");
  if (facts.saves) notes.emplace_back("saves");
  if (facts.may_be_struck) notes.emplace_back("faults may strike here");
  if (facts.mode == RunMode::kMemory) notes.emplace_back("measures memory");
  if (facts.only_shown) notes.emplace_back("is not judged");
  return fmt::to_string(fmt::join(notes, "; "));
}

void PrintPhases() {
  for (const PhaseFacts& facts : kPhases) {
    fmt::print("{}\n  {}\n  {}\n", facts.name, facts.what, NotesOf(facts));
  }
}

void PrintPhasesAsJson() {
  nlohmann::json all = nlohmann::json::array();
  for (const PhaseFacts& facts : kPhases) {
    all.push_back({{"name", facts.name},
                   {"what", facts.what},
                   {"mode", NameOf(facts.mode)},
                   {"resumes", NameOf(facts.resumes)},
                   {"mesh", facts.on_resume_mesh ? "resume_mesh" : "mesh"},
                   {"trains", facts.trains},
                   {"saves", facts.saves},
                   {"may_be_struck", facts.may_be_struck},
                   {"repeats_struck", facts.repeats_struck},
                   {"follows_struck", facts.follows_struck},
                   {"is_plain", facts.is_plain},
                   {"offloads", facts.offloads},
                   {"only_shown", facts.only_shown}});
  }
  fmt::print("{}\n", all.dump(1));
}

void PrintStages() {
  for (const StageFacts& facts : kStages) {
    fmt::print("{}\n  {}\n", facts.name, facts.what);
  }
}

void PrintStagesAsJson() {
  nlohmann::json all = nlohmann::json::array();
  for (const StageFacts& facts : kStages) {
    all.push_back({{"name", facts.name},
                   {"what", facts.what},
                   {"is_whole", facts.is_whole},
                   {"is_step", facts.is_step}});
  }
  fmt::print("{}\n", all.dump(1));
}

void PrintFields() { fmt::print("{}", FieldsText()); }
void PrintCaseSchema() { fmt::print("{}", CaseSchemaText()); }

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
  CLI::App* command = app.add_subcommand("list",
                                         "List the properties, phases, stages, faults, planted "
                                         "bugs, capabilities and fields of a case");
  command->group(kFrameworkDoor);
  command->footer("Example:\n  shardproof list faults\nExit codes: 0 printed, 2 usage.");
  command->require_subcommand(1);
  const std::vector<Listing> listings = {
      {"properties", "What is judged, with what each property reads and compares", PrintProperties,
       "--json", "Print all fields as JSON", PrintPropertiesAsJson},
      {"capabilities", "What a subject can declare that it does not support", PrintCapabilities},
      {"bugs", "Known bugs that --bug and --bugs can plant in the reference pipeline", PrintBugs,
       "--markdown", "Print a table of the kinds of mistake", PrintBugTable},
      {"phases", "The phases of a verification, and what runs in each", PrintPhases, "--json",
       "Print all fields as JSON", PrintPhasesAsJson},
      {"stages", "The stages that a job goes through", PrintStages, "--json",
       "Print all fields as JSON", PrintStagesAsJson},
      {"faults", "Faults that --inject can inject, and what a correct job must do", PrintFaults,
       "--markdown", "Print a table", PrintFaultTable},
      {"fields", "Fields of a case file, and how generated cases draw them", PrintFields,
       "--schema", "Print the JSON schema of a case", PrintCaseSchema}};
  for (const Listing& listing : listings) {
    CLI::App* list = command->add_subcommand(listing.name, listing.what);
    list->footer(fmt::format("Example:\n  shardproof list {}", listing.name));
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
