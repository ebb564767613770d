#include "verify/launch/subject_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "verify/case/case_json.h"
#include "verify/fault/fault.h"
#include "verify/launch/rank_processes.h"
#include "verify/launch/traced_subject_rank.h"

namespace shardproof {
namespace {

using nlohmann::json;

/// What strikes ranks of the phase, for the ranks themselves.
json FaultsFor(const PhaseRun& run) {
  json faults = json::array();
  if (!run.phase.armed) return faults;
  for (const FaultCase& asked : run.test_case.faults) {
    const Fault fault = FindFault(asked.id).value();
    const SubjectFault strikes = fault.in_subject(run.test_case, asked.where).value();
    if (!strikes.moment) continue;
    const std::optional<Stage> stage = strikes.moment->stage;
    json one = {{"id", asked.id},
                {"where", asked.where},
                {"model", NameOf(fault.model)},
                {"rank", *strikes.rank},
                {"act", strikes.moment->act},
                {"stage", stage ? NameOf(*stage) : ""}};
    if (strikes.moment->step) one["step"] = *strikes.moment->step;
    if (strikes.moment->collective) one["collective"] = *strikes.moment->collective;
    faults.push_back(std::move(one));
  }
  return faults;
}

/// Whether a rank is struck by how its process is started.
bool StartsStruck(const PhaseRun& run) {
  if (!run.phase.armed) return false;
  for (const FaultCase& asked : run.test_case.faults) {
    const Fault fault = FindFault(asked.id).value();
    if (fault.in_subject(run.test_case, asked.where).value().NeedsOwnProcess()) return true;
  }
  return false;
}

/// Where libraries may cache: beside the evidence of the phases.
std::string ScratchOf(const PhaseRun& run) {
  return (std::filesystem::path(run.evidence).parent_path() / "scratch").string();
}

/// Ranks that a standing Python process forks.
class WarmProcesses : public RankProcesses {
 public:
  WarmProcesses(WarmPython& python, std::string order)
      : python_(python), order_(std::move(order)) {}
  Status Start(const PhaseRun& run, int64_t rank) override {
    return python_.Begin(run, order_, rank);
  }
  std::optional<int> Ended(int64_t rank) override { return python_.Ended(rank); }
  void End(int64_t rank) override { python_.End(rank); }
  pid_t Pid(int64_t rank) const override { return python_.Pid(rank); }

