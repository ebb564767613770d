// shardproof verify: load, shard, save and restore a model on several ranks, and judge it.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "verify/bug/bug.h"
#include "verify/cli/command.h"
#include "verify/cli/execute.h"
#include "verify/cli/generated.h"
#include "verify/launch/subject.h"

namespace shardproof {
namespace {

constexpr int64_t kStepsDefault = 4;
constexpr int64_t kWorldMax = 1024;  // of a Case
constexpr uint64_t kCasesMax = 1'000'000'000'000;
constexpr uint64_t kJobsMax = 1024;
constexpr double kMinutesMin = 1e-4;
constexpr double kMinutesMax = 1e6;
constexpr double kDeadlineMin = 0.001;  // seconds
constexpr double kDeadlineMax = 24 * 60 * 60;

struct VerifyArguments {
  std::string checkpoint;
  std::string adapter;
  std::string lora;
  bool from_scratch = false;
  std::string case_file;
  std::optional<int64_t> world;
  std::optional<int64_t> resume_world;
  std::optional<std::string> mesh;
  std::optional<std::string> resume_mesh;
  std::string strategy;
  std::string optimizer;
  std::string device;
  std::string transport;
  std::string subject;
  std::optional<int64_t> steps;
  std::vector<std::string> options;
  std::vector<std::string> inject, kill, stop;
  bool as_stated = false;
  std::string bug;
  std::optional<uint64_t> seed;
  std::optional<uint64_t> bucket_bytes;
  std::optional<double> deadline_seconds;
  std::vector<std::string> allow_missing;
  std::vector<std::string> allow_unexpected;
  SoakArguments soak;
  std::string bugs;
  ExecuteOptions execute;
};

/// How many ranks torchrun or a shell started, or nothing if none.
std::optional<int64_t> StartedRanks() {
  const char* started = std::getenv("WORLD_SIZE");
  if (std::getenv("RANK") == nullptr || started == nullptr) return std::nullopt;
  return std::max<int64_t>(1, std::atoll(started));  // what is wrong with it, joining tells
}

/// The number of ranks: what was asked for, else those that were started, else 4.
Result<int64_t> WorldFrom(const std::optional<int64_t>& asked) {
  const std::optional<int64_t> started = StartedRanks();
  if (asked && started && *asked > *started) {
    return BadInput(fmt::format(
        "--world: expected at most the {} ranks that were started (WORLD_SIZE), found {}", *started,
        *asked));
  }
  return asked.value_or(started.value_or(4));
}

/// "dp_replicate=2,dp_shard=2"; or "2x2", which names the axes so. Sizes are checked with the Case.
Result<std::vector<AxisCase>> ParseMesh(const char* option, const std::string& text) {
  const auto complain = [&] {
    return BadInput(
        fmt::format("{} {}: expected AXIS=RANKS,... such as "
                    "dp_replicate=2,dp_shard=2, or 2x2 for the same, or 2x2x2 with a "
                    "third axis, tp",
                    option, text));
  };
  const bool named = text.find('=') != std::string::npos;
  const std::vector<std::string> plain_names = {"dp_replicate", "dp_shard", "tp"};
  const char separator = named ? ',' : 'x';
  if (text.empty() || text.back() == separator) return complain();
  std::vector<AxisCase> mesh;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, separator);) {
    AxisCase axis;
    const size_t equals = part.find('=');
    if (named != (equals != std::string::npos)) return complain();
    if (named) axis.name = part.substr(0, equals);
    const std::string size = named ? part.substr(equals + 1) : part;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), axis.size);
    if (error != std::errc() || end != size.data() + size.size()) return complain();
    mesh.push_back(std::move(axis));
  }
  if (!named) {
    if (mesh.size() > plain_names.size()) return complain();
    for (size_t i = 0; i < mesh.size(); ++i) mesh[i].name = plain_names[i];
    if (mesh.size() == 1) mesh[0].name = "dp_shard";
  }
  return mesh;
}

