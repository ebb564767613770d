// fault.every_rank_finishes: every rank ends, by itself and well, and leaves whole evidence. Where
// several ranks fail, the root cause comes first and its consequences after it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>

#include "verify/case/axes.h"
#include "verify/verdict/refusal.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::fault::every_rank_finishes {
namespace {

/// From cause to consequence.
enum class Order { kOwnError, kSignal, kExit, kHang, kUnclosed, kLost, kPeerError, kDamage };

struct Failure {
  Order order = Order::kOwnError;
  size_t progress = 0;  ///< stages that the rank had reached: of equals, the earliest is the cause
  std::string kind;
  std::string failure_class = "infrastructure";
  std::string stage;
  std::string what;
  std::vector<int64_t> ranks;
  Facts facts = {};
};

/// What a rank says when its neighbour vanishes, whatever code it gives it: the texts are those of
/// libc and gloo.
bool BlamesPeer(const ErrorRecord& error) {
  if (error.code == "peer") return true;
  for (const char* text :
       {"onnection closed", "onnection reset", "roken pipe", "onnection refused"}) {
    if (error.message.find(text) != std::string::npos) return true;
  }
  return false;
}

std::string ClassOf(const ErrorRecord& error) {
  if (error.code == "bad-input") return "input";
  if (error.code == "internal") return "verifier";
  if (error.code == "subject") return "code";
  return "infrastructure";
}

/// A process is killed from outside; a wrong access, a wrong instruction or an abort is its own.
std::string ClassOfExit(const std::string& exit) {
  for (const char* own : {"signal 4", "signal 6", "signal 7", "signal 8", "signal 11"}) {
    if (exit == own) return "code";
  }
  return "infrastructure";
}

constexpr size_t kCauseWords = 8;

/// The first words of an error without names, numbers and what is quoted: alike for errors that
/// have one cause, whatever the sizes are.
std::string CauseOf(const ErrorRecord& error) {
  std::istringstream words(error.message);
  std::string cause = error.code;
  size_t kept = 1;
  for (std::string word; kept < kCauseWords && words >> word;) {
    while (!word.empty() && std::string_view(",.;:").find(word.back()) != std::string_view::npos) {
      word.pop_back();
    }
    const bool is_word =
        !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
          return std::isalpha(c) != 0 || c == '-';
        });
    if (!is_word) continue;
    cause += " " + word;
    ++kept;
  }
  return cause;
}

std::string LastStage(const RankEvidence& rank) {
  return rank.stages.empty() ? "" : rank.stages.back().Key();
}

std::string After(const RankEvidence& rank) {
  const std::string stage = LastStage(rank);
  return stage.empty() ? "before its first stage" : fmt::format("after `{}`", stage);
}

std::string LastWords(const RankEvidence& rank) {
  std::string tail = rank.stderr_tail;
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  const size_t line = tail.rfind('\n');
  if (tail.empty()) return "";
  return fmt::format("; its last words: {}",
                     line == std::string::npos ? tail : tail.substr(line + 1));
}

void AddErrors(const RankEvidence& rank, std::vector<Failure>& failures) {
  for (const ErrorRecord& error : rank.errors) {
    const bool blames_peer = BlamesPeer(error);
    failures.push_back({blames_peer ? Order::kPeerError : Order::kOwnError,
                        rank.stages.size(),
                        "error",
                        ClassOf(error),
                        error.stage,
                        fmt::format("{}: {}", error.code, error.message),
                        {rank.rank},
                        {.cause = CauseOf(error), .exit = ExitOf(rank), .raised = error.type}});
  }
}

void AddEnd(const RankEvidence& rank, std::vector<Failure>& failures) {
  const size_t progress = rank.stages.size();
  const std::string stage = LastStage(rank);
  const auto add = [&](Order order, const std::string& kind, const std::string& what) {
    failures.push_back({order,
                        progress,
                        kind,
                        ClassOfExit(rank.exit),
                        stage,
                        what + LastWords(rank),
                        {rank.rank},
                        {.cause = ExitOf(rank), .exit = ExitOf(rank)}});
  };
  if (rank.exit.starts_with("signal")) {
    add(Order::kSignal, "lost", fmt::format("ended by {} {}", rank.exit, After(rank)));
  } else if (rank.exit == "hang") {
    add(Order::kHang, "hang", fmt::format("made no progress {} until the deadline", After(rank)));
  } else if (rank.exit.empty() && rank.closed) {
    return;  // no launcher saw it end; its evidence says so itself
  } else if (rank.exit.empty()) {
    add(Order::kLost, "lost", fmt::format("how it ended is not known, {}", After(rank)));
  } else if (rank.exit != "ok" && rank.errors.empty()) {
    add(Order::kExit, "exit",
        fmt::format("ended with {} {} and recorded no error", rank.exit, After(rank)));
  } else if (rank.exit == "ok" && !rank.closed) {
    failures.push_back(
        {Order::kUnclosed,
         progress,
         "unclosed",
         "code",
         stage,
         fmt::format("ended without an error {}, but without its last record", After(rank)),
         {rank.rank},
         {.exit = ExitOf(rank)}});
  }
  if (!rank.damage.empty()) {
    failures.push_back({Order::kDamage,
                        progress,
                        "damage",
                        "verifier",
                        stage,
                        "its evidence is damaged: " + rank.damage,
                        {rank.rank}});
  }
}

