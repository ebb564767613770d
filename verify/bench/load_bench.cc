// Speed of the reference pipeline's strategies, from opening the checkpoint to ready, beside a bare
// Gloo broadcast of the same bytes among the same ranks. Ranks are forked once and stay, so that
// rounds of this program and of another can alternate.
//   load_bench CHECKPOINT [--world N] [--bucket-bytes N]
// It is driven by lines on its input, each answered by one line of JSON:
//   broadcast  one c10d broadcast of one contiguous tensor that holds all the bytes
//   chunked    the same tensor in pieces of the size that the pipeline sends, as many under way
//   rank0-broadcast, rank0-scatter, each-reads-own, plain: the pipeline by that strategy
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>

#include "src/comm/gloo.h"
#include "src/load/load.h"
#include "src/pipeline/pipeline.h"

namespace shardproof {
namespace {

// Ranks idle between rounds, and the other side's round must not count as a hang.
constexpr auto kTimeout = std::chrono::minutes(10);
// As verify's ranks: tensors are fresh pages in every round, never the heap's leftovers.
constexpr int kMmapThresholdBytes = 64 << 10;

struct Options {
  std::string checkpoint;
  int64_t world_size = 4;
  uint64_t bucket_bytes = Job{}.bucket_bytes;
};

class NullObserver : public Observer {
 public:
  void Enter(const std::string&) override {}
  void Reached(const std::string&, int64_t, const Model&) override {}
  void Keys(const std::vector<std::string>&, const std::vector<std::string>&) override {}
};

int64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

/// One rank: its world, and the bytes that a bare broadcast sends.
class Rank {
 public:
  static Result<Rank> Connect(const Options& options, const std::string& store_path, int64_t rank) {
    Rank made;
    made.options_ = options;
    SP_ASSIGN(const auto store, MakeFileStore(store_path, options.world_size));
    SP_ASSIGN(made.backend_, ConnectGloo(store, {.rank = rank,
                                                 .world_size = options.world_size,
                                                 .timeout = kTimeout,
                                                 .interface = "lo"}));
    made.world_.clock = MakeSteadyClock();
    made.world_.files = MakePosixFileSystem();
    made.world_.device = MakeHostDevice();
    made.world_.observer = std::make_shared<NullObserver>();
    made.world_.communicator = MakeCommunicator(made.backend_, made.world_.clock);
    return made;
  }

  /// Runs one round. \returns seconds from the first rank's start to the last one's end.
  Result<double> Round(const std::string& what) {
    const auto strategy = StrategyFromName(what);
    if (!strategy && !payload_.defined()) SP_TRY(FillPayload());
    SP_TRY(world_.communicator->Max(0, "start"));
    const int64_t begin = NowNs();
    std::optional<Model> model;  // given back only after the clock has stopped
    if (strategy) {
      SP_ASSIGN(model, LoadModel(*strategy));
    } else {
      SP_TRY(what == "broadcast" ? Broadcast(payload_.nbytes())
                                 : Broadcast(options_.bucket_bytes / kParts));
    }
    const int64_t end = NowNs();
    // One steady clock serves all processes of a machine.
    SP_ASSIGN(const int64_t first, world_.communicator->Max(-begin, "first start"));
    SP_ASSIGN(const int64_t last, world_.communicator->Max(end, "last end"));
    return static_cast<double>(last + first) * 1e-9;
  }

 private:
  /// The checkpoint's bytes in one tensor on every rank, every page touched.
  Status FillPayload() {
    SP_ASSIGN(const Source source, OpenSource(*world_.files, options_.checkpoint));
    int64_t bytes = 0;
    for (const auto& [name, tensor] : source.tensors) bytes += tensor.length;
    SP_ASSIGN(payload_, world_.device->Allocate({bytes}, at::kByte, "payload"));
    auto* at = static_cast<std::byte*>(payload_.mutable_data_ptr());
    for (const auto& [name, tensor] : source.tensors) {
      std::memcpy(at, source.BytesOf(tensor), tensor.length);
      at += tensor.length;
    }
    return Ok();
  }

  Result<Model> LoadModel(Strategy strategy) {
    Job job;
    job.strategy = strategy;
    job.checkpoint = options_.checkpoint;
    job.mesh.axes = {{"dp_shard", options_.world_size}};
    job.bucket_bytes = options_.bucket_bytes;
    return Load(job, ReferenceStages(job.strategy), world_);
  }

