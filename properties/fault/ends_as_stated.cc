// fault.ends_as_stated: where a fault strikes, ranks end as its model says: in time, and with an
// error that names whom it struck.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <set>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::fault::ends_as_stated {
namespace {

/// What struck a phase.
struct Struck {
  std::set<std::string> models;
  /// What failed on a rank, by the records of faults of which a call fails: of the reference "fsync
  /// of f: Input/output error". How a call is called is each program's own, and the error's words
  /// are not: of a subject they alone.
  std::vector<std::pair<int64_t, std::string>> failed;
  std::set<int64_t> ended;    ///< ranks that a fault ends, stops or sets apart
  std::set<int64_t> stopped;  ///< those of them that it stops
  std::set<int64_t> cut_off;  ///< ranks that nothing reaches, but which run
  std::set<int64_t> shaken;   ///< ranks that may fail in any way, or get over it
  std::string text;           ///< "rank/kill on rank 1 (at stage ready)"

  bool MayEnd() const {
    for (const char* model : {"abort", "end-the-run", "tell-all", "end-in-time"}) {
      if (models.contains(model)) return true;
    }
    return false;
  }
  /// Whether ranks are lost or cut off, and nothing else has happened: where the store is gone,
  /// say, ranks that fail cannot tell others, which then find them gone.
  bool IsLossAlone() const {
    return std::all_of(models.begin(), models.end(), [](const std::string& model) {
      return model == "end-the-run" || model == "tell-all";
    });
  }
  /// Of whom an error may speak.
  std::set<int64_t> Whom() const {
    std::set<int64_t> ranks = ended;
    ranks.insert(cut_off.begin(), cut_off.end());
    ranks.insert(shaken.begin(), shaken.end());
    return ranks;
  }
};

Struck StruckIn(const PhaseEvidence& phase, bool is_reference) {
  Struck struck;
  std::vector<std::string> texts;
  for (const RankEvidence& rank : phase.ranks) {
    for (const FaultRecord& fault : rank.faults) {
      struck.models.insert(fault.model);
      if (fault.model == "abort") {
        struck.failed.emplace_back(rank.rank, is_reference ? fault.detail : fault.error);
      }
      if (fault.model == "end-the-run") struck.ended.insert(rank.rank);
      if (fault.id == "rank/stop") struck.stopped.insert(rank.rank);
      if (fault.model == "tell-all") struck.cut_off.insert(rank.rank);
      if (fault.model == "end-in-time") struck.shaken.insert(rank.rank);
      texts.push_back(fmt::format("{} on rank {} ({})", fault.id, rank.rank, fault.detail));
    }
  }
  struck.text = ListSome(texts, 2);
  return struck;
}

/// Whether the text has "rank N", or "ranks M, N" with any others.
bool NamesRank(const std::string& text, int64_t rank) {
  for (size_t at = text.find("rank"); at != std::string::npos; at = text.find("rank", at + 1)) {
    const char* next = text.c_str() + at + 4;
    if (*next == 's') ++next;
    if (*next++ != ' ') continue;
    while (std::isdigit(static_cast<unsigned char>(*next)) != 0) {
      char* end = nullptr;
      if (std::strtoll(next, &end, 10) == rank) return true;
      next = std::string_view(end).starts_with(", ") ? end + 2 : end;
    }
  }
  return false;
}

bool NamesAny(const std::string& text, const std::set<int64_t>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](int64_t rank) { return NamesRank(text, rank); });
}

/// What an error says of a rank, as the reference does: "rank 2 (its process 4711 is gone)", "this
/// rank (its connections with ranks 0, 2 are broken)".
struct Said {
  int64_t rank = 0;
  std::string what;
};

/// \param own  the rank whose error it is
std::vector<Said> SaidOfRanks(const std::string& text, int64_t own) {
  std::vector<Said> all;
  for (size_t at = text.find("rank "); at != std::string::npos; at = text.find("rank ", at + 1)) {
    const bool is_own = std::string_view(text).substr(0, at).ends_with("this ");
    char* end = nullptr;
    const int64_t number = std::strtoll(text.c_str() + at + 5, &end, 10);
    const std::string_view rest =
        std::string_view(text).substr(is_own ? at + 4 : static_cast<size_t>(end - text.c_str()));
    if (!rest.starts_with(" (")) continue;
    all.push_back({is_own ? own : number, std::string(rest.substr(2, rest.find(')') - 2))});
  }
  return all;
}

constexpr size_t kUnderWayMax = 8;

/// Whether the text has something that travels in a collective which the rank may have been waiting
/// for, or it was waiting for none.
bool NamesWhatWasUnderWay(const std::string& text, const RankEvidence& rank) {
  const size_t count = std::min(kUnderWayMax, rank.collectives.size());
  return count == 0 ||
         std::any_of(rank.collectives.end() - static_cast<ptrdiff_t>(count), rank.collectives.end(),
                     [&](const CollectiveRecord& collective) {
                       return !collective.tensors.empty() &&
                              text.find(collective.tensors.front()) != std::string::npos;
                     });
}