 private:
  WarmPython& python_;
  std::string order_;
};

}  // namespace

nlohmann::json OrderForSubject(const PhaseRun& run) {
  json captures = json::array();
  for (const CaptureRequest& capture : run.captures) {
    if (capture.phase != run.phase.phase && !run.is_twin) continue;
    captures.push_back({{"tensor", capture.tensor},
                        {"byte_start", capture.byte_start},
                        {"byte_length", capture.byte_length}});
  }
  return {{"case", CaseToJson(run.test_case)},
          {"subject", run.test_case.subject},
          {"phase", run.phase.name()},
          {"mode", NameOf(run.phase.facts().mode)},
          {"strategy", run.phase.strategy},
          {"mesh", AxesToJson(run.phase.mesh)},
          {"is_twin", run.is_twin},
          {"values_of_steps", run.steps},
          {"laid_over", AxesToJson(run.phase.laid_over)},
          {"world_size", run.phase.WorldSize()},
          {"saves", run.phase.saves},
          {"resumes", run.phase.facts().resumes.has_value()},
          {"steps", run.phase.trains ? run.test_case.steps : 0},
          {"source", run.source},
          {"others_source", run.others_source},
          {"save_to", run.save_to},
          {"evidence", run.evidence},
          {"rendezvous", run.evidence + "/rendezvous"},
          {"timeout_ms", RankTimeout(run.test_case).count()},
          {"captures", std::move(captures)},
          {"faults", FaultsFor(run)}};
}

std::string OrderPath(const PhaseRun& run) { return run.evidence + "/order.json"; }

Result<std::vector<RankExit>> SubjectRanks::Run(const PhaseRun& run,
                                                const std::vector<int64_t>& ranks) {
  if (run.fresh || StartsStruck(run) || !Warm(ScratchOf(run))) {
    ForkedProcesses processes([&](int64_t rank) { BeRank(run, rank); });
    auto exits = LaunchRanks(run, processes, ranks);
    for (const int64_t rank : ranks) SP_TRY(RecordInterposed(run, rank));
    return exits;
  }
  WarmProcesses processes(*warm_, OrderPath(run));
  auto exits = LaunchRanks(run, processes, ranks);
  if (!exits.ok()) warm_.reset();
  return exits;
}

/// Starts the standing process with the first launch. \returns whether there is one.
bool SubjectRanks::Warm(const std::string& scratch) {
  if (warm_ == nullptr && !cold_) {
    auto started = WarmPython::Start(options_, scratch);
    cold_ = !started.ok();  // then every rank starts from nothing
    if (started.ok()) warm_ = std::move(started).value();
  }
  return warm_ != nullptr;
}

void SubjectRanks::BeRank(const PhaseRun& run, int64_t rank) const {
  // What a subject prints is not ours to parse; it is kept beside its stderr.
  const std::string output = fmt::format("{}/rank_{}.stdout", run.evidence, rank);
  const int fd = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd >= 0) ::dup2(fd, STDOUT_FILENO);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  SetSubjectEnvironment(options_, ScratchOf(run));
  const std::string number = std::to_string(rank);
  ::setpgid(0, 0);  // what the subject starts and leaves behind ends with the rank
  for (const auto& [name, value] : EnvironmentOfFaults(run, rank)) {
    const char* inherited = name == "LD_PRELOAD" ? std::getenv(name.c_str()) : nullptr;
    ::setenv(name.c_str(), (inherited ? value + ":" + inherited : value).c_str(), 1);
  }
  const auto words =
      PythonWords(options_.python, "from shardproof._rank._rank import main; main(*sys.argv[1:])",
                  {OrderPath(run), number});
  if (IsStruckInCalls(run, rank)) BeStruckProgram(run, rank, words);
  Exec(words);
}

std::vector<std::string> PythonWords(const std::string& python, const std::string& code,
                                     const std::vector<std::string>& arguments) {
  // Not -m, which puts the current directory first: what lies there could hide a standard module.
  std::vector<std::string> words = {
      python, "-c", "import sys; sys.path[:] = [p for p in sys.path if p]; " + code};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

void Exec(const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  pointers.push_back(nullptr);
  ::execvp(pointers[0], const_cast<char* const*>(pointers.data()));
  std::perror(pointers[0]);
  ::_exit(5);
}

void SetSubjectEnvironment(const PythonOptions& options, const std::string& scratch) {
  // A folder with nothing but the package in it: beside an installed one lie all the others of its
  // environment, which another Python (--python) must not see. Every rank of a launch makes it.
  const auto folder = std::filesystem::absolute(scratch) / "python";
  std::error_code is_there;
  std::filesystem::create_directories(folder, is_there);
  std::filesystem::create_directory_symlink(options.package, folder / "shardproof", is_there);
  const char* inherited = std::getenv("PYTHONPATH");
  const bool has = inherited != nullptr && *inherited != '\0';
  const std::string path = has ? folder.string() + ":" + inherited : folder.string();
  ::setenv("PYTHONPATH", path.c_str(), 1);
  ::setenv("SHARDPROOF_DIGEST_OP", options.digest_op.c_str(), 0);
  ::setenv("TORCHINDUCTOR_CACHE_DIR", scratch.c_str(), 0);
  ::setenv("PYTHONUNBUFFERED", "1", 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  if (!options.interface.empty()) {
    ::setenv("GLOO_SOCKET_IFNAME", options.interface.c_str(), 0);
  }
}

}  // namespace shardproof
