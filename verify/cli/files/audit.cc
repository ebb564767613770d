// shardproof audit and seal: is a checkpoint all there, and are its bytes still those that were
// sealed?
#include "verify/audit/audit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/text/amounts.h"
#include "verify/audit/beside.h"
#include "verify/audit/config_fit.h"
#include "verify/audit/integrity.h"
#include "verify/audit/run.h"
#include "verify/audit/signed_by.h"
#include "verify/case/json_fields.h"
#include "verify/cli/common/app.h"
#include "verify/cli/common/gating.h"
#include "verify/cli/common/places.h"
#include "verify/cli/files/files.h"
#include "verify/cli/files/outcomes.h"
#include "verify/compare/like.h"
#include "verify/formats/archive.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"
#include "verify/oracle/tree.h"
#include "verify/process/outputs.h"

namespace shardproof {
namespace {

constexpr int kExitSound = 0;
constexpr int kExitNotSound = 1;

int ExitOf(const AuditResult& result) {
  if (result.IsDamaged()) return kExitNotSound;
  return result.IsSound() ? kExitSound : kExitInconclusive;
}

struct AuditArguments {
  std::string path;
  std::string seal;
  std::string json;
  std::vector<std::string> allow_same;
  std::string python = FindPlaces().python;
  bool config = false;
  std::string like;
  std::string signed_by;
  std::vector<std::string> maps;
  bool all = false;
  bool finite = false;
  bool headers = false;
  bool latest_good = false;
  bool replace = false;
  bool integrity = false;
  gate::Options gate;
};

/// With --finite, NaN and Inf are damage.
void JudgeFinite(AuditResult& result) {
  for (const AuditedTensor& tensor : result.tensors) {
    if (tensor.nan_count + tensor.inf_count == 0) continue;
    result.damage.push_back(fmt::format("tensor '{}': {} NaN and {} Inf among {} elements",
                                        tensor.name, tensor.nan_count, tensor.inf_count,
                                        tensor.elements));
  }
}

/// \param to_compare  with digests, so that it can be held against another step.
Result<AuditResult> AuditAsAsked(const std::string& path, const AuditArguments& arguments,
                                 bool to_compare = false) {
  const std::string own = SealPath(path);
  const std::string& seal = arguments.seal.empty() ? own : arguments.seal;
  const bool is_there = oracle::IsThere(seal);
  const bool is_sealed = (is_there && !arguments.headers) || !arguments.seal.empty();
  const auto audit = [&](AuditSums sums) -> Result<AuditResult> {
    SP_ASSIGN(AuditResult result, Audit(path, sums));
    if (is_sealed) SP_TRY(HoldAgainstSeal(seal, result));
    return result;
  };
  // One sum of every byte is enough to tell that none has changed. Of one that has, the CRC-32 of
  // an archive's entry says where it is.
  const bool is_for_machines = !arguments.json.empty();
  const AuditSums enough{.digests = is_sealed || is_for_machines || to_compare,
                         .crcs = !is_sealed || seal != own || is_for_machines,
                         .values = !arguments.headers};
  SP_ASSIGN(AuditResult result, audit(enough));
  if (result.IsDamaged() && !enough.crcs && enough.values) {
    SP_ASSIGN(result, audit({}));
  }
  SP_TRY(formats::CheckUrls());
  if (arguments.finite) JudgeFinite(result);
  if (!arguments.signed_by.empty()) {
    SP_TRY(HoldSignature(arguments.python, FindPlaces().package, arguments.signed_by, result));
  }
  if (arguments.config) HoldConfig(arguments.python, FindPlaces().package, result);
  if (!arguments.like.empty()) {
    SP_ASSIGN(const auto unlike, UnlikeLines(arguments.like, path, arguments.maps));
    result.damage.insert(result.damage.end(), unlike.begin(), unlike.end());
  }
  return result;
}

/// An archive or a URL, mounted: looked at before it is known what it holds.
Status Mounted(const AuditArguments& arguments) {
  formats::ReadUrlsBy({arguments.python, FindPlaces().package + "/_programs/_urls.py"});
  formats::ReadOrbaxBy({arguments.python, FindPlaces().package + "/_programs/_orbax.py"});
  return formats::MountPlace(arguments.path);
}

/// \error kBadInput if it is no run itself and holds several: which one is meant?
Status CheckOneRun(const std::string& path) {
  if (IsRun(path)) return Ok();
  const std::vector<std::string> runs = RunsIn(path);
  if (runs.empty()) return Ok();
  return BadInput(fmt::format("{}: expected one checkpoint or run, found folders that are runs: {}",
                              path, oracle::Printable(fmt::format("{}", fmt::join(runs, ", ")))));
}

int RunAuditOfRun(const AuditArguments& arguments) {
  for (const auto& [is_asked, option] :
       {std::pair(arguments.config, "--config"), std::pair(arguments.finite, "--finite"),
        std::pair(!arguments.like.empty(), "--like")}) {
    if (!is_asked) continue;
    return Refuse(
        BadInput(fmt::format("{} is for one checkpoint, and {} holds several: expected "
                             "the path of one of them",
                             option, arguments.path)));
  }
  const auto gate = OpenGate(arguments.gate, {arguments.path}, arguments.json);
  if (!gate.ok()) return Refuse(gate.error());
  const auto result = AuditRun(arguments.path, arguments.allow_same, arguments.headers);
  if (!result.ok()) return Refuse(result.error());
  if (const Status same = formats::CheckUrls(); !same.ok()) return Refuse(same.error());
  const auto& steps = result.value().steps;
  const bool is_judged = std::all_of(steps.begin(), steps.end(),
                                     [](const RunStep& step) { return step.unjudged.empty(); });
  const int exit_code = !result.value().IsSound() ? kExitNotSound
                        : is_judged               ? kExitSound
                                                  : kExitInconclusive;
  const auto code = Conclude(gate.value(), OutcomeOfRunAudit(result.value(), exit_code),
                             RunText(result.value()), RunJson(result.value()), arguments.json);
  return code.ok() ? code.value() : Refuse(code.error());
}

int DoAudit(const AuditArguments& arguments) {
  const Status apart = CheckNotOf(arguments.json, arguments.path, "--json");
  if (!apart.ok()) return Refuse(apart.error());
  if (const Status mounted = Mounted(arguments); !mounted.ok()) return Refuse(mounted.error());
  const bool may_be_run = arguments.seal.empty() && arguments.signed_by.empty();
  if (may_be_run && IsRun(arguments.path)) return RunAuditOfRun(arguments);
  if (const Status one = CheckOneRun(arguments.path); !one.ok()) return Refuse(one.error());
  const auto gate = OpenGate(arguments.gate, {arguments.path}, arguments.json);
  if (!gate.ok()) return Refuse(gate.error());
  const auto result = AuditAsAsked(arguments.path, arguments);
  if (!result.ok()) return Refuse(result.error());
  const auto code =
      Conclude(gate.value(), OutcomeOfAudit(result.value(), ExitOf(result.value())),
               AuditText(result.value(), arguments.all), AuditJson(result.value()), arguments.json);
  return code.ok() ? code.value() : Refuse(code.error());
}

void TellSkipped(const std::string& path, const std::vector<std::string>& others) {
  if (others.empty()) return;
  fmt::print(stderr, "shardproof: {}: skipped, not checkpoints: {}\n", path,
             oracle::Printable(fmt::format("{}", fmt::join(others, ", "))));
}

/// \error kBadInput if it holds several runs, or the files there are those of one step: a job's
/// state beside its model.
Result<CheckpointList> CheckpointsOfRun(const std::string& path) {
  SP_TRY(CheckOneRun(path));
  SP_ASSIGN(CheckpointList list, CheckpointsOf(path));
  const auto is_state = [](const std::string& file) {
    return IsResumedFrom(file.substr(file.rfind('/') + 1)) && !oracle::IsDirectory(file);
  };
  if (!IsRun(path) && std::any_of(list.paths.begin(), list.paths.end(), is_state)) {
    return BadInput(fmt::format("{}: expected the directory of a run, found one checkpoint", path));
  }
  return list;
}

/// Why a job cannot resume from a sound step, seen beside an older one; empty: it can.
std::string WhyNotResumedFrom(const AuditResult& older, const AuditResult& newer) {
  if (!HasOptimizer(newer) && HasOptimizer(older)) {
    return fmt::format(
        "cannot be resumed from: holds the model alone, and {} holds state of an optimizer, too",
        older.path);
  }
  const std::string unlike = UnlikeEarlier(older, newer);
  return unlike.empty() ? ""
                        : fmt::format("its tensors are not those of {}: {}", older.path,
                                      oracle::Printable(unlike));
}

/// Prints the newest checkpoint that a job can resume from; why not from newer ones goes to stderr.
int RunLatestGood(const AuditArguments& arguments) {
  if (arguments.gate.Any()) {
    return Refuse(BadInput(
        "--latest-good prints one path: it cannot be combined with the options of a gate"));
  }
  if (const Status mounted = Mounted(arguments); !mounted.ok()) return Refuse(mounted.error());
  const auto checkpoints = CheckpointsOfRun(arguments.path);
  if (!checkpoints.ok()) return Refuse(checkpoints.error());
  const auto& [paths, others] = checkpoints.value();
  TellSkipped(arguments.path, others);
  std::optional<AuditResult> newer;  // sound, and not known yet to differ from an older one
  bool stands_still = false;         // what is newer was bit for bit an older one
  const auto print = [&](const AuditResult& good) {
    for (const std::string& line : good.unjudged)
      fmt::print(stderr, "shardproof: {}: not judged: {}\n", good.path, line);
    for (const std::string& line : FindingsOfRoot(arguments.path, paths, good.path))
      fmt::print(stderr, "shardproof: {}\n", line);
    fmt::print("{}\n", good.path);
    return ExitOf(good);
  };
  RunFiles files;
  for (const std::string& path : paths) {
    const std::vector<std::string> lacks = files.LackingOf(path, paths);
    if (!lacks.empty()) {
      if (!newer) {
        fmt::print(stderr, "shardproof: {}: cannot be resumed from: lacks {}, which others have\n",
                   path, oracle::Printable(fmt::format("{}", fmt::join(lacks, ", "))));
      }
      continue;
    }
    auto result = AuditAsAsked(path, arguments, /*to_compare=*/!arguments.headers);
    if (!result.ok() || result.value().IsDamaged()) {
      if (newer) continue;
      fmt::print(stderr, "shardproof: {}: {}\n", path,
                 result.ok() ? "not sound: " + result.value().damage.front()
                             : "unreadable: " + result.error().message);
      continue;
    }
    if (newer) {
      const std::string why = WhyNotResumedFrom(result.value(), *newer);
      if (!why.empty()) {
        fmt::print(stderr, "shardproof: {}: {}\n", newer->path, why);
        newer.reset();
      }
    }
    if (newer && arguments.headers) return print(*newer);
    if (newer) {
      const std::string same = SameAs(result.value(), *newer, arguments.allow_same);
      if (same.empty()) return print(*newer);
      fmt::print(stderr,
                 "shardproof: {}: its {} is bit for bit that of {}: training changed nothing\n",
                 newer->path, same, path);
      stands_still = true;
    }
    newer = std::move(result).value();
  }
  if (newer && !stands_still) return print(*newer);
  std::string why = "expected a directory of checkpoints, found no checkpoint in it";
  if (newer) {
    why = fmt::format(
        "expected a checkpoint that training has changed, found none: all that are "
        "sound hold what {} holds",
        newer->path);
  } else if (!paths.empty()) {
    why = fmt::format("expected a sound checkpoint, found none among {}", paths.size());
  }
  fmt::print(stderr, "shardproof: {}: {}\n", arguments.path, why);
  return kExitNotSound;
}

int RunSeal(const AuditArguments& arguments) {
  if (const Status mounted = Mounted(arguments); !mounted.ok()) return Refuse(mounted.error());
  // What is to be replaced need not hold.
  auto result = Audit(arguments.path, {.integrity = !arguments.integrity || !arguments.replace});
  if (!result.ok()) return Refuse(result.error());
  AuditResult& audited = result.value();
  if (const Status same = formats::CheckUrls(); !same.ok()) return Refuse(same.error());
  const std::string path = arguments.seal.empty() ? SealPath(arguments.path) : arguments.seal;
  if (oracle::IsMounted(path) || formats::IsUrl(path)) {
    return Refuse(BadInput(fmt::format(
        "{}: nothing is written into an archive or to a URL: expected a path after --to",
        oracle::Printable(path))));
  }
  if (oracle::IsThere(path) && !audited.IsDamaged()) {
    // What is replaced must be a seal; and one that does not hold says what a new one would hide.
    AuditResult held = audited;
    if (const Status read = HoldAgainstSeal(path, held); !read.ok()) return Refuse(read.error());
    if (held.IsDamaged() && !arguments.replace) {
      fmt::print(stderr,
                 "shardproof: {}: the checkpoint does not match this seal: {}; --replace seals it "
                 "as it is "
                 "now\n",
                 path, held.damage.front());
      return kExitNotSound;
    }
  }
  const Status written = WriteSeal(audited, path);
  if (!written.ok()) {
    Refuse(written.error());
    return audited.IsDamaged() ? kExitNotSound : kExitBadInput;
  }
  if (arguments.integrity) {
    const Status listed = WriteIntegrity(arguments.path);
    if (!listed.ok()) return Refuse(listed.error());
  }
  fmt::print("sealed {} and {} in {}\n", Count(audited.tensors.size(), "tensor"),
             Count(audited.values.size(), "value"), path);
  return kExitSound;
}

/// What other libraries are asked, each in a process of its own.
void AddAsking(CLI::App& command, AuditArguments& arguments) {
  command
      .add_option("--signed-by", arguments.signed_by,
                  "Check that SEAL.sig is the seal's signature by this public key")
      ->check(NotEmpty)
      ->type_name("FILE");
  command.add_flag(
      "--config", arguments.config,
      "Check keys and shapes against the model that Transformers builds from config.json");
  command
      .add_option("--python", arguments.python,
                  "Python interpreter that has Transformers, for --config, or model-signing")
      ->type_name("FILE");
}

}  // namespace

void AddAudit(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<AuditArguments>();
  CLI::App* command = AddFileCommand(app, "audit");
  command
      ->add_option("CHECKPOINT", arguments->path,
                   "A directory or file of safetensors or torch.save, a DCP directory, or the "
                   "directory that contains the checkpoints of a run")
      ->required()
      ->check(NotEmpty);
  auto* seal = command
                   ->add_option("--seal", arguments->seal,
                                "Check against this seal instead of the checkpoint's own")
                   ->check(NotEmpty)
                   ->type_name("FILE");
  AddAsking(*command, *arguments);
  auto* finite = command->add_flag("--finite", arguments->finite, "Report NaN and Inf as damage");
  command
      ->add_flag(
          "--headers", arguments->headers,
          "Read only the headers of the files and not the values, which is faster and finds less")
      ->excludes(seal)
      ->excludes(finite);
  command
      ->add_option("--like", arguments->like,
                   "Report names, shapes and dtypes that are not those of this other checkpoint")
      ->check(NotEmpty)
      ->type_name("CHECKPOINT");
  command
      ->add_option("--map", arguments->maps,
                   "With --like: how its tensors become those of CHECKPOINT, as compare takes it")
      ->check(NotEmpty)
      ->allow_extra_args(false)
      ->type_name("FILE|RULE");
  command->add_flag("--all", arguments->all, "Show every tensor and value");
  command->add_flag("--latest-good", arguments->latest_good,
                    "Print the newest checkpoint of a run that a job can resume from");
  command
      ->add_option("--allow-same", arguments->allow_same,
                   "In a run: tensors that training does not change, as a pattern with * and ?")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  command
      ->add_option("--json", arguments->json, "Write the result as JSON to this file; - is stdout")
      ->check(NotEmpty)
      ->type_name("FILE");
  AddGateOptions(*command, arguments->gate);
  command->footer(
      "Examples:\n"
      "  shardproof audit checkpoint/\n"
      "  shardproof audit runs/7/ --latest-good\n"
      "Exit codes: 0 sound, 1 not sound (readable, but damaged or changed), 2 unreadable,\n"
      "3 inconclusive (what may be weights could not be read).");
  command->callback([arguments, exit_code] {
    FindReadyMaps(arguments->maps);
    if (arguments->like.empty() && !arguments->maps.empty()) {
      *exit_code = Refuse(BadInput("--map: expected --like beside it, found none"));
      return;
    }
    *exit_code = arguments->latest_good ? RunLatestGood(*arguments) : DoAudit(*arguments);
  });
}

void AddSeal(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<AuditArguments>();
  CLI::App* command = AddFileCommand(app, "seal");
  command
      ->add_option("CHECKPOINT", arguments->path,
                   "A directory or file of safetensors or torch.save, or a DCP directory")
      ->required()
      ->check(NotEmpty);
  command
      ->add_option("--to", arguments->seal,
                   "Write the seal to this file (default: shardproof.seal.json in a directory, "
                   "FILE.shardproof.seal.json beside a file)")
      ->check(NotEmpty)
      ->type_name("FILE");
  command->add_flag("--replace", arguments->replace,
                    "Replace an existing seal that the checkpoint no longer matches");
  command->add_flag("--integrity", arguments->integrity,
                    "Also write integrity.json, the SHA-256 of each file, as Megatron-LM reads it");
  command->footer(
      "Example:\n"
      "  shardproof seal checkpoint/\n"
      "Exit codes: 0 sealed, 1 not sound and therefore not sealed, 2 unreadable.");
  command->callback([arguments, exit_code] { *exit_code = RunSeal(*arguments); });
}

}  // namespace shardproof
