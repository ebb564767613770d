// Ranks that torchrun, srun or a shell started, each with this very command. Rank 0 leads: it
// publishes orders in the store, the others carry them out and report back. Evidence goes to a
// directory that all ranks share.
#include "verify/run/joined_launcher.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "src/core/torch_try.h"
#include "verify/run/order.h"

namespace shardproof {
namespace {

using nlohmann::json;

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

/// Runs this rank's part of one order, in a group of the phase's ranks only.
int CarryOut(const PhaseRun& run, int64_t order, const JoinedRanks& ranks) {
  if (ranks.rank >= run.phase.WorldSize()) return 0;
  const c10::intrusive_ptr<c10d::Store> store =
      c10::make_intrusive<c10d::PrefixStore>(fmt::format("phase/{}", order), ranks.store);
  return RunRank(run, store,
                 {.rank = ranks.rank,
                  .world_size = run.phase.WorldSize(),
                  .timeout = RankTimeout(run.test_case),
                  .interface = ranks.interface});
}

std::string DoneKey(int64_t order, int64_t rank) { return fmt::format("done/{}/{}", order, rank); }

/// The text under `key`, once it is there. \error kPeer after `patience`.
Result<std::string> Await(const JoinedRanks& ranks, const std::string& key,
                          std::chrono::milliseconds patience) {
  return TorchTry(ErrorCode::kPeer, "waiting for " + key, [&] {
    ranks.store->wait({key}, patience);
    const auto bytes = ranks.store->get(key);
    return std::string(bytes.begin(), bytes.end());
  });
}

Result<int64_t> IntegerFrom(const char* variable, int64_t low, int64_t high) {
  const char* text = std::getenv(variable);
  if (text == nullptr) {
    return BadInput(
        fmt::format("RANK is set but {} is not: a rank that is started by hand needs "
                    "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                    variable));
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
  if (std::getenv("RANK") == nullptr) return std::optional<JoinedRanks>();
  JoinedRanks ranks;
  SP_ASSIGN(ranks.world_size, IntegerFrom("WORLD_SIZE", 1, 1024));
  SP_ASSIGN(ranks.rank, IntegerFrom("RANK", 0, ranks.world_size - 1));
  SP_ASSIGN(const int64_t port, IntegerFrom("MASTER_PORT", 1, 65535));
  const char* host = std::getenv("MASTER_ADDR");
  if (host == nullptr) return BadInput("RANK is set but MASTER_ADDR is not");
  // Under torchrun its agent serves the store already.
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  const bool serve = ranks.rank == 0 && !(agent != nullptr && std::string(agent) == "True");
  SP_ASSIGN(ranks.store, MakeTcpStore(host, static_cast<uint16_t>(port), serve, timeout));
  // A restarted job finds the store of its previous attempt.
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  ranks.store = c10::make_intrusive<c10d::PrefixStore>(
      fmt::format("shardproof/{}", attempt == nullptr ? "0" : attempt), ranks.store);
  ranks.interface = InterfaceFor(host);
  return std::optional<JoinedRanks>(ranks);
}

std::string JoinedLauncher::CannotRun(const PhasePlan& phase) const {
  // To wait for it once more, phase after phase, would tell nothing new.
  for (const int64_t rank : silent_) {
    if (rank < phase.WorldSize()) return fmt::format("rank {} did not report back before", rank);
  }
  if (phase.WorldSize() <= ranks_.world_size) return "";
  return fmt::format("needs {} ranks and {} were started", phase.WorldSize(), ranks_.world_size);
}

Result<std::vector<RankExit>> JoinedLauncher::Launch(const PhaseRun& run) {
  const int64_t order = orders_++;
  SP_TRY(TorchTry(ErrorCode::kInternal, "publishing an order", [&] {
    ranks_.store->set(fmt::format("order/{}", order), Bytes(OrderFor(run).dump()));
    return Unit{};
  }));
  const int code = CarryOut(run, order, ranks_);
  std::vector<RankExit> exits;
  exits.push_back({code == 0 ? "ok" : fmt::format("exit {}", code), ""});
  for (int64_t rank = 1; rank < run.phase.WorldSize(); ++rank) {
    const auto done =
        Await(ranks_, DoneKey(order, rank), std::chrono::milliseconds(run.test_case.deadline_ms));
    if (!done.ok()) {
      silent_.insert(rank);
      exits.push_back({"hang", "it did not report back within the deadline"});
      continue;
    }
    exits.push_back({done.value() == "0" ? "ok" : "exit " + done.value(), ""});
  }
  return exits;
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

int FollowRank0(const JoinedRanks& ranks, std::chrono::milliseconds patience) {
  for (int64_t number = 0;; ++number) {
    const auto text = Await(ranks, fmt::format("order/{}", number), patience);
    if (!text.ok()) {
      std::fprintf(stderr, "rank %ld: rank 0 gave no further order: %s\n",
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
    const int code = run.ok() ? CarryOut(run.value(), number, ranks) : 5;
    (void)TorchTry(ErrorCode::kPeer, "reporting back", [&] {
      ranks.store->set(DoneKey(number, ranks.rank), Bytes(std::to_string(code)));
      return Unit{};
    });
  }
}

}  // namespace shardproof