  /// Broadcasts the payload in pieces of `piece_bytes`, at most kParts of them under way.
  Status Broadcast(int64_t piece_bytes) {
    std::array<c10::intrusive_ptr<c10d::Work>, kParts> under_way;
    size_t turn = 0;
    for (int64_t at = 0; at < payload_.numel(); at += piece_bytes) {
      auto& work = under_way[turn++ % under_way.size()];
      if (work) work->wait();
      std::vector<at::Tensor> piece = {
          payload_.narrow(0, at, std::min(piece_bytes, payload_.numel() - at))};
      work = backend_->broadcast(piece, c10d::BroadcastOptions());
    }
    for (auto& work : under_way) {
      if (work) work->wait();
    }
    return Ok();
  }

  Options options_;
  World world_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  at::Tensor payload_;
};

/// One byte a round tells the ranks which of these it is.
constexpr std::array kRounds = {"broadcast",     "chunked",        "rank0-broadcast",
                                "rank0-scatter", "each-reads-own", "plain"};

Status ServeRounds(Rank& rank, int64_t number, int commands) {
  for (char round = 0; ::read(commands, &round, 1) == 1;) {
    const char* name = kRounds.at(round);
    SP_ASSIGN(const double seconds, rank.Round(name));
    if (number != 0) continue;
    fmt::print("{{\"what\": \"{}\", \"seconds\": {:.6f}}}\n", name, seconds);
    std::fflush(stdout);
  }
  return Ok();
}

[[noreturn]] void BeRank(const Options& options, const std::string& store_path, int64_t number,
                         int commands, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a rank does not outlive the driver
  if (::getppid() != parent) ::_exit(1);
  at::set_num_threads(1);
  ::mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  auto rank = Rank::Connect(options, store_path, number);
  const Status status = rank.ok() ? ServeRounds(rank.value(), number, commands) : rank.error();
  if (!status.ok()) fmt::print(stderr, "load_bench: rank {}: {}\n", number, status.error().message);
  std::fflush(nullptr);
  ::_exit(status.ok() ? 0 : 1);
}

struct Child {
  pid_t pid = -1;
  int commands = -1;
};

std::vector<Child> StartRanks(const Options& options, const std::string& store_path) {
  std::vector<Child> children;
  const pid_t parent = ::getpid();
  for (int64_t number = 0; number < options.world_size; ++number) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::exit(2);
    const pid_t pid = ::fork();
    if (pid < 0) std::exit(2);
    if (pid == 0) {
      ::close(ends[1]);
      // An elder's pipe held open here would keep it from seeing its end.
      for (const Child& elder : children) ::close(elder.commands);
      BeRank(options, store_path, number, ends[0], parent);
    }
    ::close(ends[0]);
    children.push_back({pid, ends[1]});
  }
  return children;
}

/// Passes rounds on until the input ends. \returns whether all ranks ended well.
bool Drive(const std::vector<Child>& children) {
  bool sent = true;
  for (std::string line; sent && std::getline(std::cin, line);) {
    const auto found = std::find(kRounds.begin(), kRounds.end(), line);
    if (found == kRounds.end()) {
      fmt::print(stderr, "load_bench: '{}' is none of {}\n", line, fmt::join(kRounds, ", "));
      sent = false;
      break;
    }
    const char round = static_cast<char>(found - kRounds.begin());
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

}  // namespace
}  // namespace shardproof

int main(int argc, char** argv) {
  shardproof::Options options;
  CLI::App app("Loads a checkpoint, or broadcasts its bytes, once per line of input.");
  app.add_option("checkpoint", options.checkpoint, "Hugging Face directory")->required();
  app.add_option("--world", options.world_size, "Ranks")->check(CLI::Range(1, 1024));
  app.add_option("--bucket-bytes", options.bucket_bytes, "Staging bytes a rank may hold")
      ->check(CLI::Range(uint64_t{shardproof::kParts}, uint64_t{1} << 40));
  CLI11_PARSE(app, argc, argv);
  ::signal(SIGPIPE, SIG_IGN);  // a rank that died is reported by its exit, not by ours
  std::string directory = (std::filesystem::temp_directory_path() / "load_bench.XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) {
    std::perror("load_bench: mkdtemp");
    return 2;
  }
  const bool well = shardproof::Drive(shardproof::StartRanks(options, directory + "/rendezvous"));
  std::filesystem::remove_all(directory);
  return well ? 0 : 1;
}