class Judging {
 public:
  /// \param names_ranks  whether errors must say whom they are about
  /// \param in_known_words  whether they are the reference's
  Judging(const PhaseEvidence& phase, const Struck& struck, bool names_ranks, bool in_known_words,
          Judgement& judgement)
      : phase_(phase),
        struck_(struck),
        names_ranks_(names_ranks),
        in_known_words_(in_known_words),
        judgement_(judgement) {}

  void Check() {
    bool any_failed = false;
    for (const RankEvidence& rank : phase_.ranks) any_failed = any_failed || !rank.errors.empty();
    for (const RankEvidence& rank : phase_.ranks) {
      judgement_.Compared();
      if (struck_.ended.contains(rank.rank))
        continue;  // killed, stopped, or out of step: so it was asked
      if (rank.exit == "hang") {
        Add(rank, "hang", "made no progress until the deadline");
      } else if (struck_.shaken.contains(rank.rank) && rank.exit != "signal 11") {
        continue;  // an error, an exception that nobody caught, or nothing
      } else if (rank.exit.starts_with("signal")) {
        Add(rank, "lost", fmt::format("ended by {}", rank.exit));
      } else if (!struck_.MayEnd() && rank.exit != "ok") {
        Add(rank, "ended", fmt::format("ended with {}, although it only had to wait", rank.exit));
      } else if (rank.errors.empty() && rank.exit != "ok") {
        Add(rank, "silent", fmt::format("ended with {} and said nothing", rank.exit));
      } else if (rank.errors.empty() && any_failed && struck_.models.contains("abort")) {
        Add(rank, "not-told", "ended as if all were well, although another rank failed");
      } else if (rank.errors.empty() && !struck_.cut_off.empty()) {
        Add(rank, "not-told", "ended as if all were well, although a rank was cut off");
      } else if (!rank.errors.empty() && GotOverIt()) {
        Add(rank, "ended",
            "failed, although the fault on another rank had no effect: " + rank.errors[0].message);
      } else if (!rank.errors.empty() && names_ranks_) {
        CheckMessage(rank);
      }
    }
  }

 private:
  /// Its first error: what comes after that is a consequence.
  void CheckMessage(const RankEvidence& rank) {
    const ErrorRecord& error = rank.errors.front();
    judgement_.Compared();
    if (TellsWhatFailed(rank.rank, error) || TellsWhoIsLost(rank, error)) {
      if (in_known_words_ && struck_.IsLossAlone()) CheckSaid(rank, error);
      return;
    }
    if (std::any_of(struck_.failed.begin(), struck_.failed.end(),
                    [](const auto& failed) { return failed.second.empty(); })) {
      return judgement_.Inconclusive(
          "the record of a fault does not say which error the call returned");
    }
    Add(rank, "not-named", "does not name the failed rank and the operation: " + error.message);
  }

  /// That what it says became of ranks is what became of them. On one machine a process can be seen
  /// to be gone or stopped: that it does not answer is too little.
  void CheckSaid(const RankEvidence& rank, const ErrorRecord& error) {
    for (const Said& said : SaidOfRanks(error.message, rank.rank)) {
      judgement_.Compared();
      if (const std::string wrong = WrongIn(said, rank.host); !wrong.empty()) {
        Add(rank, "wrong-cause",
            fmt::format("says of rank {} that {}, {}: {}", said.rank, said.what, wrong,
                        error.message));
      }
    }
  }

  /// Why it is wrong, said on that machine; empty if it is not, or nothing that can be told.
  std::string WrongIn(const Said& said, const std::string& host) const {
    const auto of = std::find_if(phase_.ranks.begin(), phase_.ranks.end(),
                                 [&](const auto& rank) { return rank.rank == said.rank; });
    if (of == phase_.ranks.end()) return "and there is no such rank";
    const bool is_struck = struck_.ended.contains(said.rank);
    if (said.what.starts_with("its process ")) {
      if (!is_struck) return "which nothing has struck";
      const bool is_its = said.what.find(fmt::format(" {} is ", of->process_id)) != said.what.npos;
      if (of->process_id > 0 && !is_its) {
        return fmt::format("whose process is {}", of->process_id);
      }
      const bool says_stopped = said.what.ends_with(" stopped");
      if (says_stopped && !struck_.stopped.contains(said.rank)) return "which was not stopped";
    }
    if (said.what.starts_with("its connections with ") && struck_.ended.empty() &&
        !struck_.cut_off.contains(said.rank) && !NamesAny(said.what, struck_.cut_off)) {
      return "of which nothing has struck either end";
    }
    if (said.what.starts_with("it has left") && !is_struck && !of->errors.empty()) {
      return "which ended with an error";
    }
    const bool is_vague = said.what == "it does not answer";
    return is_vague && is_struck && of->host == host ? "whose process can be looked at" : "";
  }

