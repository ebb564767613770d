#include "verify/campaign/campaign.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include "verify/campaign/interruption.h"
#include "verify/generate/features.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using Steady = std::chrono::steady_clock;

/// Beyond what the case's own deadline lets its phases take.
constexpr auto kCaseAllowance = std::chrono::seconds(120);

/// The case number `index` of the stream.
Case SoakCase(const SoakOptions& options, uint64_t index) {
  Case made = GenerateCase(options.generate, options.seed, index);
  made.bug = options.bug;
  return made;
}

/// How many cases that are not wanted are looked at between looks at the time.
constexpr int kPassedMax = 1000;

bool IsWanted(const SoakOptions& options, uint64_t index) {
  if (options.only.empty()) return true;
  const auto features = FeaturesOf(SoakCase(options, index));
  return std::binary_search(features.begin(), features.end(), options.only);
}

/// Keeps this process on one core: of the threads that simulated ranks are only one runs at a time,
/// and what passes from one to the next need not pass from core to core.
void StayOnOneCore(size_t slot) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const size_t cores = static_cast<size_t>(CPU_COUNT(&allowed));
  size_t wanted = slot % cores;
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || wanted-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

}  // namespace

std::unique_ptr<Launcher> CaseRunner::LauncherFor(const Case& test_case) const {
  if (test_case.subject != kReference) return MakeSubjectLauncher(options_.python);
  if (test_case.transport == "sim") return MakeSimLauncher(!isolated_);
  // Only ranks that start from nothing show what memory they take.
  if (isolated_ || options_.generate.large) return MakeForkLauncher();
  return MakeStandingLauncher(directory_ + "_ranks");
}

CaseOutcome CaseRunner::Run(const Case& test_case) {
  auto& launcher = launchers_[test_case.subject + " " + test_case.transport];
  std::error_code error;
  if (!launcher) {
    fs::create_directories(directory_ + "_ranks", error);
    launcher = LauncherFor(test_case);
  }
  fs::remove_all(directory_, error);
  fs::create_directories(directory_, error);
  if (error) return NotJudged(0, fmt::format("{}: {}", directory_, error.message()));
  const auto result = Verify(test_case, *launcher, OptionsOfVerify());
  if (!result.ok()) return NotJudged(0, result.error().message);
  // What stands of a subject has only torch: its ranks have run nothing.
  const bool stands = test_case.subject == kReference && result.value().failed_only_reused;
  const auto again = stands ? RunInSecond(test_case) : std::nullopt;
  return again ? *again : OutcomeOf(result.value());
}

VerifyOptions CaseRunner::OptionsOfVerify() const {
  return {.subject = options_.subject,
          .directory = directory_,
          .save_to = {},
          .properties = options_.properties,
          .measures_memory = options_.generate.large,
          .progress = {}};
}

std::optional<CaseOutcome> CaseRunner::RunInSecond(const Case& test_case) const {
  const std::string meeting = directory_ + "_second_ranks";
  std::error_code error;
  fs::create_directories(meeting, error);
  const auto second = MakeStandingLauncher(meeting);
  VerifyOptions options = OptionsOfVerify();
  options.confirms = false;
  const auto before = Verify(test_case, *second, options);
  const auto result = Verify(test_case, *second, options);
  if (!before.ok() || !result.ok() || result.value().verdict != Verdict::kFail) return {};
  CaseOutcome outcome = OutcomeOf(result.value());
  if (!outcome.findings.empty()) {
    outcome.findings[0].message +=
        "; so in two processes that had run a case before, and not in one that had not";
  }
  return outcome;
}

