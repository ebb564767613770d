// shardproof audit and seal: is a checkpoint all there, and are its bytes still those that were
// sealed?
#include "verify/audit/audit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "verify/case/json_fields.h"
#include "verify/cli/files/files.h"
#include "verify/compare/amounts.h"
#include "verify/oracle/quote.h"
#include "verify/process/outputs.h"

namespace shardproof {
namespace {

constexpr int kExitSound = 0;
constexpr int kExitNotSound = 1;

struct AuditArguments {
  std::string path;
  std::string seal;
  std::string json;
  bool all = false;
  bool finite = false;
  bool latest_good = false;
  bool replace = false;
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

Result<AuditResult> AuditAsAsked(const std::string& path, const AuditArguments& arguments) {
  const std::string own = SealPath(path);
  const std::string& seal = arguments.seal.empty() ? own : arguments.seal;
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(seal, ignored));
  const bool is_sealed = is_there || !arguments.seal.empty();
  const auto audit = [&](AuditSums sums) -> Result<AuditResult> {
    SP_ASSIGN(AuditResult result, Audit(path, sums));
    if (is_sealed) SP_TRY(HoldAgainstSeal(seal, result));
    return result;
  };
  // One sum of every byte is enough to tell that none has changed. Of one that has, the CRC-32 of
  // an archive's entry says where it is.
  const bool is_for_machines = !arguments.json.empty();
  const AuditSums enough{.digests = is_sealed || is_for_machines,
                         .crcs = !is_sealed || seal != own || is_for_machines};
  SP_ASSIGN(AuditResult result, audit(enough));
  if (!result.IsSound() && !enough.crcs) {
    SP_ASSIGN(result, audit({}));
  }
  if (arguments.finite) JudgeFinite(result);
  return result;
}

int RunAudit(const AuditArguments& arguments) {
  const Status apart = CheckNotOf(arguments.json, arguments.path, "--json");
  if (!apart.ok()) return Refuse(apart.error());
  const auto result = AuditAsAsked(arguments.path, arguments);
  if (!result.ok()) return Refuse(result.error());
  const Status shown = ShowResult(AuditText(result.value(), arguments.all),
                                  DumpJson(AuditJson(result.value()), 2) + "\n", arguments.json);
  if (!shown.ok()) return Refuse(shown.error());
  return result.value().IsSound() ? kExitSound : kExitNotSound;
}

/// Prints the newest checkpoint that is sound; why newer ones are not goes to stderr.
int RunLatestGood(const AuditArguments& arguments) {
  const auto checkpoints = CheckpointsOf(arguments.path);
  if (!checkpoints.ok()) return Refuse(checkpoints.error());
  const auto& [paths, others] = checkpoints.value();
  if (!others.empty()) {
    fmt::print(stderr, "shardproof: {}: passed over, being no checkpoints: {}\n", arguments.path,
               oracle::Printable(fmt::format("{}", fmt::join(others, ", "))));
  }
  for (const std::string& path : paths) {
    const auto result = AuditAsAsked(path, arguments);
    if (result.ok() && result.value().IsSound()) {
      fmt::print("{}\n", path);
      return kExitSound;
    }
    fmt::print(stderr, "shardproof: {}: {}\n", path,
               result.ok() ? "not sound: " + result.value().damage.front()
                           : "unreadable: " + result.error().message);
  }
  fmt::print(stderr, "shardproof: {}: expected a sound checkpoint, found none among {}\n",
             arguments.path, paths.size());
  return kExitNotSound;
}

int RunSeal(const AuditArguments& arguments) {
  auto result = Audit(arguments.path);
  if (!result.ok()) return Refuse(result.error());
  AuditResult& audited = result.value();
  const std::string path = arguments.seal.empty() ? SealPath(arguments.path) : arguments.seal;
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, ignored)) &&
      audited.IsSound()) {
    // What is replaced must be a seal; and one that does not hold says what a new one would hide.
    AuditResult held = audited;
    if (const Status read = HoldAgainstSeal(path, held); !read.ok()) return Refuse(read.error());
    if (!held.IsSound() && !arguments.replace) {
      fmt::print(stderr, "shardproof: {}: does not hold: {}; --replace seals what is there now\n",
                 path, held.damage.front());
      return kExitNotSound;
    }
  }
  const Status written = WriteSeal(audited, path);
  if (!written.ok()) {
    Refuse(written.error());
    return audited.IsSound() ? kExitBadInput : kExitNotSound;
  }
  fmt::print("sealed {} and {} in {}\n", Count(audited.tensors.size(), "tensor"),
             Count(audited.values.size(), "value"), path);
  return kExitSound;
}

}  // namespace

void AddAudit(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<AuditArguments>();
  CLI::App* command =
      app.add_subcommand("audit", "Is a checkpoint complete, readable, and what was sealed?");
  command
      ->add_option("CHECKPOINT", arguments->path,
                   "A directory or file of safetensors or torch.save, a directory of DCP;\n"
                   "with --latest-good the directory that has them")
      ->required()
      ->check(NotEmpty);
  command->add_option("--seal", arguments->seal, "The seal to hold it against, if not its own")
      ->check(NotEmpty);
  command->add_flag("--finite", arguments->finite, "NaN and Inf make it unsound");
  command->add_flag("--all", arguments->all, "Show every tensor and value");
  command->add_option("--json", arguments->json, "File for the result as JSON; - is stdout")
      ->check(NotEmpty);
  command->add_flag("--latest-good", arguments->latest_good,
                    "Print the newest checkpoint in the directory that is sound");
  command->footer(
      "Exit codes: 0 sound, 1 not (what is there can be read, and is not as it says), 2 "
      "unreadable.");
  command->callback([arguments, exit_code] {
    *exit_code = arguments->latest_good ? RunLatestGood(*arguments) : RunAudit(*arguments);
  });
}

void AddSeal(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<AuditArguments>();
  CLI::App* command =
      app.add_subcommand("seal", "Write a checkpoint's digests down, for audit to hold it against");
  command->add_option("CHECKPOINT", arguments->path, "As for audit")->required()->check(NotEmpty);
  command
      ->add_option("--to", arguments->seal,
                   "The seal's file, if not shardproof.seal.json in the directory\n"
                   "(FILE.shardproof.seal.json beside a file)")
      ->check(NotEmpty);
  command->add_flag("--replace", arguments->replace, "Also over a seal that does not hold");
  command->footer("Exit codes: 0 sealed, 1 not sound and so not sealed, 2 unreadable.");
  command->callback([arguments, exit_code] { *exit_code = RunSeal(*arguments); });
}

}  // namespace shardproof
