// What options `shardproof verify` has, and which exclude each other.
#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "verify/cli/command.h"
#include "verify/cli/verify_arguments.h"

namespace shardproof {
namespace {

constexpr uint64_t kCasesMax = 1'000'000'000'000;
constexpr uint64_t kJobsMax = 1024;
constexpr double kMinutesMin = 1e-4;
constexpr double kMinutesMax = 1e6;
constexpr double kDeadlineMin = 0.001;  // seconds
constexpr double kDeadlineMax = 24 * 60 * 60;

constexpr const char* kModel = "Model";
constexpr const char* kRanks = "Ranks";
constexpr const char* kPipeline = "Reference pipeline";
constexpr const char* kFramework = "A framework instead of the reference pipeline";
constexpr const char* kFaults = "Faults";
constexpr const char* kGenerated = "Generated cases";

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
  command
      .add_flag_callback(
          "--no-confirm", [&arguments] { arguments.execute.confirms = false; },
          "Report a failure at once; by default, what failed must fail again in fresh processes")
      ->needs("--subject")
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

/// What has no meaning together is told when it is used.
void ExcludeCombinations(CLI::App& command) {
  for (const char* of_one : {"--checkpoint",  "--case",         "--adapter",
                             "--lora",        "--from-scratch", "--mesh",
                             "--resume-mesh", "--resume-world", "--strategy",
                             "--device",      "--optimizer",    "--inject",
                             "--kill",        "--stop",         "--judge-faults",
                             "--as-stated",   "--bucket-bytes", "--allow-missing",
                             "--option",      "--steps",        "--allow-unexpected",
                             "--deadline",    "--save-to",      "--no-confirm"}) {
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

void AddVerifyOptions(CLI::App& command, VerifyArguments& arguments) {
  AddModelOptions(command, arguments);
  AddRankOptions(command, arguments);
  AddPipelineOptions(command, arguments);
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
