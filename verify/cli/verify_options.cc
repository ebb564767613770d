// What options `shardproof verify` has, and which exclude each other.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "verify/case/fields.h"
#include "verify/case/names.h"
#include "verify/cli/command.h"
#include "verify/cli/verify_arguments.h"
#include "verify/generate/features.h"

namespace shardproof {
namespace {

constexpr uint64_t kCasesMax = 1'000'000'000'000;
constexpr uint64_t kJobsMax = 1024;
constexpr double kMinutesMin = 1e-4;
constexpr double kMinutesMax = 1e6;

constexpr const char* kModel = "Model";
constexpr const char* kRanks = "Ranks";
constexpr const char* kPipeline = "Reference pipeline";
constexpr const char* kFramework = "A framework instead of the reference pipeline";
constexpr const char* kFaults = "Faults";
constexpr const char* kGenerated = "Generated cases";

/// For CLI11, which takes -1 for the largest of 64 bits.
template <typename Integer>
auto IntegerFrom(Integer low, Integer high) {
  return [=](const std::string& text) {
    Integer number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && number >= low && number <= high) return std::string();
    return fmt::format("expected an integer from {} to {}, found {}", low, high, text);
  };
}

/// For CLI11, whose own range of real numbers lets NaN through.
auto RealFrom(double low, double high, const char* unit) {
  return [=](const std::string& text) {
    double number = 0;
    if (CLI::detail::lexical_cast(text, number) && number >= low && number <= high)
      return std::string();
    return fmt::format("expected {} from {} to {}, found {}", unit, low, high, text);
  };
}

/// What an option says must be one of the names of its field.
auto NameOf(const FieldRow& row) {
  return [&row](const std::string& text) {
    const NameTable& names = row.names();
    const bool is_former = row.former.first != nullptr && text == row.former.first;
    if (is_former || std::find(names.begin(), names.end(), text) != names.end())
      return std::string();
    return fmt::format("expected one of {}, found {}", ListNames(names), text);
  };
}

/// Checks the text as far as the row says what it may be.
void AddCheck(const FieldOfCase& field, CLI::Option& option) {
  const FieldRow& row = *field.row;
  if (row.names != nullptr) option.check(NameOf(row));
  if (row.option.by_hand) {
    if (std::holds_alternative<std::string*>(field.value)) option.check(NotEmpty);
    return;  // the rest is told where it is read
  }
  if (std::holds_alternative<int64_t*>(field.value)) {
    option.check(IntegerFrom<int64_t>(LowOf(row), HighOf(row)));
  }
  if (std::holds_alternative<uint64_t*>(field.value)) {
    option.check(IntegerFrom<uint64_t>(row.integers.low, row.integers.high));
  }
}

bool TakesMany(const FieldOfCase& field) {
  return std::holds_alternative<std::vector<std::string>*>(field.value) ||
         std::holds_alternative<std::vector<FaultCase>*>(field.value) ||
         std::holds_alternative<std::map<std::string, std::string>*>(field.value);
}

/// The option of a field: a flag, a text, or of lists as many as are given.
void AddFieldOption(const FieldOfCase& field, const char* group, CLI::App& command,
                    VerifyArguments& arguments) {
  const FieldOption& row = field.row->option;
  const std::string& path = field.path;
  if (std::holds_alternative<bool*>(field.value)) {
    const auto set = [&arguments, path] { arguments.fields[path] = {"true"}; };
    command.add_flag_callback(row.name, set, row.help)->group(group);
    if (row.former != nullptr) command.add_flag_callback(row.former, set)->group("");
    return;
  }
  CLI::Option* option = nullptr;
  if (TakesMany(field)) {
    option = command.add_option(row.name, arguments.fields[path], row.help);
  } else {
    const auto set = [&arguments, path](const std::string& text) {
      arguments.fields[path] = {text};
    };
    option = command.add_option_function<std::string>(row.name, set, row.help);
  }
  option->type_name(row.type_name)->group(group);
  AddCheck(field, *option);
}

/// Calls visit(field) for each field that has an option.
template <typename Visit>
void ForEachOption(Visit visit) {
  Case plain;
  for (const FieldOfCase& field : FieldsOf(plain)) {
    if (field.row->option.name != nullptr) visit(field);
  }
}

void AddFieldOptions(OptionGroup group, const char* title, CLI::App& command,
                     VerifyArguments& arguments) {
  ForEachOption([&](const FieldOfCase& field) {
    if (field.row->option.group == group) AddFieldOption(field, title, command, arguments);
  });
}

void AddModelOptions(CLI::App& command, VerifyArguments& arguments) {
  AddFieldOptions(OptionGroup::kModel, kModel, command, arguments);
  command
      .add_option("--case", arguments.case_file,
                  "Run a case file instead (fixtures/schema/case.schema.json)")
      ->type_name("FILE")
      ->group(kModel);
}

void AddRankOptions(CLI::App& command, VerifyArguments& arguments) {
  command
      .add_option("--world", arguments.world,
                  "Number of ranks (default 4, or as many as torchrun started)")
      ->type_name("N")
      ->group(kRanks);
  command
      .add_option("--resume-world", arguments.resume_world,
                  "Also restore what was saved on this number of ranks (default: one rank fewer, "
                  "or 2 if the save had 1)")
      ->type_name("N")
      ->group(kRanks);
  AddFieldOptions(OptionGroup::kRanks, kRanks, command, arguments);
  command.get_option("--mesh")->excludes("--world");
  command.get_option("--resume-mesh")->excludes("--resume-world");
}

void AddFrameworkOptions(CLI::App& command, VerifyArguments& arguments) {
  AddFieldOptions(OptionGroup::kFramework, kFramework, command, arguments);
  command
      .add_option("--python", arguments.execute.python,
                  "Python interpreter for the subject (default: the one whose torch Shardproof was "
                  "built against)")
      ->type_name("FILE")
      ->group(kFramework);
  command
      .add_flag_callback(
          "--no-confirm", [&arguments] { arguments.execute.confirms = false; },
          "Report a failure at once; by default, it is reported only if it occurs again in fresh "
          "processes")
      ->needs("--subject")
      ->group(kFramework);
  command
      .add_flag("--quick", arguments.execute.is_quick,
                "Run the first phase only, once: no resume, training or memory phase, no "
                "confirmation, no reproducer")
      ->group(kFramework);
}

void AddFaultOptions(CLI::App& command, VerifyArguments& arguments) {
  AddFieldOptions(OptionGroup::kFaults, kFaults, command, arguments);
  command
      .add_option("--kill", arguments.kill,
                  "Kill a rank when it reaches a stage: RANK@STAGE or RANK@STAGE@STEP; or before "
                  "its N-th collective: RANK@#N. The same as --inject rank/kill@...")
      ->type_name("RANK@STAGE")
      ->group(kFaults);
  command
      .add_option("--stop", arguments.stop,
                  "Stop a rank when it reaches a stage: it stays alive but never responds again")
      ->type_name("RANK@STAGE")
      ->group(kFaults);
}

void AddGeneratedOptions(CLI::App& command, VerifyArguments& arguments) {
  SoakArguments& soak = arguments.soak;
  command
      .add_option("--generate", soak.cases,
                  "Run N generated cases with models, meshes and strategies that follow from "
                  "--seed; --world and --transport (default sim) apply to all of them")
      ->check(CLI::Range(uint64_t{1}, kCasesMax))
      ->type_name("N")
      ->group(kGenerated);
  command.add_option("--minutes", soak.minutes, "Run generated cases for this long")
      ->check(RealFrom(kMinutesMin, kMinutesMax, "minutes"))
      ->type_name("MINUTES")
      ->group(kGenerated);
  command.add_option("--first", soak.first, "Index of the first generated case (default 0)")
      ->check(CLI::Range(uint64_t{0}, kCasesMax))
      ->type_name("INDEX")
      ->group(kGenerated);
  command
      .add_option("--only", soak.only,
                  "Of the generated cases run only those that have this feature, a word of the "
                  "summary of a run: trained, ties, a damaged source")
      ->check([](const std::string& text) {
        const auto known = KnownFeatures();
        if (std::binary_search(known.begin(), known.end(), text)) return std::string();
        return "expected a feature as the summary of a run shows it, found " + text;
      })
      ->type_name("FEATURE")
      ->group(kGenerated);
  command.add_option("--corpus", soak.corpus, "Run the case files of this directory first")
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR")
      ->group(kGenerated);
  command.add_flag("--keep-going", soak.keep_going, "Continue after a case that does not pass")
      ->group(kGenerated);
  command.add_flag("--resume", soak.resume, "Continue the run that the file of --json holds")
      ->group(kGenerated);
  command
      .add_option("--jobs", soak.jobs,
                  "Number of cases to run at once (default: one per core, two per core where ranks "
                  "are processes, one for a subject)")
      ->check(CLI::Range(uint64_t{1}, kJobsMax))
      ->type_name("N")
      ->group(kGenerated);
  command
      .add_option("--shrink-runs", soak.shrink_runs,
                  "Shrink a failing case with at most N runs (default 500, or 60 for a subject)")
      ->check(CLI::Range(uint64_t{0}, kCasesMax))
      ->type_name("N")
      ->group(kGenerated);
  command
      .add_option("--bugs", arguments.bugs,
                  "Plant each of these bugs (all, or ids joined by commas) in generated cases, "
                  "shrink the cases, and report which properties catch it. --generate limits the "
                  "cases of a bug (default 400); --report keeps the smallest cases")
      ->check(NotEmpty)
      ->excludes("--bug")
      ->type_name("IDS")
      ->group(kGenerated);
}

/// What has no meaning together is told when it is used.
void ExcludeCombinations(CLI::App& command) {
  std::vector<const char*> of_one = {"--case",    "--resume-world", "--kill", "--stop",
                                     "--save-to", "--no-confirm",   "--quick"};
  ForEachOption([&](const FieldOfCase& field) {
    const FieldOption& option = field.row->option;
    if (option.of_generated) return;
    of_one.push_back(option.name);
    if (option.former != nullptr) of_one.push_back(option.former);
  });
  for (const char* option : of_one) {
    for (const char* of_many : {"--generate", "--minutes", "--bugs"}) {
      command.get_option(of_many)->excludes(command.get_option(option));
    }
  }
  // Each bug is planted in the reference, and judged by every property.
  for (const char* other : {"--minutes", "--corpus", "--keep-going", "--resume", "--first",
                            "--only", "--subject", "--property"}) {
    command.get_option("--bugs")->excludes(command.get_option(other));
  }
}

}  // namespace

void AddVerifyOptions(CLI::App& command, VerifyArguments& arguments) {
  AddModelOptions(command, arguments);
  AddRankOptions(command, arguments);
  AddFieldOptions(OptionGroup::kPipeline, kPipeline, command, arguments);
  AddFrameworkOptions(command, arguments);
  AddFaultOptions(command, arguments);
  AddOutputOptions(command, arguments.execute);
  command
      .add_option("--save-to", arguments.execute.save_to,
                  "Keep the saved checkpoint in this directory. If the reference takes optimizer "
                  "steps, each save has its own subdirectory and the file latest names the newest")
      ->check(NotEmpty)
      ->type_name("DIR")
      ->group(kResults);
  AddGeneratedOptions(command, arguments);
  ExcludeCombinations(command);
}

}  // namespace shardproof
