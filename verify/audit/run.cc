#include "verify/audit/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "src/text/amounts.h"
#include "verify/audit/counter.h"
#include "verify/audit/reading.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using oracle::Printable;
using oracle::Quote;

constexpr size_t kNeighbours = 4;  // on each side, whose files a step is held against
constexpr size_t kShown = 3;

/// What of a step is kept to hold later ones against it.
struct StepContent {
  std::map<std::string, std::string> model;      ///< digests in hex, by name
  std::map<std::string, std::string> optimizer;  ///< likewise
  std::map<std::string, std::string> shapes;     ///< of the model: "F32 [2, 3]"
};

bool IsOfOptimizer(const std::string& name) {
  // By what holds it, or by what optimizers of PyTorch's call their state.
  static const std::regex kPart(
      "(.*[./])?((optim[a-z_]*|opt)[./].*|"
      "(exp_avg|exp_avg_sq|max_exp_avg_sq|momentum_buffer)([./].*)?)");
  return name.size() < 512 && std::regex_match(name, kPart);
}

/// Of what else a job keeps, by the first key: it changes at every step, and comes and goes.
bool IsOfJob(const std::string& name) {
  static const std::regex kFirst(
      "callbacks|loops|lr_schedulers?|schedulers?|([a-z]*_)?dataloaders?|"
      "([a-z]+_)?(rng|random)(_states?)?");
  const std::string first = name.substr(0, name.find('.'));
  return first.size() < 64 && std::regex_match(first, kFirst);
}

bool IsOptimizerFile(const std::string& name) {
  static const std::regex kOptimizer("(.*[/_.-])?optim.*", std::regex::icase);
  return name.size() <= 255 && std::regex_match(name, kOptimizer);
}

