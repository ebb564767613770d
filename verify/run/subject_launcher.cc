// Ranks of a Python subject: each executes `python -m shardproof._rank ORDER RANK`.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "verify/case/case_json.h"
#include "verify/run/rank_processes.h"
#include "verify/run/subject.h"

namespace shardproof {
namespace {

using nlohmann::json;

json OrderFor(const PhaseRun& run) {
  json captures = json::array();
  for (const CaptureRequest& capture : run.captures) {
    if (capture.phase != run.phase.name) continue;
    captures.push_back({{"tensor", capture.tensor},
                        {"byte_start", capture.byte_start},
                        {"byte_length", capture.byte_length}});
  }
  return {{"case", CaseToJson(run.test_case)},
          {"subject", run.test_case.subject},
          {"phase", run.phase.name},
          {"mode", ToString(run.phase.mode)},
          {"strategy", run.phase.strategy},
          {"mesh", AxesToJson(run.phase.mesh)},
          {"world_size", run.phase.WorldSize()},
          {"saves", run.phase.saves},
          {"resumes", run.phase.resumes},
          {"source", run.source},
          {"save_to", run.save_to},
          {"evidence", run.evidence},
          {"rendezvous", run.evidence + "/rendezvous"},
          {"timeout_ms", RankTimeout(run.test_case).count()},
          {"captures", std::move(captures)}};
}

/// What a rank's environment is besides ours.
void SetEnvironment(const PythonOptions& options) {
  const char* inherited = std::getenv("PYTHONPATH");
  const std::string path =
      inherited == nullptr ? options.package : options.package + ":" + inherited;
  ::setenv("PYTHONPATH", path.c_str(), 1);
  ::setenv("SHARDPROOF_DIGEST_OP", options.digest_op.c_str(), 0);
  ::setenv("PYTHONUNBUFFERED", "1", 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  ::setenv("GLOO_SOCKET_IFNAME", "lo", 0);
}

class SubjectLauncher : public Launcher {
 public:
  explicit SubjectLauncher(PythonOptions options) : options_(std::move(options)) {}

  std::string CannotRun(const PhasePlan&) const override { return ""; }

  Result<std::vector<RankExit>> Launch(const PhaseRun& run) override {
    SP_TRY(MakeEvidenceDirectory(run));
    const std::string order = run.evidence + "/order.json";
    std::ofstream(order) << OrderFor(run).dump(1) << "\n";
    return LaunchProcesses(run, [&](int64_t rank) { BeRank(run, order, rank); });
  }

 private:
  void BeRank(const PhaseRun& run, const std::string& order, int64_t rank) const {
    // What a subject prints is not ours to parse; it is kept beside its stderr.
    const std::string output = fmt::format("{}/rank_{}.stdout", run.evidence, rank);
    const int fd = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd >= 0) ::dup2(fd, STDOUT_FILENO);
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    SetEnvironment(options_);
    const std::string number = std::to_string(rank);
    ::execlp(options_.python.c_str(), options_.python.c_str(), "-m", "shardproof._rank",
             order.c_str(), number.c_str(), nullptr);
    std::perror(options_.python.c_str());
    ::_exit(5);
  }

  PythonOptions options_;
};

}  // namespace

std::unique_ptr<Launcher> MakeSubjectLauncher(PythonOptions options) {
  return std::make_unique<SubjectLauncher>(std::move(options));
}

}  // namespace shardproof
