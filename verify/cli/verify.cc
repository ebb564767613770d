// shardproof verify: load, shard, save and restore a model on several ranks, and judge it.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "verify/cli/command.h"
#include "verify/cli/execute.h"
#include "verify/cli/generated.h"
#include "verify/cli/verify_arguments.h"
#include "verify/launch/started_ranks.h"

namespace shardproof {
namespace {

/// The options that are only about generated cases.
constexpr const char* kOfGenerated[] = {"--first",  "--only", "--corpus",     "--keep-going",
                                        "--resume", "--jobs", "--shrink-runs"};

/// Of generated cases; what says what one case is has no meaning for them.
Result<SoakArguments> SoakFrom(const VerifyArguments& arguments) {
  SoakArguments soak = arguments.soak;
  if (arguments.world && (*arguments.world < 1 || *arguments.world > kRanksMax)) {
    return BadInput(
        fmt::format("--world: expected 1 to {} ranks, found {}", kRanksMax, *arguments.world));
  }
  Case given;
  SP_TRY(SetGivenFields(arguments, given));
  soak.seed = given.seed;
  soak.world = arguments.world.value_or(0);
  if (arguments.IsGiven("transport")) soak.transport = given.transport;
  if (given.subject != kReference) soak.subject = given.subject;
  soak.bug = arguments.bugs.empty() ? given.bug : arguments.bugs;
  soak.execute = arguments.execute;
  return soak;
}

/// Which options of a gate many cases cannot have.
Status CheckGateOfMany(const VerifyArguments& arguments) {
  const gate::Options& gate = arguments.execute.gate;
  if (!arguments.bugs.empty() && gate.Any()) {
    return BadInput(
        "--bugs says which bugs are seen and has no verdict of a job: it cannot be combined with "
        "the options of a gate");
  }
  if (gate.known.empty()) return Ok();
  return BadInput(
      "--known applies to the findings of one case: it cannot be combined with generated cases");
}

int RunVerify(const VerifyArguments& arguments) {
  if (!arguments.bugs.empty() || arguments.soak.cases || arguments.soak.minutes) {
    const Status alone = RefuseStartedRanks("generated cases run");
    if (!alone.ok()) return Complain(alone.error());
    const auto soak = SoakFrom(arguments);
    if (!soak.ok()) return Complain(soak.error());
    if (const Status fits = CheckGateOfMany(arguments); !fits.ok()) return Complain(fits.error());
    return arguments.bugs.empty() ? RunSoak(soak.value()) : RunAdequacy(soak.value());
  }
  const int sources = arguments.IsGiven("model/checkpoint") + !arguments.case_file.empty();
  const bool is_drawn = IsDrawn(arguments);
  if (sources > 1 || (sources == 0 && !arguments.IsGiven("bug") && !is_drawn)) {
    return Complain(BadInput(fmt::format(
        "verify: expected one of --checkpoint DIR, --case FILE, --bug ID or --generate N, found {}",
        sources > 1 ? "--checkpoint and --case" : "none")));
  }
  const auto test_case = CaseFrom(arguments);
  if (!test_case.ok()) {
    fmt::print(stderr, "shardproof: {}\n", test_case.error().message);
    return kExitBadInput;
  }
  ExecuteOptions execute = arguments.execute;
  execute.mesh_is_asked = arguments.IsGiven("mesh");
  execute.is_drawn = is_drawn;
  return Execute(test_case.value(), execute);
}

}  // namespace

void AddVerify(CLI::App& app, const std::vector<std::string>& command_line, int* exit_code) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* command = app.add_subcommand(
      "verify", "Load, shard, save and restore a model on several ranks, and judge every step");
  command->group(kFrameworkDoor);
  AddVerifyOptions(*command, *arguments);
  command->footer(
      "Every difference is reported with its rank, tensor and element. Shardproof starts the "
      "ranks\n"
      "itself, or uses those of a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and "
      "MASTER_PORT.\n"
      "Examples:\n"
      "  shardproof verify --checkpoint DIR --world 4 --report out\n"
      "  shardproof verify --subject verify/subjects/fsdp2.py --checkpoint DIR\n"
      "  torchrun --no-python --nproc-per-node 4 shardproof verify --checkpoint DIR\n"
      "  shardproof verify --generate 100\n"
      "To compare two releases or checkouts of a framework (--base X --head Y --help shows more):\n"
      "  shardproof verify --subject FILE --base accelerate==1.14.0 --head accelerate==1.15.0\n" +
      std::string(kExitCodesHelp));
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