bool MatchesAny(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

StepContent StepContentOf(const AuditResult& audited, const std::vector<std::string>& allow_same) {
  StepContent content;
  for (const AuditedTensor& tensor : audited.tensors) {
    const bool is_optimizer = IsOfOptimizer(tensor.name);
    if (!is_optimizer && IsOfJob(tensor.name)) continue;
    if (!is_optimizer) {
      content.shapes[tensor.name] =
          fmt::format("{} [{}]", tensor.dtype, fmt::join(tensor.shape, ", "));
    }
    if (tensor.elements == 0 || MatchesAny(tensor.name, allow_same)) continue;
    (is_optimizer ? content.optimizer : content.model)[tensor.name] = tensor.digest.Hex();
  }
  for (const FileBeside& file : audited.beside) {
    if (!IsOptimizerFile(file.name)) continue;
    for (const AuditedTensor& tensor : file.tensors) {
      const std::string name = file.name + "/" + tensor.name;
      if (tensor.elements > 0 && !MatchesAny(name, allow_same)) {
        content.optimizer[name] = tensor.digest.Hex();
      }
    }
  }
  return content;
}

uint64_t CountChanged(const std::map<std::string, std::string>& before,
                      const std::map<std::string, std::string>& now) {
  uint64_t changed = 0;
  for (const auto& [name, digest] : now) {
    const auto found = before.find(name);
    changed += found == before.end() || found->second != digest;
  }
  return changed;
}

/// What of the model a later step has otherwise, or has not. Of a step that is the model alone,
/// what a job has beside it may be missing: names whose first part no other has.
std::vector<std::string> UnlikeShapes(const StepContent& earlier, const StepContent& later) {
  const auto part_of = [](const std::string& name) { return name.substr(0, name.find('.')); };
  const bool is_model_alone = later.optimizer.empty() && !earlier.optimizer.empty();
  std::set<std::string> parts;
  for (const auto& [name, shape] : later.shapes) parts.insert(part_of(name));
  std::vector<std::string> unlike;
  for (const auto& [name, shape] : earlier.shapes) {
    const auto found = later.shapes.find(name);
    if (found == later.shapes.end()) {
      if (is_model_alone && !parts.contains(part_of(name))) continue;
      unlike.push_back(Quote(name) + " is not there");
    } else if (found->second != shape) {
      unlike.push_back(fmt::format("{} is {}, was {}", Quote(name), found->second, shape));
    }
  }
  return unlike;
}

bool AreOfOneSeries(const std::string& a, const std::string& b) {
  return WithoutNumbers(a) == WithoutNumbers(b);
}

std::string FirstOf(std::vector<std::string> lines) {
  const bool are_all = lines.size() <= kShown;
  if (!are_all) lines.resize(kShown);
  return fmt::format("{}{}", fmt::join(lines, ", "), are_all ? "" : ", ...");
}

/// Whether two checkpoints say that they are of different steps.
bool AreDifferentSteps(const RunStep& a, const RunStep& b) {
  if (!a.counter.empty() && !b.counter.empty()) {
    if (a.counter != b.counter) return true;
    // The same counter under names of two kinds is one step under two names: "best" and "step-90".
    return WithoutNumbers(a.name) == WithoutNumbers(b.name) && a.step != b.step;
  }
  return !a.step.empty() && !b.step.empty() && a.step != b.step && AreOfOneSeries(a.name, b.name);
}

/// A step as its path names it.
RunStep NamedBy(const std::string& path) {
  RunStep step{.name = fs::path(path).filename().string(), .path = path};
  if (const auto named = StepOf(fs::path(step.name).stem().string())) step.step = named->second;
  return step;
}

/// Names and counter of a step; nothing else.
RunStep Named(const AuditResult& audited) {
  RunStep step = NamedBy(audited.path);
  step.counter = CounterOf(audited);
  return step;
}

class RunReader {
 public:
  RunReader(const std::string& root, const std::vector<std::string>& allow_same, bool headers)
      : root_(root), allow_same_(allow_same) {
    result_.is_headers_only = headers;
  }

  Result<RunAuditResult> Read() {
    SP_ASSIGN(CheckpointList list, CheckpointsOf(root_));
    if (list.paths.empty()) {
      return BadInput(fmt::format(
          "{}: expected a directory of checkpoints, found no checkpoint in it", Printable(root_)));
    }
    result_.path = root_;
    result_.others = std::move(list.others);
    std::reverse(list.paths.begin(), list.paths.end());
    for (size_t i = 0; i < list.paths.size(); ++i) AddStep(list.paths, i);
    CheckCounters();
    MarkModelsAlone();
    for (const RunStep& step : result_.steps) {
      if (step.CanResume()) result_.resume_from = step.path;
    }
    const auto of_root = FindingsOfRoot(root_, list.paths, result_.resume_from);
    result_.findings.insert(result_.findings.end(), of_root.begin(), of_root.end());
    return std::move(result_);
  }

 private:
  void AddStep(const std::vector<std::string>& paths, size_t index) {
    RunStep step = NamedBy(paths[index]);
    const size_t first = index < kNeighbours ? 0 : index - kNeighbours;
    const size_t last = std::min(paths.size(), index + kNeighbours + 1);
    step.lacks = files_.LackingOf(step.path, {paths.begin() + static_cast<ptrdiff_t>(first),
                                              paths.begin() + static_cast<ptrdiff_t>(last)});
    auto audited = Audit(step.path, {.values = !result_.is_headers_only});
    const std::string seal = SealPath(step.path);
    if (audited.ok() && !result_.is_headers_only && oracle::IsThere(seal)) {
      const Status held = HoldAgainstSeal(seal, audited.value());
      if (!held.ok()) step.damage.push_back(held.error().message);
    }
    if (!audited.ok()) {
      step.damage.push_back(audited.error().message);
      result_.steps.push_back(std::move(step));
      return;
    }
    step.damage.insert(step.damage.end(), audited.value().damage.begin(),
                       audited.value().damage.end());
    step.unjudged = audited.value().unjudged;
    step.bytes = audited.value().bytes;
    step.counter = CounterOf(audited.value());
    step.has_optimizer = HasOptimizer(audited.value());
    StepContent content = StepContentOf(audited.value(), allow_same_);
    step.tensors = content.model.size() + content.optimizer.size();
    if (step.damage.empty() && !result_.is_headers_only) HoldAgainstEarlier(step, content);
    if (!before_.shapes.empty() && step.damage.empty()) CheckShapes(step, content);
    step.changed = CountChanged(before_.model, content.model) +
                   CountChanged(before_.optimizer, content.optimizer);
    before_ = std::move(content);
    result_.steps.push_back(std::move(step));
  }

  void HoldAgainstEarlier(RunStep& step, const StepContent& content) {
    const auto hold = [&](const std::map<std::string, std::string>& digests, const char* what) {
      if (digests.empty()) return;
      std::string all = what;
      for (const auto& [name, digest] : digests) all += name + '\n' + digest + '\n';
      const auto [seen, is_new] = seen_.emplace(DigestOf(all).Hex(), result_.steps.size());
      if (is_new || !AreDifferentSteps(result_.steps[seen->second], step)) return;
      const RunStep& earlier = result_.steps[seen->second];
      step.same_as = earlier.name;
      result_.findings.push_back(
          fmt::format("{}: expected training to have changed the {} since {}, found all {} of its "
                      "tensors bit for bit the same",
                      Printable(step.name), what, Printable(earlier.name), digests.size()));
    };
    hold(content.model, "model");
    hold(content.optimizer, "optimizer state");
  }

  /// A step that has another model than the one before it in its series.
  void CheckShapes(RunStep& step, const StepContent& content) {
    const RunStep& earlier = result_.steps.back();
    if (!AreOfOneSeries(step.name, earlier.name)) return;
    const std::vector<std::string> unlike = UnlikeShapes(before_, content);
    if (unlike.empty()) return;
    // Without the model's file there is nothing of it, which is told already.
    const bool has_lost_it = unlike.size() == before_.shapes.size();
    if (has_lost_it && !(step.lacks.empty() && earlier.lacks.empty())) return;
    step.is_other_model = true;
    result_.findings.push_back(
        fmt::format("{}: expected the tensors of {}, found {} that differ: {}",
                    Printable(step.name), Printable(earlier.name), unlike.size(), FirstOf(unlike)));
  }

  /// Where names and contents agree on the step in some checkpoints, they must in all.
  void CheckCounters() {
    const auto agrees = [](const RunStep& step) { return step.counter == step.step; };
    std::map<std::string, int> agreeing, differing;
    for (const RunStep& step : result_.steps) {
      if (step.counter.empty() || step.step.empty()) continue;
      if (!agrees(step))
        ++differing[WithoutNumbers(step.name)];
      else if (step.counter != "0")
        ++agreeing[WithoutNumbers(step.name)];
    }
    for (const RunStep& step : result_.steps) {
      const std::string series = WithoutNumbers(step.name);
      const bool is_judged = !step.counter.empty() && !step.step.empty() && agreeing[series] > 0 &&
                             agreeing[series] >= differing[series];
      if (!is_judged || agrees(step)) continue;
      result_.findings.push_back(fmt::format("{}: expected its counter to say step {}, found {}",
                                             Printable(step.name), step.step, step.counter));
    }
  }

  /// As jobs save the last one on purpose: no finding, but nothing to resume from either.
  void MarkModelsAlone() {
    const auto with =
        static_cast<size_t>(std::count_if(result_.steps.begin(), result_.steps.end(),
                                          [](const RunStep& step) { return step.has_optimizer; }));
    for (RunStep& step : result_.steps) {
      const bool is_read = step.damage.empty() && step.tensors > 0;
      step.is_model_alone = is_read && !step.has_optimizer && with * 2 >= result_.steps.size();
    }
  }

  const std::string& root_;
  const std::vector<std::string>& allow_same_;
  RunAuditResult result_;
  RunFiles files_;
  StepContent before_;
  std::map<std::string, size_t> seen_;  ///< of what was digested, the first step that has it
};

}  // namespace

