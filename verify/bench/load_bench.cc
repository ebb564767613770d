// Speed of the reference pipeline's strategies, from opening the checkpoint to ready, beside a bare
// Gloo broadcast of the same bytes among the same ranks.
//   load_bench CHECKPOINT [--world N] [--bucket-bytes N]
// Rounds, see ranks.h:
//   broadcast  one c10d broadcast of one contiguous tensor that holds all the bytes
//   chunked    the same tensor in pieces of the size that the pipeline sends, as many under way
//   rank0-broadcast, rank0-scatter, each-reads-own, plain: the pipeline by that strategy
#include <CLI/CLI.hpp>
#include <cstring>
#include <optional>

#include "src/load/load.h"
#include "src/pipeline/reference_stages.h"
#include "verify/bench/ranks.h"

namespace shardproof {
namespace {

struct Options {
  std::string checkpoint;
  int64_t world_size = 4;
  uint64_t bucket_bytes = Job{}.bucket_bytes;
};

/// One rank: its world, and the bytes that a bare broadcast sends.
class Rank {
 public:
  Rank(const Options& options, Connected connected)
      : options_(options), world_(connected.world), backend_(connected.backend) {}

  Result<double> Round(const std::string& what) {
    const auto strategy = StrategyFromName(what);
    if (!strategy && !payload_.defined()) SP_TRY(FillPayload());
    std::optional<Model> model;  // given back only after the clock has stopped
    return TimeTogether(world_, [&]() -> Status {
      if (strategy) {
        SP_ASSIGN(model, LoadModel(*strategy));
        return Ok();
      }
      return what == "broadcast" ? Broadcast(payload_.nbytes())
                                 : Broadcast(options_.bucket_bytes / kParts);
    });
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

}  // namespace
}  // namespace shardproof

int main(int argc, char** argv) {
  using namespace shardproof;
  Options options;
  CLI::App app("Loads a checkpoint, or broadcasts its bytes, once per line of input.");
  app.add_option("checkpoint", options.checkpoint, "Hugging Face directory")->required();
  app.add_option("--world", options.world_size, "Ranks")->check(CLI::Range(1, 1024));
  app.add_option("--bucket-bytes", options.bucket_bytes, "Staging bytes a rank may hold")
      ->check(CLI::Range(uint64_t{kParts}, uint64_t{1} << 40));
  CLI11_PARSE(app, argc, argv);
  const auto start = [&](const std::string& store_path, int64_t rank) -> Result<ServeRound> {
    SP_ASSIGN(Connected connected, ConnectRank(store_path, rank, options.world_size));
    const auto made = std::make_shared<Rank>(options, std::move(connected));
    return ServeRound([made](const std::string& round) { return made->Round(round); });
  };
  return RunRanks({.name = "load_bench",
                   .world_size = options.world_size,
                   .rounds = {"broadcast", "chunked", "rank0-broadcast", "rank0-scatter",
                              "each-reads-own", "plain"},
                   .start = start});
}
