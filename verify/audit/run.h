// The checkpoints of one training run, held against each other: which of them a job can resume
// from, and whether the steps between them changed anything.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/audit/audit.h"

namespace shardproof {

/// One checkpoint of a run.
struct RunStep {
  std::string name;  ///< within the run
  std::string path;
  std::string step;                   ///< the number in its name; empty: none
  std::string counter;                ///< the step that its content says; empty: none
  std::vector<std::string> lacks;     ///< files that a job resumes from, which other steps have
  std::vector<std::string> damage;    ///< as of an audit
  std::vector<std::string> unjudged;  ///< likewise
  std::string same_as;                ///< an earlier step with the same tensors; empty: none
  uint64_t tensors = 0;               ///< of the model and of what lies beside it
  uint64_t changed = 0;               ///< tensors that are others than in the step before
  uint64_t bytes = 0;                 ///< of its tensors
  bool has_optimizer = false;         ///< state of one, in it or beside it
  bool is_model_alone = false;        ///< it has none, though most of the others have

  bool is_other_model = false;  ///< its tensors are not those of the step before

  bool CanResume() const {
    return lacks.empty() && damage.empty() && same_as.empty() && !is_model_alone && !is_other_model;
  }
};

struct RunAuditResult {
  std::string path;
  std::vector<RunStep> steps;         ///< oldest first
  std::vector<std::string> findings;  ///< of the run, a line each
  std::vector<std::string> others;    ///< folders that are no checkpoints
  std::string resume_from;            ///< the newest step that a job can resume from; empty: none
  bool is_headers_only = false;       ///< no value was read, so none is held against another step's

  bool IsSound() const;
};

/// Whether a directory holds the checkpoints of a run, and is none itself.
bool IsRun(const std::string& directory);

/// The folders in it that do, sorted; none if it holds weights beside them.
std::vector<std::string> RunsIn(const std::string& directory);

/// Reads every checkpoint below `root` whole, or if `headers` its files' headers alone.
/// \param allow_same  patterns (*, ?) of tensors that need not change from step to step.
/// \error kBadInput if `root` cannot be listed or has no checkpoint.
Result<RunAuditResult> AuditRun(const std::string& root, const std::vector<std::string>& allow_same,
                                bool headers = false);

/// What of a later step is bit for bit that of an earlier one ("model", "optimizer state"), though
/// both say that they are of different steps; empty: nothing. \pre both were read with digests.
std::string SameAs(const AuditResult& earlier, const AuditResult& later,
                   const std::vector<std::string>& allow_same);

/// Which tensors of an earlier step of its series a later one has not, or has in another shape or
/// dtype, the first few; empty: none.
std::string UnlikeEarlier(const AuditResult& earlier, const AuditResult& later);

/// Whether it holds state of an optimizer, in the checkpoint or beside the model.
bool HasOptimizer(const AuditResult& audited);

/// A name with its numbers taken out, as "rng_state_#.pth": steps of one series have one, and files
/// of one set.
std::string WithoutNumbers(const std::string& name);

/// The files of a run's checkpoints, each listed once.
class RunFiles {
 public:
  /// Files that a job resumes from and that most of the other checkpoints in `paths` have, and the
  /// model's if it has none. Files of ranks are missing if some of a set are, not if the whole run
  /// went on with fewer ranks.
  std::vector<std::string> LackingOf(const std::string& path,
                                     const std::vector<std::string>& paths);

 private:
  /// By its name without numbers, the names of the files in a step that a job resumes from; by an
  /// empty one, those of the model.
  using Roles = std::map<std::string, std::set<std::string>>;
  const Roles& RolesOf(const std::string& path);

  std::map<std::string, Roles> known_;  ///< by the step's path
};

/// What files in `root` say of the run that is not so: a pointer to a step that is not there, or
/// not the newest; a file of a job's state that lies beside the steps and is of one of them alone.
/// \param whole  the newest step that is whole; empty: not known
std::vector<std::string> FindingsOfRoot(const std::string& root,
                                        const std::vector<std::string>& paths,
                                        const std::string& whole);

/// For a terminal.
std::string RunText(const RunAuditResult& result);
nlohmann::json RunJson(const RunAuditResult& result);

}  // namespace shardproof
