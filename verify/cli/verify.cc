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
    return BadInput(
        fmt::format("--world {}: {} ranks were started (WORLD_SIZE)", *asked, *started));
  }
  return asked.value_or(started.value_or(4));
}

/// "dp_replicate=2,dp_shard=2"; or "2x2", which names the axes so. Sizes are checked with the Case.
Result<std::vector<AxisCase>> ParseMesh(const char* option, const std::string& text) {
  const auto complain = [&] {
    return BadInput(
        fmt::format("{} {}: expected AXIS=RANKS,... such as "
                    "dp_replicate=2,dp_shard=2, or 2x2 for just that and 2x2x2 with a "
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
    return BadInput(
        fmt::format("--option {}: expected NAME=VALUE, as the subject's OPTIONS says", text));
  }
  options[text.substr(0, equals)] = text.substr(equals + 1);
  return Ok();
}

/// What the options say of the model besides where its checkpoint is.
Status SetModel(const VerifyArguments& arguments, ModelCase& model) {
  const bool any = !arguments.adapter.empty() || !arguments.lora.empty() || arguments.from_scratch;
  if (any && model.checkpoint.empty()) {
    return BadInput(
        "--adapter, --lora and --from-scratch are of a model with a config.json: expected "
        "--checkpoint, or a case that names one");
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
    fmt::print(stderr, "shardproof: verify needs one of --checkpoint DIR, --case FILE, --bug ID\n");
    return kExitBadInput;
  }
  const auto test_case = CaseFrom(arguments);
  if (!test_case.ok()) {
    fmt::print(stderr, "shardproof: {}\n", test_case.error().message);
    return kExitBadInput;
  }
  return Execute(test_case.value(), arguments.execute);
}

}  // namespace

void AddVerify(CLI::App& app, const std::vector<std::string>& command_line, int* exit_code) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* command = app.add_subcommand(
      "verify", "Load, shard, save and restore a model on several ranks, and judge every step");
  command
      ->add_option("--checkpoint", arguments->checkpoint,
                   "Hugging Face directory: config.json and safetensors")
      ->check(NotEmpty);
  command
      ->add_option("--adapter", arguments->adapter,
                   "PEFT directory of a LoRA adapter of that model, loaded with it")
      ->check(NotEmpty);
  command->add_option(
      "--lora", arguments->lora,
      "RANK:TARGET,...: a LoRA adapter that begins here, such as 8:q_proj,v_proj or\n"
      "8:all-linear");
  command->add_flag("--from-scratch", arguments->from_scratch,
                    "Of the checkpoint, read only config.json: every tensor is initialised");
  command->add_option("--case", arguments->case_file,
                      "Case JSON (fixtures/schema/case.schema.json)");
  command->add_option("--world", arguments->world, "Ranks: default 4, or what torchrun started");
  command->add_option("--resume-world", arguments->resume_world,
                      "Ranks to restore on besides (default: one fewer; 2 if there is one)");
  command
      ->add_option("--resume-mesh", arguments->resume_mesh,
                   "Mesh to restore on besides instead, as --mesh has it: 2x2, tp=4")
      ->excludes("--resume-world");
  command
      ->add_option("--mesh", arguments->mesh,
                   "Ranks as a mesh instead: dp_replicate=2,dp_shard=2, or 2x2 for\njust that; "
                   "2x2x2: tp besides")
      ->excludes("--world");
  command->add_option("--subject", arguments->subject,
                      "What to verify: reference (default), or a Python file with\n"
                      "def run(case, observe); see verify/subjects/README.md");
  command->add_option(
      "--python", arguments->execute.python,
      "Python that runs the subject (default: the one with the torch built against)");
  command->add_option("--option", arguments->options,
                      "NAME=VALUE: a way of working that the subject declares in OPTIONS.\n"
                      "May be repeated");
  command->add_option("--steps", arguments->steps,
                      "Optimizer steps of a subject that trains (default 4; 0: none). Halfway it\n"
                      "saves, and goes on once as it is and once from what was saved");
  command->add_option(
      "--strategy", arguments->strategy,
      "rank0-broadcast (default): rank 0 reads, the others take their shards off\n"
      "the same buckets; rank0-scatter: rank 0 sends each its own; each-reads-own:\n"
      "every rank reads its shards; plain: every rank reads everything");
  command
      ->add_option("--transport", arguments->transport,
                   "gloo (default): ranks are processes; sim: threads of one process over a\n"
                   "simulated transport, in an order that follows from --seed")
      ->check(CLI::IsMember({"gloo", "sim"}));
  command->add_option(
      "--device", arguments->device,
      "Where tensors are: cpu (default); cuda, over NCCL; apart: host memory that only\n"
      "copies reach, as a GPU's, for machines without one");
  command->add_option(
      "--optimizer", arguments->optimizer,
      "before-sharding: an optimizer of the loaded model is unbound, and bound to its\n"
      "shards when they are ready. Default: none");
  command->add_option("--inject", arguments->inject,
                      "Inject a fault, ID@WHERE: file/flip@TENSOR:INDEX, comm/swap-rows@TENSOR,\n"
                      "buffer/nan@NAME; see 'shardproof list faults'. May be repeated");
  command->add_option(
      "--kill", arguments->kill,
      "RANK@STAGE: that rank is killed when it has reached the stage; likewise\n"
      "RANK@STAGE@STEP, and RANK@#N before its N-th collective. As --inject rank/kill@...");
  command->add_option("--stop", arguments->stop,
                      "RANK@STAGE: that rank stops then, and never answers again");
  command->add_flag(
      "--as-stated", arguments->as_stated,
      "Judge what comes of the faults, as 'list faults' states it of each, and nothing else:\n"
      "a job that ends as it must under them passes");
  command->add_option(
      "--bug", arguments->bug,
      "Plant a known mistake in the reference pipeline; see 'shardproof list bugs'.\n"
      "Without --checkpoint or --case: on the smallest case that shows it");
  command->add_option("--seed", arguments->seed, "Seed of initial values (default 0)")
      ->check(IsNatural);
  command
      ->add_option("--bucket-bytes", arguments->bucket_bytes,
                   "Staging bytes a rank may hold at once (default 16 MiB)")
      ->check(IsNatural);
  command
      ->add_option("--deadline", arguments->deadline_seconds,
                   "Seconds without progress after which a rank hangs (default 60)")
      ->check(RealFrom(kDeadlineMin, kDeadlineMax, "seconds"));
  command->add_option("--allow-missing", arguments->allow_missing,
                      "A tensor that the checkpoint may lack: it is initialised. May be repeated");
  command->add_option("--allow-unexpected", arguments->allow_unexpected,
                      "A tensor that the checkpoint may hold besides. May be repeated");
  CLI::App* soak = command->add_option_group("Generated cases");
  soak->add_option("--generate", arguments->soak.cases,
                   "Run so many generated cases of --seed, of any "
                   "model, mesh and strategy;\n--world and --transport (default sim) hold for all")
      ->check(CLI::Range(uint64_t{1}, kCasesMax));
  soak->add_option("--minutes", arguments->soak.minutes, "Run generated cases for so long")
      ->check(RealFrom(kMinutesMin, kMinutesMax, "minutes"));
  soak->add_option("--first", arguments->soak.first,
                   "Begin with the case of this index (default 0)")
      ->check(CLI::Range(uint64_t{0}, kCasesMax));
  soak->add_option("--corpus", arguments->soak.corpus,
                   "Directory of case files that are run before")
      ->check(CLI::ExistingDirectory);
  soak->add_flag("--keep-going", arguments->soak.keep_going,
                 "Do not end with the first case that does not pass");
  soak->add_flag("--resume", arguments->soak.resume, "Go on from what the file of --json has");
  soak->add_option("--jobs", arguments->soak.jobs,
                   "Cases side by side (default: one a core, two where ranks are processes; one of "
                   "a subject)")
      ->check(CLI::Range(uint64_t{1}, kJobsMax));
  soak->add_option("--shrink-runs", arguments->soak.shrink_runs,
                   "Runs to find the smallest failing case in (default 500, of a subject 60)")
      ->check(CLI::Range(uint64_t{0}, kCasesMax));
  soak->add_option("--bugs", arguments->bugs,
                   "all, or ids: plant each in generated cases (--generate: at most so many of "
                   "each, default\n"
                   "400), shrink, and tell which properties see it; --report: directory for the "
                   "smallest cases")
      ->check(NotEmpty)
      ->excludes(command->get_option("--bug"));
  AddOutputOptions(*command, arguments->execute);
  command
      ->add_option("--save-to", arguments->execute.save_to,
                   "Keep the saved checkpoint in this directory; of a reference that takes steps,\n"
                   "each save in a directory of its own below it, and latest names the newest")
      ->check(NotEmpty);
  for (const char* of_one : {"--checkpoint",   "--case",          "--adapter",
                             "--lora",         "--from-scratch",  "--mesh",
                             "--resume-mesh",  "--resume-world",  "--strategy",
                             "--device",       "--optimizer",     "--inject",
                             "--kill",         "--stop",          "--as-stated",
                             "--bucket-bytes", "--allow-missing", "--allow-unexpected",
                             "--steps",        "--option",        "--deadline",
                             "--save-to"}) {
    soak->get_option("--generate")->excludes(command->get_option(of_one));
    soak->get_option("--minutes")->excludes(command->get_option(of_one));
    soak->get_option("--bugs")->excludes(command->get_option(of_one));
  }
  // Each bug is planted in the reference, and judged by every property.
  for (const char* of_stream : {"--minutes", "--corpus", "--keep-going", "--resume", "--first"}) {
    soak->get_option("--bugs")->excludes(soak->get_option(of_stream));
  }
  for (const char* of_subject : {"--subject", "--property"}) {
    soak->get_option("--bugs")->excludes(command->get_option(of_subject));
  }
  command->footer(
      "Every difference is named to the rank, the tensor and the element. Ranks are forked here, "
      "or,\n"
      "if RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set, are the ones that were started:\n"
      "  torchrun --no-python --nproc-per-node 4 shardproof verify --checkpoint DIR");
  command->callback([arguments, command_line, exit_code, soak] {
    arguments->execute.command_line = command_line;
    const bool many = arguments->soak.cases || arguments->soak.minutes || !arguments->bugs.empty();
    for (const CLI::Option* option : soak->get_options()) {
      if (option->count() == 0 || many) continue;
      *exit_code = Complain(BadInput(option->get_name() +
                                     " is about generated cases: expected --generate N or "
                                     "--minutes M beside it"));
      return;
    }
    *exit_code = RunVerify(*arguments);
  });
}

}  // namespace shardproof