/// RANK:TARGET,TARGET,...; what is wrong with a target is told with the model at hand.
Result<LoraCase> ParseLora(const std::string& text) {
  LoraCase lora;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), lora.rank);
  if (error != std::errc() || end + 1 >= text.data() + text.size() || *end != ':') {
    return BadInput(
        fmt::format("--lora {}: expected RANK:TARGET,..., such as 8:q_proj,v_proj or "
                    "8:all-linear",
                    text));
  }
  std::istringstream targets(end + 1);
  for (std::string target; std::getline(targets, target, ',');) lora.targets.push_back(target);
  return lora;
}

Result<FaultCase> ParseInject(const std::string& text) {
  const size_t at = text.find('@');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    return BadInput(
        fmt::format("--inject {}: expected ID@WHERE, such as "
                    "file/flip@model.norm.weight:3; see 'shardproof list faults'",
                    text));
  }
  return FaultCase{text.substr(0, at), text.substr(at + 1)};
}

/// NAME=VALUE of what the subject declares.
Status AddOption(const std::string& text, std::map<std::string, std::string>& options) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return BadInput(fmt::format(
        "--option {}: expected NAME=VALUE with a name from the subject's OPTIONS", text));
  }
  options[text.substr(0, equals)] = text.substr(equals + 1);
  return Ok();
}

/// What the options say of the model besides where its checkpoint is.
Status SetModel(const VerifyArguments& arguments, ModelCase& model) {
  const bool any = !arguments.adapter.empty() || !arguments.lora.empty() || arguments.from_scratch;
  if (any && model.checkpoint.empty()) {
    return BadInput(
        "--adapter, --lora and --from-scratch need a model with a config.json: expected "
        "--checkpoint, or a case that names a checkpoint");
  }
  if (!arguments.adapter.empty()) {
    model.adapter = std::filesystem::absolute(arguments.adapter).string();
  }
  if (!arguments.lora.empty()) {
    SP_ASSIGN(model.lora, ParseLora(arguments.lora));
  }
  model.from_scratch = model.from_scratch || arguments.from_scratch;
  return Ok();
}

/// What is wrong with a field of the case, in the words of the option that set it.
Error ByOption(const VerifyArguments& arguments, Error error) {
  const std::tuple<std::string, std::string, bool> options[] = {
      {"/mesh", "--mesh", arguments.mesh.has_value()},
      {"/mesh", "--world", arguments.world.has_value()},
      {"/resume_mesh", "--resume-mesh", arguments.resume_mesh.has_value()},
      {"/resume_mesh", "--resume-world", arguments.resume_world.has_value()},
      {"/strategy", "--strategy", !arguments.strategy.empty()},
      {"/device", "--device", !arguments.device.empty()},
      {"/optimizer", "--optimizer", !arguments.optimizer.empty()},
      {"/subject", "--subject", !arguments.subject.empty()},
      {"/steps", "--steps", arguments.steps.has_value()},
      {"/bucket_bytes", "--bucket-bytes", arguments.bucket_bytes.has_value()},
      {"/deadline_ms", "--deadline", arguments.deadline_seconds.has_value()},
      {"/model/lora", "--lora", !arguments.lora.empty()},
      {"/model/missing", "--allow-missing", !arguments.allow_missing.empty()},
      {"/model/unexpected", "--allow-unexpected", !arguments.allow_unexpected.empty()}};
  const std::string where = error.message.substr(0, error.message.find(": "));
  for (const auto& [field, option, given] : options) {
    if (!given || (where != field && !where.starts_with(field + "/"))) continue;
    error.message.replace(0, where.size(), option);
    break;
  }
  return error;
}

