// Ranks that torchrun, srun or a shell started, each with this very command. Rank 0 leads: it
// publishes orders in the store, the others carry them out and report back. Evidence goes to a
// directory that all ranks share. A rank of a Python subject is a child of its rank's command.
#include "verify/launch/joined_launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "src/aten/torch_try.h"
#include "verify/case/json_fields.h"
#include "verify/launch/order.h"
#include "verify/launch/rank_processes.h"
#include "verify/launch/started_ranks.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr auto kSlice = std::chrono::milliseconds(1000);
constexpr auto kGlance = std::chrono::milliseconds(1);
/// What whoever ends a hung rank may take to report that.
constexpr auto kReportAllowance = std::chrono::milliseconds(10'000);

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

/// Under which a rank says that it has begun an order, and how it has ended.
std::string BegunKey(int64_t order, int64_t rank) {
  return fmt::format("begun/{}/{}", order, rank);
}
std::string DoneKey(int64_t order, int64_t rank) { return fmt::format("done/{}/{}", order, rank); }

std::string Host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

/// The text under `key`, once it is there. \error kPeer after `patience`.
Result<std::string> Await(const JoinedRanks& ranks, const std::string& key,
                          std::chrono::milliseconds patience) {
  return TorchTry(ErrorCode::kPeer, "waiting for " + key, [&] {
    ranks.store->wait({key}, patience);
    const auto bytes = ranks.store->get(key);
    return std::string(bytes.begin(), bytes.end());
  });
}

Result<int64_t> IntegerFrom(const char* variable, const char* text, int64_t low, int64_t high) {
  if (text == nullptr) {
    return BadInput(
        fmt::format("{} is set but {} is not: a rank that is started by hand needs "
                    "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                    AnnouncedRank().rank_name, variable));
  }
  int64_t value = 0;
  const char* end = text + std::string_view(text).size();
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    return BadInput(fmt::format("{} is '{}': expected a whole number from {} to {}", variable, text,
                                low, high));
  }
  return value;
}

std::string InterfaceFor(const std::string& host) {
  if (const char* chosen = std::getenv("GLOO_SOCKET_IFNAME")) return chosen;
  return host == "127.0.0.1" || host == "localhost" || host == "::1" ? "lo" : "";
}

}  // namespace

Result<std::optional<JoinedRanks>> JoinRanks(std::chrono::milliseconds timeout) {
  const Announced found = AnnouncedRank();
  if (found.rank == nullptr) return std::optional<JoinedRanks>();
  JoinedRanks ranks;
  SP_ASSIGN(ranks.world_size, IntegerFrom(found.world_name, found.world, 1, kRanksMax));
  SP_ASSIGN(ranks.rank, IntegerFrom(found.rank_name, found.rank, 0, ranks.world_size - 1));
  SP_ASSIGN(const int64_t port, IntegerFrom("MASTER_PORT", std::getenv("MASTER_PORT"), 1, 65535));
  const char* host = std::getenv("MASTER_ADDR");
  if (host == nullptr) return BadInput("RANK is set but MASTER_ADDR is not");
  // Under torchrun its agent serves the store already.
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  const bool serve = ranks.rank == 0 && !(agent != nullptr && std::string(agent) == "True");
  SP_ASSIGN(ranks.store, MakeTcpStore(host, static_cast<uint16_t>(port), serve, timeout));
  // A restarted job finds the store of its previous attempt.
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  ranks.prefix = fmt::format("shardproof/{}", attempt == nullptr ? "0" : attempt);
  ranks.store = c10::make_intrusive<c10d::PrefixStore>(ranks.prefix, ranks.store);
  ranks.interface = InterfaceFor(host);
  return std::optional<JoinedRanks>(ranks);
}

RankExit JoinedRank::CarryOut(const PhaseRun& run, int64_t order) {
  const int64_t rank = ranks_.rank;
  if (rank >= run.phase.WorldSize()) return {"ok", ""};
  (void)TorchTry(ErrorCode::kPeer, "saying that it begins", [&] {
    ranks_.store->set(BegunKey(order, rank), Bytes("1"));
    return Unit{};
  });
  if (!std::filesystem::is_directory(run.evidence)) {
    return {"exit 2", fmt::format("host {} has no directory {}, in which rank 0 collects what all "
                                  "ranks record: expected --report DIR on a disk that all hosts "
                                  "share",
                                  Host(), run.evidence)};
  }
  if (run.test_case.subject != kReference) {
    const auto exits = subject_.Run(run, {rank});
    return exits.ok() ? exits.value().front() : RankExit{"exit 5", exits.error().message};
  }
  const c10::intrusive_ptr<c10d::Store> store =
      c10::make_intrusive<c10d::PrefixStore>(fmt::format("phase/{}", order), ranks_.store);
  const int code = RunRank(run, store,
                           {.rank = rank,
                            .world_size = run.phase.WorldSize(),
                            .timeout = RankTimeout(run.test_case),
                            .interface = ranks_.interface});
  return {code == 0 ? "ok" : fmt::format("exit {}", code), ""};
}

std::string JoinedLauncher::CannotRun(const PhasePlan& phase) const {
  // To wait for it once more, phase after phase, would tell nothing new.
  for (const int64_t rank : silent_) {
    if (rank < phase.WorldSize()) return fmt::format("rank {} had not reported back before", rank);
  }
  if (phase.WorldSize() <= ranks_.world_size) return "";
  return fmt::format("needs {} ranks and {} were started", phase.WorldSize(), ranks_.world_size);
}

Result<std::vector<RankExit>> JoinedLauncher::Launch(const PhaseRun& run) {
  const int64_t order = orders_++;
  SP_TRY(MakeEvidenceDirectory(run));
  SP_TRY(TorchTry(ErrorCode::kInternal, "publishing an order", [&] {
    const json told = OrderFor(run);
    if (run.test_case.subject != kReference) {
      json of_subject = OrderForSubject(run);
      for (const char* path : {"source", "save_to", "evidence"}) of_subject[path] = told.at(path);
      of_subject["store_prefix"] = fmt::format("{}/phase/{}", ranks_.prefix, order);
      std::ofstream(OrderPath(run)) << of_subject.dump(1) << "\n";
    }
    ranks_.store->set(fmt::format("order/{}", order), Bytes(told.dump()));
    return Unit{};
  }));
  std::vector<RankExit> exits = {own_.CarryOut(run, order)};
  for (int64_t rank = 1; rank < run.phase.WorldSize(); ++rank) {
    exits.push_back(AwaitRank(run, order, rank));
  }
  return exits;
}

/// Waits for the report of a rank as long as any that is waited for makes progress.
RankExit JoinedLauncher::AwaitRank(const PhaseRun& run, int64_t order, int64_t rank) {
  using Monotonic = std::chrono::steady_clock;
  const bool is_subject = run.test_case.subject != kReference;
  const std::chrono::milliseconds deadline(run.test_case.deadline_ms);
  uint64_t written = 0;
  bool has_begun = false;
  Monotonic::time_point progress = Monotonic::now();
  for (;;) {
    const auto done = Await(ranks_, DoneKey(order, rank), kSlice);
    if (done.ok()) {
      const json report = json::parse(done.value());
      return {report.at("exit"), report.at("stderr_tail")};
    }
    has_begun = has_begun || Await(ranks_, BegunKey(order, rank), kGlance).ok();
    uint64_t now_written = 0;
    for (int64_t each = rank; each < run.phase.WorldSize(); ++each) {
      now_written += FactsBytes(run, each);
    }
    if (now_written != written) progress = Monotonic::now();
    written = now_written;
    // Whoever watches a subject's rank there ends it at the deadline, and reports that.
    auto patience = deadline;
    if (is_subject && has_begun) {
      patience = (FactsBytes(run, rank) == 0
                      ? std::max<std::chrono::milliseconds>(deadline, kStartAllowance)
                      : deadline) +
                 kReportAllowance;
    }
    if (Monotonic::now() - progress > patience) break;
  }
  silent_.insert(rank);
  return {"hang", has_begun ? "it did not report back within the deadline"
                            : "it did not report back within the deadline, nor say that it began"};
}

void JoinedLauncher::Dismiss(int exit_code) {
  constexpr auto kFarewell = std::chrono::milliseconds(5000);
  const json order = {{"exit", exit_code}};
  const auto told = TorchTry(ErrorCode::kInternal, "publishing the outcome", [&] {
    ranks_.store->set(fmt::format("order/{}", orders_), Bytes(order.dump()));
    return Unit{};
  });
  if (!told.ok()) return;
  // The store may live in this process: it must not vanish before the others have read.
  for (int64_t rank = 1; rank < ranks_.world_size; ++rank) {
    if (silent_.contains(rank)) continue;
    if (!Await(ranks_, fmt::format("gone/{}", rank), kFarewell).ok()) return;
  }
}

int FollowRank0(JoinedRank& rank, std::chrono::milliseconds patience) {
  const JoinedRanks& ranks = rank.ranks();
  for (int64_t number = 0;; ++number) {
    const auto text = Await(ranks, fmt::format("order/{}", number), patience);
    if (!text.ok()) {
      std::fprintf(stderr, "rank %ld: rank 0 sent no further order: %s\n",
                   static_cast<long>(ranks.rank), text.error().message.c_str());
      return 1;
    }
    const json order = json::parse(text.value());
    if (order.contains("exit")) {
      (void)TorchTry(ErrorCode::kPeer, "leaving", [&] {
        ranks.store->set(fmt::format("gone/{}", ranks.rank), Bytes("1"));
        return Unit{};
      });
      return order.at("exit");
    }
    const auto run = RunFromOrder(order);
    if (!run.ok()) std::fprintf(stderr, "%s\n", run.error().message.c_str());
    const RankExit exit =
        run.ok() ? rank.CarryOut(run.value(), number) : RankExit{"exit 5", run.error().message};
    const json report = {{"exit", exit.exit}, {"stderr_tail", exit.stderr_tail}};
    (void)TorchTry(ErrorCode::kPeer, "reporting back", [&] {
      ranks.store->set(DoneKey(number, ranks.rank), Bytes(DumpJson(report)));
      return Unit{};
    });
  }
}

}  // namespace shardproof
