// What the names of a run's files say: which step lacks what, and what a pointer names.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "verify/audit/beside.h"
#include "verify/audit/run.h"
#include "verify/formats/archive.h"
#include "verify/formats/composite.h"
#include "verify/formats/stored.h"
#include "verify/oracle/header.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using oracle::Printable;
using oracle::Quote;

constexpr int kDepthMax = 2;
constexpr size_t kFilesMax = 100'000;
constexpr uint64_t kPointerBytesMax = 4096;
constexpr const char* kNumberedRandomState = "rng_state_#.pth";
constexpr size_t kSiblingsMax = 8;  // that a step is held against: its neighbours

/// The first line of a file; empty if it cannot be read.
std::string LineOf(const std::string& path) {
  const auto text = oracle::ReadWholeFile(path, kPointerBytesMax);
  if (!text.ok()) return "";
  std::string line = text.value().substr(0, text.value().find('\n'));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.pop_back();
  return line;
}

std::string NumberAtEnd(const std::string& stem) {
  return stem.substr(stem.find_last_not_of("0123456789") + 1);
}

/// What is wrong with a link that stands for a checkpoint, such as "last"; empty if nothing is.
std::string WrongLink(const oracle::DirectoryEntry& link, const std::vector<std::string>& paths,
                      const std::string& whole) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link.path, error);
  if (error || target.empty()) return "";
  const std::string named = target.filename().string();
  if (!oracle::Exists(link.path)) {
    const bool is_step = formats::MayBeStepName(named) || formats::MayBeStepName(link.name) ||
                         formats::IsNamedAsWeights(named);
    if (!is_step || link.name.starts_with('.')) return "";
    return fmt::format("{}: expected a link to a checkpoint that is there, found one to {}",
                       Printable(link.path), Quote(target.string()));
  }
  const std::string stem = fs::path(link.name).stem().string();
  const auto is = [](const std::string& name) {
    return [name](const std::string& path) { return fs::path(path).filename().string() == name; };
  };
  const std::string newest = fs::path(whole).filename().string();
  if ((stem != "last" && stem != "latest") || whole.empty() || named == newest ||
      std::none_of(paths.begin(), paths.end(), is(named)) || StepOf(named) == StepOf(newest))
    return "";
  return fmt::format(
      "{}: expected a link to {}, the newest checkpoint that is whole, found one to "
      "{}",
      Printable(link.path), Quote(newest), Quote(named));
}

bool IsOfModel(const std::string& name) {
  return formats::IsNamedAsWeights(name) && name != "training_args.bin";
}

}  // namespace

std::string WithoutNumbers(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit)
      out += c;
    else if (out.empty() || out.back() != '#')
      out += '#';
  }
  return out;
}

const RunFiles::Roles& RunFiles::RolesOf(const std::string& path) {
  const auto [known, is_new] = known_.try_emplace(path);
  Roles& roles = known->second;
  if (!is_new) return roles;
  size_t count = 0;
  (void)oracle::Walk(path, [&](const oracle::DirectoryEntry& entry) {
    if (++count > kFilesMax) return oracle::Next::kEnd;
    if (!entry.is_directory && IsResumedFrom(entry.name))
      roles[WithoutNumbers(entry.name)].insert(entry.name);
    else if (entry.is_file && entry.depth == 0 && IsOfModel(entry.name))
      roles[""].insert(entry.name);
    return entry.depth < kDepthMax ? oracle::Next::kInto : oracle::Next::kOver;
  });
  return roles;
}

std::vector<std::string> RunFiles::LackingOf(const std::string& path,
                                             const std::vector<std::string>& paths) {
  const Roles& own = RolesOf(path);
  std::map<std::string, std::vector<std::set<std::string>>> others;
  size_t count = 0;
  for (const std::string& other : paths) {
    if (other == path || !oracle::IsDirectory(other)) continue;
    const Roles& roles = RolesOf(other);
    const bool is_model_alone = roles.size() == roles.count("");
    if (is_model_alone) continue;  // as the last of a run often is
    for (const auto& [role, names] : roles) others[role].push_back(names);
    if (++count == kSiblingsMax) break;
  }
  std::vector<std::string> lacks;
  for (const auto& [role, sets] : others) {
    if (sets.size() * 2 <= count) continue;  // most of the others have it
    const auto found = own.find(role);
    if (found == own.end()) {
      lacks.push_back(*sets.front().begin());
      continue;
    }
    if (role.empty()) continue;  // in files of any name and number
    // One of many ranks' files: a run may go on with fewer ranks, and then has half of them or
    // less. The Trainer's of a single rank has no number, so that a numbered one is never alone.
    const std::set<std::string>& names = found->second;
    const std::set<std::string>& usual = sets.front();
    const bool all_alike =
        std::all_of(sets.begin(), sets.end(), [&](const auto& set) { return set == usual; });
    const bool is_alone = role == kNumberedRandomState && names.size() == 1;
    const bool may_be_fewer = names.size() * 2 <= usual.size() && !is_alone;
    if (!all_alike || names.size() >= usual.size() || may_be_fewer) continue;
    std::set_difference(usual.begin(), usual.end(), names.begin(), names.end(),
                        std::back_inserter(lacks));
  }
  return lacks;
}