Result<Case> CaseFrom(const VerifyArguments& arguments) {
  Case test_case;
  if (!arguments.case_file.empty()) {
    SP_ASSIGN(test_case, ReadCaseFile(arguments.case_file));
  } else if (!arguments.checkpoint.empty()) {
    test_case.model.checkpoint = std::filesystem::absolute(arguments.checkpoint).string();
    test_case.why = "load, shard, save and restore " +
                    std::filesystem::path(test_case.model.checkpoint).filename().string();
  } else {
    SP_ASSIGN(const PlantedBug bug, FindBug(arguments.bug));
    SP_ASSIGN(test_case, ParseCaseText(bug.smallest_case));
  }
  SP_TRY(SetModel(arguments, test_case.model));
  if (test_case.mesh.empty() || arguments.world) {
    SP_ASSIGN(const int64_t world, WorldFrom(arguments.world));
    test_case.mesh = {{"dp_shard", world}};
  }
  if (arguments.mesh) {
    SP_ASSIGN(test_case.mesh, ParseMesh("--mesh", *arguments.mesh));
  }
  if (!arguments.checkpoint.empty() || arguments.world || arguments.resume_world) {
    // One rank fewer is another sharding that any launcher can still run; from one rank, go to two.
    const int64_t world = test_case.WorldSize();
    const int64_t other = world == 1 ? 2 : std::min(world - 1, kWorldMax);
    test_case.resume_mesh = {{"dp_shard", arguments.resume_world.value_or(other)}};
  }
  if (arguments.resume_mesh) {
    SP_ASSIGN(test_case.resume_mesh, ParseMesh("--resume-mesh", *arguments.resume_mesh));
  }
  if (!arguments.subject.empty() && arguments.subject != kReference) {
    test_case.subject = std::filesystem::absolute(arguments.subject).string();
  }
  // Two before the save and two after. A subject that does not train is not asked to.
  if (test_case.subject != kReference && test_case.steps == 0) test_case.steps = kStepsDefault;
  if (arguments.steps) test_case.steps = *arguments.steps;
  for (const std::string& text : arguments.options) SP_TRY(AddOption(text, test_case.options));
  if (!arguments.strategy.empty()) test_case.strategy = arguments.strategy;
  if (!arguments.transport.empty()) test_case.transport = arguments.transport;
  if (!arguments.device.empty()) test_case.device = arguments.device;
  if (!arguments.optimizer.empty()) test_case.optimizer = arguments.optimizer;
  if (!arguments.bug.empty()) test_case.bug = arguments.bug;
  if (arguments.seed) test_case.seed = *arguments.seed;
  if (arguments.bucket_bytes) test_case.bucket_bytes = *arguments.bucket_bytes;
  if (arguments.deadline_seconds) test_case.deadline_ms = *arguments.deadline_seconds * 1000;
  for (const std::string& name : arguments.allow_missing) test_case.model.missing.push_back(name);
  for (const std::string& name : arguments.allow_unexpected) {
    test_case.model.unexpected.push_back(name);
  }
  for (const std::string& text : arguments.inject) {
    SP_ASSIGN(FaultCase fault, ParseInject(text));
    test_case.faults.push_back(std::move(fault));
  }
  for (const std::string& where : arguments.kill) test_case.faults.push_back({"rank/kill", where});
  for (const std::string& where : arguments.stop) test_case.faults.push_back({"rank/stop", where});
  test_case.as_stated = test_case.as_stated || arguments.as_stated;
  // Through the codec, so that an option is checked as a case file is.
  const auto checked = ParseCase(CaseToJson(test_case));
  if (!checked.ok()) return ByOption(arguments, checked.error());
  return checked;
}