Workers CaseWorkers(const SoakOptions& options, const std::string& name, bool isolated,
                    bool simulated, std::function<Result<Case>(const std::string& order)> case_of) {
  // Ranks that are processes wait for one another most of the time.
  const size_t a_core = simulated ? 1 : 2;
  const size_t jobs =
      options.jobs != 0 ? options.jobs : a_core * std::max(1u, std::thread::hardware_concurrency());
  // Made in the worker, with its first case.
  const auto runner = std::make_shared<std::unique_ptr<CaseRunner>>();
  return Workers(
      jobs,
      [&options, name, isolated, simulated, case_of = std::move(case_of), runner](
          size_t slot, const std::string& order) {
        if (!*runner) {
          if (simulated) StayOnOneCore(slot);
          *runner = std::make_unique<CaseRunner>(
              options, fmt::format("{}/{}_{}", options.directory, name, slot), isolated);
        }
        const auto test_case = case_of(order);
        return test_case.ok() ? (*runner)->Run(test_case.value())
                              : NotJudged(0, test_case.error().message);
      },
      std::chrono::milliseconds(Case().deadline_ms) + kCaseAllowance);
}

namespace {

/// What becomes of a case that took its worker along: run again where its ranks are processes of
/// their own, whose end is evidence.
CaseOutcome Judged(const Case& test_case, const CaseOutcome& lost, const SoakOptions& options) {
  CaseOutcome outcome = CaseRunner(options, options.directory + "/isolated", true).Run(test_case);
  outcome.index = lost.index;
  if (outcome.verdict == Verdict::kFail) return outcome;
  outcome.verdict = Verdict::kInconclusive;
  outcome.reason = lost.reason + "; not reproduced when re-run";
  outcome.exit = lost.exit;
  return outcome;
}

}  // namespace

Result<SoakEnd> Soak(const SoakOptions& options, SoakSummary& summary) {
  const Interruption interruption;
  const auto begin = Steady::now();
  const double earlier_ms = summary.duration_ms;
  // The corpus comes first; its cases go by the indices below the stream's.
  const uint64_t corpus = options.corpus.size();
  const auto case_at = [&](uint64_t place) {
    return place < corpus ? options.corpus[place] : SoakCase(options, place - corpus);
  };
  Workers workers = CaseWorkers(
      options, "worker", false, options.generate.transport == "sim",
      [&](const std::string& order) -> Result<Case> { return case_at(std::stoull(order)); });

  uint64_t place = summary.cases() == 0 ? 0 : corpus;
  const uint64_t first = std::max(options.first, summary.next);
  if (summary.next < options.first) summary.next = options.first;
  const uint64_t end = options.cases ? options.first + *options.cases : UINT64_MAX;
  uint64_t next = first;
  std::optional<SoakEnd> ending;
  while (!ending || !workers.IsIdle()) {
    const bool time_over = options.time && Steady::now() - begin > *options.time;
    if (Interruption::WasSeen())
      ending = SoakEnd::kSignal;
    else if (!ending && time_over)
      ending = SoakEnd::kTime;
    if (ending == SoakEnd::kSignal || ending == SoakEnd::kFailure) break;
    for (int passed = 0; !ending && passed < kPassedMax && workers.HasRoom();) {
      if (place >= corpus) {
        while (summary.counted_beyond.contains(next)) ++next;
        if (next >= end) {
          ending = SoakEnd::kDone;
          break;
        }
      }
      if (place >= corpus && !IsWanted(options, next)) {
        ++next;
        ++passed;
        continue;
      }
      const uint64_t given = place < corpus ? place++ : corpus + next++;
      SP_TRY(workers.Give(given, std::to_string(given)));
    }
    for (CaseOutcome& outcome : workers.Collect(kPatience)) {
      const Case test_case = case_at(outcome.index);
      if (!outcome.exit.empty()) outcome = Judged(test_case, outcome, options);
      const bool numbered = outcome.index >= corpus;
      if (numbered) outcome.index -= corpus;
      summary.Count(test_case, outcome, numbered);
      // A planted bug need not act in every case.
      const bool ends = outcome.verdict == Verdict::kFail ||
                        (outcome.verdict != Verdict::kPass && options.bug.empty());
      if (ends && !options.keep_going) ending = SoakEnd::kFailure;
    }
    summary.duration_ms =
        earlier_ms + std::chrono::duration<double, std::milli>(Steady::now() - begin).count();
    if (options.progress) options.progress(summary);
  }
  return *ending;
}

}  // namespace shardproof