bool RunAuditResult::IsSound() const {
  const bool is_damaged = std::any_of(steps.begin(), steps.end(),
                                      [](const RunStep& step) { return !step.damage.empty(); });
  return findings.empty() && !is_damaged && (steps.empty() || steps.back().lacks.empty());
}

std::string UnlikeEarlier(const AuditResult& earlier, const AuditResult& later) {
  if (!AreOfOneSeries(NamedBy(earlier.path).name, NamedBy(later.path).name)) return "";
  return FirstOf(UnlikeShapes(StepContentOf(earlier, {}), StepContentOf(later, {})));
}

bool HasOptimizer(const AuditResult& audited) {
  const auto is_of_it = [](const AuditedTensor& tensor) { return IsOfOptimizer(tensor.name); };
  return std::any_of(audited.tensors.begin(), audited.tensors.end(), is_of_it) ||
         std::any_of(audited.beside.begin(), audited.beside.end(), [&](const FileBeside& file) {
           return std::any_of(file.tensors.begin(), file.tensors.end(),
                              [&](const AuditedTensor& tensor) {
                                return IsOptimizerFile(file.name) || is_of_it(tensor);
                              });
         });
}

std::string SameAs(const AuditResult& earlier, const AuditResult& later,
                   const std::vector<std::string>& allow_same) {
  if (!AreDifferentSteps(Named(earlier), Named(later))) return "";
  const StepContent before = StepContentOf(earlier, allow_same);
  const StepContent now = StepContentOf(later, allow_same);
  if (!now.model.empty() && now.model == before.model) return "model";
  return !now.optimizer.empty() && now.optimizer == before.optimizer ? "optimizer state" : "";
}

Result<RunAuditResult> AuditRun(const std::string& root, const std::vector<std::string>& allow_same,
                                bool headers) {
  return RunReader(root, allow_same, headers).Read();
}

}  // namespace shardproof