/// For CLI11, which takes -1 for the largest of 64 bits.
std::string IsNatural(const std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return fmt::format("expected an integer from 0 to {}, found {}",
                     std::numeric_limits<uint64_t>::max(), text);
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

/// Of generated cases; what says what one case is has no meaning for them.
Result<SoakArguments> SoakFrom(const VerifyArguments& arguments) {
  SoakArguments soak = arguments.soak;
  if (arguments.world && (*arguments.world < 1 || *arguments.world > kWorldMax)) {
    return BadInput(
        fmt::format("--world: expected 1 to {} ranks, found {}", kWorldMax, *arguments.world));
  }
  soak.seed = arguments.seed.value_or(0);
  soak.world = arguments.world.value_or(0);
  soak.transport = arguments.transport;
  if (!arguments.subject.empty() && arguments.subject != kReference) {
    soak.subject = std::filesystem::absolute(arguments.subject).string();
  }
  soak.bug = arguments.bugs.empty() ? arguments.bug : arguments.bugs;
  soak.execute = arguments.execute;
  return soak;
}

int RunVerify(const VerifyArguments& arguments) {
  if (!arguments.bugs.empty() || arguments.soak.cases || arguments.soak.minutes) {
    const auto soak = SoakFrom(arguments);
    if (!soak.ok()) return Complain(soak.error());
    return arguments.bugs.empty() ? RunSoak(soak.value()) : RunAdequacy(soak.value());
  }
  const int sources = !arguments.checkpoint.empty() + !arguments.case_file.empty();
  if (sources > 1 || (sources == 0 && arguments.bug.empty())) {
    return Complain(BadInput(fmt::format(
        "verify: expected one of --checkpoint DIR, --case FILE, --bug ID or --generate N, found {}",
        sources > 1 ? "--checkpoint and --case" : "none")));
  }
  const auto test_case = CaseFrom(arguments);
  if (!test_case.ok()) {
    fmt::print(stderr, "shardproof: {}\n", test_case.error().message);
    return kExitBadInput;
  }
  return Execute(test_case.value(), arguments.execute);
}

}  // namespace

