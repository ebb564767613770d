// Ranks of a benchmark: forked once, connected by Gloo, they stay, so that rounds of this program
// and of another can alternate. A program is driven by lines on its input, each the name of a round
// and answered by one line of JSON.
#pragma once

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "src/comm/gloo.h"
#include "src/pipeline/pipeline.h"

namespace shardproof {

// Ranks idle between rounds, and the other side's round must not count as a hang.
inline constexpr auto kTimeout = std::chrono::minutes(10);
// As verify's ranks: tensors are fresh pages in every round, never the heap's leftovers.
inline constexpr int kMmapThresholdBytes = 64 << 10;

class NullObserver : public Observer {
 public:
  void Enter(Stage) override {}
  void Reached(Stage, int64_t, const Model&) override {}
  void Keys(const std::vector<std::string>&, const std::vector<std::string>&) override {}
};

/// The world of one rank, and what connects it.
struct Connected {
  World world;
  c10::intrusive_ptr<c10d::Backend> backend;
};

inline Result<Connected> ConnectRank(const std::string& store_path, int64_t rank,
                                     int64_t world_size) {
  Connected made;
  SP_ASSIGN(const auto store, MakeFileStore(store_path, world_size));
  SP_ASSIGN(
      made.backend,
      ConnectGloo(
          store, {.rank = rank, .world_size = world_size, .timeout = kTimeout, .interface = "lo"}));
  made.world.clock = MakeSteadyClock();
  made.world.files = MakePosixFileSystem();
  made.world.device = MakeHostDevice();
  made.world.observer = std::make_shared<NullObserver>();
  made.world.communicator = MakeCommunicator(made.backend, made.world.clock);
  return made;
}

inline int64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

/// Has all ranks do `work` at once. \returns seconds from the first rank's start to the last one's
/// end.
template <typename Work>
Result<double> TimeTogether(World& world, Work work) {
  SP_TRY(world.communicator->Max(0, "start"));
  const int64_t begin = NowNs();
  SP_TRY(work());
  const int64_t end = NowNs();
  // One steady clock serves all processes of a machine.
  SP_ASSIGN(const int64_t first, world.communicator->Max(-begin, "first start"));
  SP_ASSIGN(const int64_t last, world.communicator->Max(end, "last end"));
  return static_cast<double>(last + first) * 1e-9;
}

/// Runs the named round on one rank. \returns its seconds, alike on all ranks.
using ServeRound = std::function<Result<double>(const std::string& round)>;

/// A program of ranks.
struct RankProgram {
  std::string name;
  int64_t world_size = 4;
  std::vector<std::string> rounds;
  /// On the rank itself, once: what serves its rounds.
  std::function<Result<ServeRound>(const std::string& store_path, int64_t rank)> start;
};

/// One byte a round tells the ranks which of the program's it is.
inline Status ServeRounds(const RankProgram& program, const std::string& store_path, int64_t number,
                          int commands) {
  SP_ASSIGN(const ServeRound serve, program.start(store_path, number));
  for (char round = 0; ::read(commands, &round, 1) == 1;) {
    const std::string& name = program.rounds.at(round);
    SP_ASSIGN(const double seconds, serve(name));
    if (number != 0) continue;
    fmt::print("{{\"what\": \"{}\", \"seconds\": {:.6f}}}\n", name, seconds);
    std::fflush(stdout);
  }
  return Ok();
}

[[noreturn]] inline void BeRank(const RankProgram& program, const std::string& store_path,
                                int64_t number, int commands, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a rank does not outlive the driver
  if (::getppid() != parent) ::_exit(1);
  at::set_num_threads(1);
  ::mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  const Status status = ServeRounds(program, store_path, number, commands);
  if (!status.ok()) {
    fmt::print(stderr, "{}: rank {}: {}\n", program.name, number, status.error().message);
  }
  std::fflush(nullptr);
  ::_exit(status.ok() ? 0 : 1);
}

struct Child {
  pid_t pid = -1;
  int commands = -1;
};

inline std::vector<Child> StartRanks(const RankProgram& program, const std::string& store_path) {
  std::vector<Child> children;
  const pid_t parent = ::getpid();
  for (int64_t number = 0; number < program.world_size; ++number) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::exit(2);
    const pid_t pid = ::fork();
    if (pid < 0) std::exit(2);
    if (pid == 0) {
      ::close(ends[1]);
      // An elder's pipe held open here would keep it from seeing its end.
      for (const Child& elder : children) ::close(elder.commands);
      BeRank(program, store_path, number, ends[0], parent);
    }
    ::close(ends[0]);
    children.push_back({pid, ends[1]});
  }
  return children;
}

/// Passes rounds on until the input ends. \returns whether all ranks ended well.
inline bool Drive(const RankProgram& program, const std::vector<Child>& children) {
  bool sent = true;
  for (std::string line; sent && std::getline(std::cin, line);) {
    const auto found = std::find(program.rounds.begin(), program.rounds.end(), line);
    if (found == program.rounds.end()) {
      fmt::print(stderr, "{}: '{}' is none of {}\n", program.name, line,
                 fmt::join(program.rounds, ", "));
      sent = false;
      break;
    }
    const char round = static_cast<char>(found - program.rounds.begin());
    for (const Child& child : children) sent = ::write(child.commands, &round, 1) == 1 && sent;
  }
  for (const Child& child : children) ::close(child.commands);
  bool well = sent;
  for (const Child& child : children) {
    int status = 0;
    well = ::waitpid(child.pid, &status, 0) == child.pid && status == 0 && well;
  }
  return well;
}

/// \returns the program's exit code.
inline int RunRanks(const RankProgram& program) {
  ::signal(SIGPIPE, SIG_IGN);  // a rank that died is reported by its exit, not by ours
  std::string directory =
      (std::filesystem::temp_directory_path() / (program.name + ".XXXXXX")).string();
  if (::mkdtemp(directory.data()) == nullptr) {
    std::perror((program.name + ": mkdtemp").c_str());
    return 2;
  }
  const bool well = Drive(program, StartRanks(program, directory + "/rendezvous"));
  std::filesystem::remove_all(directory);
  return well ? 0 : 1;
}

}  // namespace shardproof