  /// As a person finds it in the text of the error, which is what must be so.
  bool TellsWhatFailed(int64_t own, const ErrorRecord& error) const {
    return std::any_of(struck_.failed.begin(), struck_.failed.end(), [&](const auto& failed) {
      const auto& [rank, what] = failed;
      return (rank == own || NamesRank(error.message, rank)) &&
             error.message.find(what) != std::string::npos;
    });
  }

  /// And by what the rank was waiting for, where the other was in no state to say more.
  bool TellsWhoIsLost(const RankEvidence& rank, const ErrorRecord& error) const {
    const std::set<int64_t> whom = struck_.Whom();
    return (!struck_.shaken.empty() || NamesWhatWasUnderWay(error.message, rank)) &&
           std::any_of(whom.begin(), whom.end(), [&](int64_t lost) {
             return NamesRank(error.message, lost) ||
                    (lost == rank.rank && error.message.find("this rank") != std::string::npos);
           });
  }

  /// Whether ranks that might have failed have not, and nothing else has struck.
  bool GotOverIt() const {
    return struck_.models == std::set<std::string>{"end-in-time"} &&
           std::all_of(phase_.ranks.begin(), phase_.ranks.end(), [&](const RankEvidence& rank) {
             return !struck_.shaken.contains(rank.rank) || rank.exit == "ok";
           });
  }

  void Add(const RankEvidence& rank, const std::string& kind, const std::string& what) {
    const std::string stage = rank.stages.empty() ? "" : rank.stages.back().Key();
    Finding finding =
        FindingAt(phase_, stage, "", kind, {rank.rank}, what + "; injected: " + struck_.text);
    finding.seen = what;
    finding.facts.exit = ExitOf(rank);
    if (kind == "lost") finding.facts.cause = ExitOf(rank);
    if (!rank.errors.empty()) finding.facts.raised = rank.errors.front().type;
    judgement_.Found(std::move(finding));
  }

  const PhaseEvidence& phase_;
  const Struck& struck_;
  const bool names_ranks_;
  const bool in_known_words_;
  Judgement& judgement_;
};

/// In a phase that is struck every other rank ends by itself before the deadline. Where the
/// fault only holds up, well. Where it makes a call fail, all ranks end with an error or none
/// does, and every error says which call of which rank it was. Where a rank is lost or cut off,
/// every error names it, and what travels in the collective that waited for it; and what the
/// reference says became of a rank that was killed, stopped, cut off or left is true. Where one
/// rank may fail in any way, all others end well if it does, or with an error that names it; it
/// itself may be ended by an abort, and by no wrong access.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (evidence.test_case.faults.empty()) {
    judgement.Skipped("no fault was to be injected");
    return;
  }
  const std::string* nameless = evidence.WhyCannot("lost_ranks");
  if (nameless != nullptr) judgement.Skipped("which rank errors name: " + *nameless);
  for (const PhaseEvidence& phase : evidence.phases) {
    const Struck struck = StruckIn(phase, IsReference(evidence));
    if (struck.models.empty()) continue;
    if (struck.models.contains("refuse")) {
      judgement.Skipped("a damaged source must be refused: fault.damage_refused judges that");
      continue;
    }
    if (struck.models.contains("spare")) {
      judgement.Skipped("what is in the way of a save must stay: fault.others_spared judges that");
      continue;
    }
    if (struck.models.contains("recover") && !LastStepOf(phase, Stage::kRestored)) {
      judgement.Skipped("a damaged save may have ended it: fault.damage_recovered judges that");
      continue;
    }
    const bool is_judged = struck.MayEnd() || struck.models.contains("go-on");
    if (!is_judged) {
      judgement.Skipped("no fault was injected that ends or delays a job");
      continue;
    }
    Judging(phase, struck, nameless == nullptr, IsReference(evidence), judgement).Check();
  }
  if (judgement.comparisons() == 0 && judgement.verdict() != Verdict::kSkip) {
    judgement.Inconclusive("no fault struck");
  }
}

const PropertyRegistration kRegistration{{
    .id = "fault.ends_as_stated",
    .claim = "Under an injected fault every rank ends in time and as the fault requires, "
             "and names the faulted rank and what became of it.",
    .reads = {{EveryPhase(), {}, "fault records, how every rank ends, errors, collectives"}},
    .tolerance = "none",
    .source = "NVIDIA/nccl#582, NVIDIA/nvidia-resiliency-ext#170",
    .killed_by = {"fault.cause_not_told", "fault.error_not_told", "fault.lost_rank_not_looked_at",
                  "fault.waits_without_end", "subject.not_slowed_down",
                  "subject.waits_for_a_lost_rank"},
    .check = Check,
    .case_needs = R"({"as_stated": true, "faults": [{"id": "file/enospc", "where": "0"}]})",
}};

}  // namespace
}  // namespace shardproof::fault::ends_as_stated