std::vector<std::string> FindingsOfRoot(const std::string& root,
                                        const std::vector<std::string>& paths,
                                        const std::string& whole) {
  std::vector<std::string> findings;
  const std::string newest = fs::path(whole).filename().string();
  for (const char* name : {"latest_checkpointed_iteration.txt", "latest_ckpt_global_step.txt",
                           "latest", "latest.txt", "latest_checkpoint.txt"}) {
    const std::string path = root + "/" + name;
    if (!oracle::IsFile(path)) continue;
    const std::string named = LineOf(path);
    if (named == "release") continue;  // Megatron's word for a model that was converted
    const auto step = StepOf(fs::path(named).filename().string());
    const auto is_named = [&](const std::string& candidate) {
      const std::string other = fs::path(candidate).filename().string();
      return other == fs::path(named).filename().string() || (step && StepOf(other) == step);
    };
    if (std::none_of(paths.begin(), paths.end(), is_named)) {
      findings.push_back(
          fmt::format("{}: expected it to name a checkpoint that is there, found {}, which is not",
                      Printable(path), Quote(named)));
    } else if (!whole.empty() && !is_named(whole)) {
      findings.push_back(
          fmt::format("{}: expected it to name {}, the newest checkpoint that is whole, found {}",
                      Printable(path), Quote(newest), Quote(named)));
    }
  }
  (void)oracle::List(root, [&](const oracle::DirectoryEntry& entry) {
    if (!entry.is_link) return;
    std::string wrong = WrongLink(entry, paths, whole);
    if (!wrong.empty()) findings.push_back(std::move(wrong));
  });
  if (paths.size() < 2) return findings;
  (void)oracle::List(root, [&](const oracle::DirectoryEntry& entry) {
    const bool is_state = entry.is_file && formats::IsNamedAsTorchSave(entry.name) &&
                          IsResumedFrom(entry.name) &&
                          std::find(paths.begin(), paths.end(), entry.path) == paths.end();
    if (!is_state) return;
    findings.push_back(
        fmt::format("{}: expected the state of a job in its checkpoints, found it beside {} of "
                    "them: it is of one of them at most",
                    Printable(entry.path), paths.size()));
  });
  std::sort(findings.begin(), findings.end());
  return findings;
}

bool IsRun(const std::string& directory) {
  size_t steps = 0;
  std::set<std::string> files;   // of several steps: those of one may be its ranks'
  std::set<std::string> others;  // the numbers at the end of other files' names
  bool has_model = false, has_weights = false;
  const Status listed = oracle::List(directory, [&](const oracle::DirectoryEntry& entry) {
    const std::string& name = entry.name;
    if (entry.is_directory) {
      steps += formats::MayBeStepName(name) && !entry.is_link &&
               (formats::LooksLikeCheckpoint(entry.path) || formats::HoldsOrbax(entry.path));
      return;
    }
    const bool is_weights = formats::IsNamedAsWeights(name) && !entry.is_link;
    has_weights |= is_weights && !IsResumedFrom(name);
    const std::string step = is_weights ? formats::NamedStep(name) : "";
    if (!step.empty()) {
      files.insert(step);
      return;
    }
    if (is_weights) others.insert(NumberAtEnd(fs::path(name).stem().string()));
    has_model |= name == ".metadata" || name.ends_with(".safetensors") ||
                 name.ends_with(".distcp") || name.ends_with(".index.json") ||
                 name.starts_with("pytorch_model");
  });
  // "step_0.pt" and "model_0.pt", "step_1.pt" and "model_1.pt": what two ranks say, item by item.
  if (files.contains("0") && files == others) files.clear();
  const bool has_steps = steps >= 2 || files.size() >= 2 || (steps == 1 && !has_weights);
  return listed.ok() && !has_model && has_steps;
}

std::vector<std::string> RunsIn(const std::string& directory) {
  std::vector<std::string> runs;
  bool has_weights = false;
  (void)oracle::List(directory, [&](const oracle::DirectoryEntry& entry) {
    has_weights |=
        entry.name == ".metadata" || (entry.is_file && formats::IsNamedAsWeights(entry.name));
    if (entry.is_directory && !entry.is_link && IsRun(entry.path)) runs.push_back(entry.name);
  });
  if (has_weights) return {};
  std::sort(runs.begin(), runs.end());
  return runs;
}

}  // namespace shardproof
