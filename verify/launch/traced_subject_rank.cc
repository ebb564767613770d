#include "verify/launch/traced_subject_rank.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "verify/evidence/line_file.h"
#include "verify/evidence/records_json.h"
#include "verify/fault/fault.h"
#include "verify/interpose/firings.h"
#include "verify/interpose/rule.h"
#include "verify/trace/file_system_calls.h"

namespace shardproof {
namespace {

/// The launcher ends what takes too long; this is for the case that it is gone.
constexpr auto kTraceDeadline = std::chrono::hours(24);
/// What a framework leaves running has so long to end by itself.
constexpr auto kLinger = std::chrono::seconds(2);

/// A fault of the phase, and the rank's part of it.
struct Strike {
  FaultCase asked;
  SubjectFault how;
};

std::vector<Strike> StrikesOn(const PhaseRun& run, int64_t rank) {
  std::vector<Strike> strikes;
  if (!run.phase.armed) return strikes;
  for (const FaultCase& asked : run.test_case.faults) {
    const Fault fault = FindFault(asked.id).value();
    Strike strike{asked, fault.in_subject(run.test_case, asked.where).value()};
    if (strike.how.rank && *strike.how.rank != rank) continue;
    strikes.push_back(std::move(strike));
  }
  return strikes;
}

/// The log of the interposer (verify/interpose/README.md).
std::string InterposedPath(const PhaseRun& run, int64_t rank) {
  return fmt::format("{}/rank_{}.interposed.jsonl", run.evidence, rank);
}

std::string RealPath(const std::string& path) {
  std::error_code error;
  const auto real = std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  std::string text = error ? path : real.string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

/// Asks the fault's point at every call that it is about.
class CallsOf {
 public:
  CallsOf(const Strike& strike, const PhaseRun& run, int64_t rank, std::shared_ptr<LineFile> record)
      : calls_(*strike.how.calls),
        save_to_(RealPath(run.save_to)),
        source_(RealPath(run.source)),
        point_({.name = strike.asked.id,
                .trigger = calls_.trigger,
                .rank = rank,
                .from_then_on = calls_.from_then_on,
                .log = [=](FaultRecord fault) {
                  fault.id = strike.asked.id;
                  fault.where = strike.asked.where;
                  fault.model = NameOf(FindFault(strike.asked.id).value().model);
                  (void)record->Append(FaultLine(fault));
                }}) {}

  /// Nothing if it does not strike.
  std::optional<trace::Decision> Ask(const FileSystemCall& call) {
    if (!calls_.ops.contains(call.op)) return std::nullopt;
    const auto shown = Shown(call);
    if (!shown) return std::nullopt;
    const std::string outcome =
        calls_.error_number == 0 ? "late" : std::strerror(calls_.error_number);
    const std::string made = InWords(call, *shown);
    if (!point_.Strikes({call.path, call.bytes},
                        {.detail = made + ": " + outcome, .call = made, .error = outcome})) {
      return std::nullopt;
    }
    if (calls_.error_number == 0) return trace::Decision::Delay(calls_.delay);
    if (!calls_.half || !call.count_argument || call.bytes < 2) {
      return trace::Decision::Fail(calls_.error_number);
    }
    trace::Decision half = trace::Decision::Shorten(*call.count_argument, call.bytes / 2);
    half.result = -calls_.error_number;
    return half;
  }

 private:
  /// The path as records have it, which do not say where on this machine it is; nothing if the call
  /// is none of the fault's business.
  std::optional<std::string> Shown(const FileSystemCall& call) const {
    const auto is_below = [&](const std::string& root) {
      return call.path == root || call.path.starts_with(root + "/");
    };
    if (call.path.starts_with(save_to_)) {
      return call.path.substr(save_to_.rfind('/') + 1);
    }
    const bool reads = call.op == FileOp::kRead || call.op == FileOp::kMap;
    if (reads && is_below(source_)) return call.path.substr(source_.rfind('/') + 1);
    return std::nullopt;
  }

  const SubjectCalls calls_;
  const std::string save_to_;
  const std::string source_;
  FaultPoint point_;
};

class Striking : public trace::Listener {
 public:
  explicit Striking(std::vector<std::unique_ptr<CallsOf>> faults) : faults_(std::move(faults)) {}

  trace::Decision Enter(const trace::Call& call) override {
    const auto made = Classify(call);
    if (!made) return trace::Decision::Unwatched();
    for (const auto& fault : faults_) {
      if (auto decision = fault->Ask(*made)) return *decision;
    }
    return trace::Decision::Unwatched();
  }

 private:
  std::vector<std::unique_ptr<CallsOf>> faults_;
};

[[noreturn]] void EndAs(int wait_status) {
  if (!WIFSIGNALED(wait_status)) ::_exit(WEXITSTATUS(wait_status));
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::signal(WTERMSIG(wait_status), SIG_DFL);
  ::raise(WTERMSIG(wait_status));
  ::_exit(128 + WTERMSIG(wait_status));
}

}  // namespace

bool IsStruckInCalls(const PhaseRun& run, int64_t rank) {
  for (const Strike& strike : StrikesOn(run, rank)) {
    if (strike.how.calls) return true;
  }
  return false;
}

std::map<std::string, std::string> EnvironmentOfFaults(const PhaseRun& run, int64_t rank) {
  std::map<std::string, std::string> all;
  for (const Strike& strike : StrikesOn(run, rank)) {
    for (const auto& [name, value] : strike.how.environment) {
      std::string& text = all[name];
      text += (text.empty() ? "" : name == "LD_PRELOAD" ? ":" : ";") + value;
    }
  }
  if (all.contains(interpose::kRulesVariable)) {
    all[interpose::kLogVariable] = std::filesystem::absolute(InterposedPath(run, rank)).string();
  }
  return all;
}

Status RecordInterposed(const PhaseRun& run, int64_t rank) {
  const std::string path = InterposedPath(run, rank);
  if (!std::filesystem::exists(path)) return Ok();  // never loaded: so nothing has fired
  SP_ASSIGN(const auto firings, interpose::ReadFirings(path));
  std::ofstream out(FaultsPath(run, rank), std::ios::app);
  for (const interpose::Firing& firing : firings) {
    for (const Strike& strike : StrikesOn(run, rank)) {
      const auto rule = strike.how.environment.find(interpose::kRulesVariable);
      if (rule == strike.how.environment.end() || rule->second != firing.rule) continue;
      out << FaultLine({.id = strike.asked.id,
                        .where = strike.asked.where,
                        .detail = fmt::format("{}: {}", firing.function, firing.detail),
                        .model = NameOf(FindFault(strike.asked.id).value().model),
                        .call = firing.function,
                        .error = firing.detail})
          << "\n";
    }
  }
  out.flush();
  return out ? Ok() : Internal(FaultsPath(run, rank) + ": cannot be written");
}

std::string FaultsPath(const PhaseRun& run, int64_t rank) {
  return fmt::format("{}/rank_{}.faults.jsonl", run.evidence, rank);
}

void BeStruckProgram(const PhaseRun& run, int64_t rank, const std::vector<std::string>& words) {
  auto record = LineFile::Create(FaultsPath(run, rank));
  if (!record.ok()) {
    std::fprintf(stderr, "%s\n", record.error().message.c_str());
    ::_exit(5);
  }
  const std::shared_ptr<LineFile> shared = std::move(record).value();
  std::vector<std::unique_ptr<CallsOf>> faults;
  std::set<FileOp> ops;
  for (const Strike& strike : StrikesOn(run, rank)) {
    if (!strike.how.calls) continue;
    ops.insert(strike.how.calls->ops.begin(), strike.how.calls->ops.end());
    faults.push_back(std::make_unique<CallsOf>(strike, run, rank, shared));
  }
  Striking listener(std::move(faults));
  const trace::Options options{
      .words = words, .calls = SystemCallsOf(ops), .deadline = kTraceDeadline, .linger = kLinger};
  const auto outcome = trace::RunTraced(options, listener);
  if (!outcome.ok()) {
    std::fprintf(stderr, "%s\n", outcome.error().message.c_str());
    ::_exit(5);
  }
  EndAs(outcome.value().wait_status);
}

}  // namespace shardproof
