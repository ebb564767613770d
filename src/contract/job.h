// What the pipeline is asked to do, and the world it does it in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/mesh/placement.h"
#include "src/model/lora.h"
#include "src/model/spec.h"
#include "src/seam/background.h"
#include "src/seam/clock.h"
#include "src/seam/communicator.h"
#include "src/seam/device.h"
#include "src/seam/observer.h"
#include "src/storage/file_system.h"

namespace shardproof {

enum class Strategy {
  kRank0Broadcast,  ///< rank 0 reads, everyone else stays on meta and takes its shard off a bucket
  kRank0Scatter,    ///< rank 0 reads and sends every rank its shards
  kEachReadsOwn,    ///< every rank reads its shards
  kPlain,           ///< every rank reads everything and slices: the yardstick
};

/// By the name that a Case gives it; nothing if there is none of that name.
std::optional<Strategy> StrategyFromName(std::string_view name);

enum class SaveFormat {
  kSafetensors,  ///< sharded, with an index; a training job's state in a folder beside it
  kDcp,          ///< torch.distributed.checkpoint
};

/// Optimizer steps, as AdamW takes them.
struct Training {
  int64_t steps = 0;
  double clip_norm = 1.0;       ///< of all gradients; 0: they are not clipped
  bool clip_by_group = false;   ///< of those of each group of parameters instead
  double learning_rate = 1e-3;  ///< of matrices; all else has half of it
  double rate_decay = 0.9375;   ///< what a step multiplies every group's rate by, for the next
  double weight_decay = 0.1;    ///< of matrices; all else has none
  double epsilon = 1e-8;
  at::ScalarType moments = at::kFloat;  ///< or BFloat16
  bool masters = true;                  ///< F32 ones of BF16 parameters
  int64_t unfreeze_after = 0;   ///< the step after which frozen parameters are trained; 0: never
  int64_t unfrozen_steps = 0;   ///< for so many steps, then they are frozen again; 0: to the end
  double without_gradient = 0;  ///< the share of parameters that have no gradient in a step
  int64_t micro_batches = 1;    ///< whose gradients make that of a step
  /// F32 or BF16: ranks of data parallelism share the micro-batches, and their gradients travel in
  /// this dtype; absent: every rank computes those of all, for what it has of each parameter.
  std::optional<at::ScalarType> reduce = std::nullopt;
  int64_t samples = 0;    ///< that a sampler shuffles anew in every epoch; 0: all data is new
  double loss_scale = 0;  ///< what a scaler of the loss begins with; 0: there is none
  double average = 0;   ///< the decay of an exponential average of each parameter; 0: none is kept
  double offload = 0;   ///< the fraction of the optimizer's work that the host does, of [0, 1]
  bool overlap = true;  ///< whether it steps one piece while another is being copied
  int64_t keep = 2;     ///< so many of the newest saved steps stay on disk; at least 1
  bool async = false;   ///< whether files are written while the job takes its steps
  bool gathered = false;  ///< whether rank 0 gathers all that is saved, and writes it alone
  /// Whether DCP has fused tensors, and their state, under the keys that their parts are kept under
  /// elsewhere, as safetensors always has.
  bool split_fused = false;
};

struct Job {
  std::string checkpoint;          ///< directory to load, or the root of a training job's steps
  std::optional<ModelSpec> model;  ///< absent: what checkpoint/config.json describes
  std::string adapter;             ///< directory of a PEFT adapter to load besides, or empty
  std::optional<LoraSpec> lora;    ///< an adapter to begin afresh instead
  bool optimizer_first = false;    ///< an optimizer is made before the model is sharded
  bool from_scratch = false;       ///< every tensor is initialised: of checkpoint, only config.json
  Mesh mesh;
  Strategy strategy = Strategy::kRank0Broadcast;
  uint64_t seed = 0;                  ///< of initial values
  uint64_t bucket_bytes = 16u << 20;  ///< staging bytes a rank may hold at once
  /// Directory of the saved checkpoint; of a job that trains, the root below which each save is a
  /// directory of its own (checkpoint/steps.h). Empty: do not save.
  std::string save_to;
  Training training;
  SaveFormat format = SaveFormat::kSafetensors;
  uint64_t max_file_bytes = 0;  ///< of saved files; 0: about one file a rank

  bool HasAdapter() const { return lora || !adapter.empty(); }
};

/// Everything outside the pipeline, behind its seams.
struct World {
  std::shared_ptr<FileSystem> files;
  std::shared_ptr<Device> device;
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Clock> clock;
  std::shared_ptr<Observer> observer;
  std::shared_ptr<Background> background = nullptr;  ///< needed by saves that are async

  int64_t rank() const { return communicator->rank(); }
};

}  // namespace shardproof