namespace {

constexpr const char* kModel = "Model";
constexpr const char* kRanks = "Ranks";
constexpr const char* kPipeline = "Reference pipeline";
constexpr const char* kFramework = "A framework instead of the reference pipeline";
constexpr const char* kFaults = "Faults";
constexpr const char* kGenerated = "Generated cases";

void AddModelOptions(CLI::App& command, VerifyArguments& arguments) {
  command
      .add_option("--checkpoint", arguments.checkpoint,
                  "Hugging Face directory: config.json and safetensors files")
      ->check(NotEmpty)
      ->type_name("DIR")
      ->group(kModel);
  command
      .add_option("--case", arguments.case_file,
                  "Run a case file instead (fixtures/schema/case.schema.json)")
      ->type_name("FILE")
      ->group(kModel);
  command
      .add_option("--adapter", arguments.adapter,
                  "PEFT directory of a LoRA adapter to load with the model")
      ->check(NotEmpty)
      ->type_name("DIR")
      ->group(kModel);
  command
      .add_option("--lora", arguments.lora,
                  "Add a newly initialised LoRA adapter to the model: RANK:TARGET,..., such as "
                  "8:q_proj,v_proj or 8:all-linear")
      ->type_name("LORA")
      ->group(kModel);
  command
      .add_flag("--from-scratch", arguments.from_scratch,
                "Read only config.json of the checkpoint and initialise every tensor")
      ->group(kModel);
  command
      .add_option("--allow-missing", arguments.allow_missing,
                  "The checkpoint may lack this tensor, which is then initialised; may be repeated")
      ->type_name("TENSOR")
      ->group(kModel);
  command
      .add_option("--allow-unexpected", arguments.allow_unexpected,
                  "The checkpoint may hold this tensor, which the model lacks; may be repeated")
      ->type_name("TENSOR")
      ->group(kModel);
}

void AddRankOptions(CLI::App& command, VerifyArguments& arguments) {
  command
      .add_option("--world", arguments.world,
                  "Number of ranks (default 4, or as many as torchrun started)")
      ->type_name("N")
      ->group(kRanks);
  command
      .add_option("--mesh", arguments.mesh,
                  "Ranks as a mesh: dp_replicate=2,dp_shard=2, or 2x2 for the same; 2x2x2 adds a "
                  "third axis, tp")
      ->excludes("--world")
      ->type_name("MESH")
      ->group(kRanks);
  command
      .add_option("--resume-world", arguments.resume_world,
                  "Also restore what was saved on this number of ranks (default: one rank fewer, "
                  "or 2 if the save had 1)")
      ->type_name("N")
      ->group(kRanks);
  command
      .add_option("--resume-mesh", arguments.resume_mesh,
                  "Also restore what was saved on this mesh, such as 2x2 or tp=4")
      ->excludes("--resume-world")
      ->type_name("MESH")
      ->group(kRanks);
  command
      .add_option("--transport", arguments.transport,
                  "gloo (default): ranks are processes. sim: ranks are threads of one process over "
                  "a simulated transport, scheduled in an order that follows from --seed")
      ->check(CLI::IsMember({"gloo", "sim"}))
      ->type_name("NAME")
      ->group(kRanks);
  command
      .add_option("--device", arguments.device,
                  "Where tensors live: cpu (default), cuda (over NCCL), or isolated: host memory "
                  "that, like a GPU's, only device copies can reach, for machines without a GPU")
      ->type_name("NAME")
      ->group(kRanks);
  command
      .add_option("--deadline", arguments.deadline_seconds,
                  "A rank that makes no progress for this long hangs (default 60)")
      ->check(RealFrom(kDeadlineMin, kDeadlineMax, "seconds"))
      ->type_name("SECONDS")
      ->group(kRanks);
}

void AddPipelineOptions(CLI::App& command, VerifyArguments& arguments) {
  command
      .add_option(
          "--strategy", arguments.strategy,
          "Who reads the checkpoint. rank0-broadcast (default): rank 0 reads and broadcasts, "
          "each rank keeps its shards. rank0-scatter: rank 0 reads and sends each rank its "
          "shards. each-reads-own: each rank reads its shards. plain: each rank reads "
          "everything")
      ->type_name("NAME")
      ->group(kPipeline);
  command
      .add_option("--optimizer", arguments.optimizer,
                  "before-sharding: create the optimizer on the loaded model and bind it to the "
                  "shards when they are ready (default: none)")
      ->type_name("NAME")
      ->group(kPipeline);
  command
      .add_option("--bucket-bytes", arguments.bucket_bytes,
                  "Staging bytes that a rank may hold at once (default 16 MiB)")
      ->check(IsNatural)
      ->type_name("BYTES")
      ->group(kPipeline);
  command
      .add_option("--seed", arguments.seed,
                  "Seed of initial values, or of the generated cases (default 0)")
      ->check(IsNatural)
      ->type_name("N")
      ->group(kPipeline);
  command
      .add_option("--bug", arguments.bug,
                  "Plant a known bug (see 'shardproof list bugs'). Without --checkpoint or --case, "
                  "the smallest case that shows the bug is run")
      ->type_name("ID")
      ->group(kPipeline);
}

void AddFrameworkOptions(CLI::App& command, VerifyArguments& arguments) {
  command
      .add_option("--subject", arguments.subject,
                  "Python file with def run(case, observe), see verify/subjects/README.md; or "
                  "reference (default)")
      ->type_name("FILE")
      ->group(kFramework);
  command
      .add_option("--python", arguments.execute.python,
                  "Python interpreter for the subject (default: the one whose torch Shardproof was "
                  "built against)")
      ->type_name("FILE")
      ->group(kFramework);
  command
      .add_option("--option", arguments.options,
                  "Set an option that the subject declares in OPTIONS; may be repeated")
      ->type_name("NAME=VALUE")
      ->group(kFramework);
  command
      .add_option(
          "--steps", arguments.steps,
          "Optimizer steps (default 4 for a subject that trains; 0: none). The subject saves "
          "halfway and then continues twice: uninterrupted, and from what was saved")
      ->type_name("N")
      ->group(kFramework);
}

void AddFaultOptions(CLI::App& command, VerifyArguments& arguments) {
  command
      .add_option("--inject", arguments.inject,
                  "Inject a fault, ID@WHERE, such as file/flip@TENSOR:INDEX (see 'shardproof list "
                  "faults'); may be repeated")
      ->type_name("FAULT")
      ->group(kFaults);
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
  command
      .add_flag(
          "--judge-faults", arguments.as_stated,
          "Judge only whether the job handles the faults as it must ('shardproof list faults' "
          "says how): a job that aborts as it must passes")
      ->group(kFaults);
  command.add_flag("--as-stated", arguments.as_stated)->group("");  // its former name
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

/// The options that are only about generated cases.
constexpr const char* kOfGenerated[] = {"--first",  "--corpus", "--keep-going",
                                        "--resume", "--jobs",   "--shrink-runs"};

/// What has no meaning together is told when it is used.
void ExcludeCombinations(CLI::App& command) {
  for (const char* of_one : {"--checkpoint",  "--case",         "--adapter",
                             "--lora",        "--from-scratch", "--mesh",
                             "--resume-mesh", "--resume-world", "--strategy",
                             "--device",      "--optimizer",    "--inject",
                             "--kill",        "--stop",         "--judge-faults",
                             "--as-stated",   "--bucket-bytes", "--allow-missing",
                             "--option",      "--steps",        "--allow-unexpected",
                             "--deadline",    "--save-to"}) {
    for (const char* of_many : {"--generate", "--minutes", "--bugs"}) {
      command.get_option(of_many)->excludes(command.get_option(of_one));
    }
  }
  // Each bug is planted in the reference, and judged by every property.
  for (const char* other : {"--minutes", "--corpus", "--keep-going", "--resume", "--first",
                            "--subject", "--property"}) {
    command.get_option("--bugs")->excludes(command.get_option(other));
  }
}

}  // namespace

void AddVerify(CLI::App& app, const std::vector<std::string>& command_line, int* exit_code) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* command = app.add_subcommand(
      "verify", "Load, shard, save and restore a model on several ranks, and judge every step");
  command->group(kFrameworkDoor);
  AddModelOptions(*command, *arguments);
  AddRankOptions(*command, *arguments);
  AddPipelineOptions(*command, *arguments);
  AddFrameworkOptions(*command, *arguments);
  AddFaultOptions(*command, *arguments);
  AddOutputOptions(*command, arguments->execute);
  command
      ->add_option("--save-to", arguments->execute.save_to,
                   "Keep the saved checkpoint in this directory. If the reference takes optimizer "
                   "steps, each save has its own subdirectory and the file latest names the newest")
      ->check(NotEmpty)
      ->type_name("DIR")
      ->group(kResults);
  AddGeneratedOptions(*command, *arguments);
  ExcludeCombinations(*command);
  command->footer(
      "Every difference is reported with its rank, tensor and element. Shardproof starts the "
      "ranks\n"
      "itself, or uses those of a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and "
      "MASTER_PORT.\n"
      "Examples:\n"
      "  shardproof verify --checkpoint DIR --world 4 --report out\n"
      "  shardproof verify --subject verify/subjects/fsdp2.py --checkpoint DIR\n"
      "  torchrun --no-python --nproc-per-node 4 shardproof verify --checkpoint DIR\n"
      "  shardproof verify --generate 100");
  command->callback([arguments, command_line, exit_code, command] {
    arguments->execute.command_line = command_line;
    const bool many = arguments->soak.cases || arguments->soak.minutes || !arguments->bugs.empty();
    for (const char* option : kOfGenerated) {
      if (command->get_option(option)->count() == 0 || many) continue;
      *exit_code = Complain(BadInput(fmt::format(
          "{} applies to generated cases: expected --generate N or --minutes M with it", option)));
      return;
    }
    *exit_code = RunVerify(*arguments);
  });
}

}  // namespace shardproof