/// Ranks that should be there and left nothing, or are there twice.
void AddAbsent(const PhaseEvidence& phase, std::vector<Failure>& failures) {
  int64_t world_size = RanksOf(phase.mesh);
  std::map<int64_t, int> seen;
  for (const RankEvidence& rank : phase.ranks) {
    ++seen[rank.rank];
    world_size = std::max(world_size, rank.world_size);
  }
  for (int64_t rank = 0; rank < world_size; ++rank) {
    if (!seen.contains(rank)) {
      failures.push_back(
          {Order::kLost, 0, "lost", "infrastructure", "", "it left no evidence", {rank}});
    }
  }
  for (const auto& [rank, count] : seen) {
    if (count > 1 || rank < 0 || rank >= world_size) {
      failures.push_back({Order::kDamage,
                          0,
                          "damage",
                          "verifier",
                          "",
                          fmt::format("{} bodies of evidence of rank {} in a world of {}", count,
                                      rank, world_size),
                          {rank}});
    }
  }
}

/// The same without the rank that has found it: "bad-input: rank 1: f: no JSON".
std::string Alike(const std::string& what) {
  constexpr std::string_view kBefore = "bad-input: ";
  if (!what.starts_with(kBefore)) return what;
  return std::string(kBefore) + WithoutFinder(what.substr(kBefore.size()));
}

/// One failure of those that are alike on several ranks, in order from cause to consequence.
std::vector<Failure> Ordered(std::vector<Failure> failures) {
  std::stable_sort(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) {
    return a.order != b.order ? a.order < b.order : a.progress < b.progress;
  });
  std::vector<Failure> merged;
  for (Failure& failure : failures) {
    const auto same = std::find_if(merged.begin(), merged.end(), [&](const Failure& other) {
      // Peers blame each other in many words; those are all one consequence.
      return other.order == failure.order && other.kind == failure.kind &&
             other.stage == failure.stage &&
             (Alike(other.what) == Alike(failure.what) || failure.order == Order::kPeerError);
    });
    if (same == merged.end()) {
      merged.push_back(std::move(failure));
    } else {
      if (Alike(failure.what) == same->what) same->what = failure.what;
      same->ranks.insert(same->ranks.end(), failure.ranks.begin(), failure.ranks.end());
    }
  }
  return merged;
}

std::string FaultText(const PhaseEvidence& phase) {
  std::vector<std::string> fired;
  for (const RankEvidence& rank : phase.ranks) {
    for (const FaultRecord& fault : rank.faults) {
      fired.push_back(fmt::format("{} on rank {} ({})", fault.id, rank.rank, fault.detail));
    }
  }
  return fired.empty() ? "" : "; injected: " + ListSome(fired, 3);
}

void CheckPhase(const PhaseEvidence& phase, Judgement& judgement) {
  std::vector<Failure> failures;
  AddAbsent(phase, failures);
  for (const RankEvidence& rank : phase.ranks) {
    judgement.Compared();
    AddErrors(rank, failures);
    AddEnd(rank, failures);
  }
  failures = Ordered(std::move(failures));
  for (const Failure& failure : failures) {
    const bool is_first = &failure == &failures.front();
    const std::string role = is_first || failure.order == Order::kDamage
                                 ? ""
                                 : fmt::format("; likely a consequence of what happened on rank {}",
                                               failures.front().ranks.front());
    Finding finding = FindingAt(phase, failure.stage, "", failure.kind, failure.ranks,
                                failure.what + role + (is_first ? FaultText(phase) : ""));
    finding.failure_class = failure.failure_class;
    finding.is_consequence = !role.empty();
    finding.seen = failure.what;
    finding.facts = failure.facts;
    judgement.Found(std::move(finding));
  }
}

/// Every rank of every phase that ran closed its evidence and ended with "ok", without an error
/// record and without damage to its streams.
void Check(const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence& phase : evidence.phases) {
    if (!phase.skipped.empty()) {
      judgement.Skipped(fmt::format("phase {} did not run: {}", phase.name(), phase.skipped));
    } else if (phase.ranks.empty()) {
      judgement.Inconclusive(fmt::format("phase {} has no evidence of any rank", phase.name()));
    } else if (evidence.test_case.as_stated && WasStruck(phase)) {
      judgement.Skipped(
          fmt::format("phase {} was struck: how it ends is judged as stated", phase.name()));
    } else {
      CheckPhase(phase, judgement);
    }
  }
  if (evidence.phases.empty()) judgement.Inconclusive("there is no evidence of any phase");
}

const PropertyRegistration kRegistration{{
    .id = "fault.every_rank_finishes",
    .claim = "Every rank of every phase ends by itself, without an error, and leaves "
             "complete evidence.",
    .reads = {{EveryPhase(), {}, "how every rank ends"}},
    .tolerance = "none",
    .source = "NVIDIA/nccl#582, alan-turing-institute/autocast#386, radixark/miles#1763",
    .killed_by = {"fault.barrier_on_rank0_only", "fault.error_not_shared", "fault.leftovers_kept",
                  "loading.buffers_broadcast_by_rank0_only"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::fault::every_rank_finishes
