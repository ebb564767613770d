#include "src/pipeline/reference_stages.h"

#include "src/checkpoint/dcp.h"
#include "src/checkpoint/save.h"
#include "src/checkpoint/snapshot.h"
#include "src/checkpoint/steps.h"
#include "src/load/buckets.h"
#include "src/load/key_match.h"
#include "src/load/load.h"
#include "src/load/parcels.h"
#include "src/load/verify.h"
#include "src/manifest/manifest.h"
#include "src/optim/backward.h"
#include "src/optim/loop.h"
#include "src/optim/offload.h"
#include "src/optim/optimizer.h"
#include "src/optim/reduce.h"
#include "src/optim/resume.h"
#include "src/optim/step.h"
#include "src/shard/shard.h"

namespace shardproof {
namespace {

constexpr uint64_t kConfigBytesMax = 16u << 20;

/// The first key that the source has of a tensor, however it keeps it.
std::map<std::string, SourceTensor>::const_iterator FindStored(const TensorSpec& tensor,
                                                               const Source& source) {
  for (const auto& way : tensor.stored) {
    const auto entry = source.tensors.find(way.front().key);
    if (entry != source.tensors.end()) return entry;
  }
  return source.tensors.find(tensor.name);
}

/// What the job or its files say, whatever the source holds.
Result<ModelSpec> DescribeByFiles(const Job& job, FileSystem& files) {
  if (job.model) return *job.model;
  const std::string path = job.checkpoint + "/config.json";
  SP_ASSIGN(const std::string text, files.ReadText(path, kConfigBytesMax));
  SP_ASSIGN(ModelSpec spec, SpecFromConfig(text, path));
  if (job.lora) return WithAdapter(std::move(spec), *job.lora, "the adapter");
  if (job.adapter.empty()) return spec;
  const std::string adapter_path = job.adapter + "/" + kAdapterConfigName;
  SP_ASSIGN(const std::string adapter, files.ReadText(adapter_path, kConfigBytesMax));
  SP_ASSIGN(const LoraSpec lora, LoraFromConfig(adapter, adapter_path));
  return WithAdapter(std::move(spec), lora, adapter_path);
}

/// The file is the truth about dtypes: loading converts nothing.
Result<ModelSpec> DescribeModel(const Job& job, const Source& source, World& world) {
  SP_ASSIGN(ModelSpec spec, DescribeByFiles(job, *world.files));
  std::map<std::string, at::ScalarType> tied_dtype;
  for (const auto& group : spec.ties) {
    for (const std::string& name : group) {
      const auto entry = source.tensors.find(name);
      if (entry == source.tensors.end()) continue;
      for (const std::string& partner : group) tied_dtype.emplace(partner, entry->second.dtype);
      break;
    }
  }
  for (TensorSpec& tensor : spec.tensors) {
    const auto entry = FindStored(tensor, source);
    const auto tied = tied_dtype.find(tensor.name);
    if (tied != tied_dtype.end())
      tensor.dtype = tied->second;
    else if (tensor.persistent && entry != source.tensors.end())
      tensor.dtype = entry->second.dtype;
  }
  return spec;
}

Result<Model> BuildModel(const ModelSpec& spec, const Job& job, World& world) {
  return BuildOnMeta(spec, job.seed, *world.device);
}

/// How a strategy brings values into the model.
struct Loading {
  decltype(Stages::open_source) open_source;
  decltype(Stages::load) load;
  decltype(Stages::fill) fill;
  decltype(Stages::fill) fill_state;
};

Loading LoadingBy(Strategy strategy) {
  switch (strategy) {
    case Strategy::kRank0Broadcast:
      return {OpenSourceOnRank0, LoadViews, FillByBroadcast, FillByBroadcast};
    case Strategy::kRank0Scatter:
      return {OpenSourceOnRank0, LoadViews, FillByScatter, FillByScatter};
    case Strategy::kEachReadsOwn:
      return {OpenSourceOnEveryRank, LoadViews, FillFromSource, FillFromSource};
    case Strategy::kPlain:
      break;
  }
  return {OpenSourceOnEveryRank, LoadCopies, FillNothing, FillFromSource};
}

}  // namespace

Stages ReferenceStages(Strategy strategy) {
  Loading loading = LoadingBy(strategy);
  return {.describe = DescribeModel,
          .build = BuildModel,
          .open_source = std::move(loading.open_source),
          .match_keys = MatchKeys,
          .load = std::move(loading.load),
          .make_optimizer = MakeOptimizer,
          .unbind_optimizer = UnbindOptimizer,
          .rebind_optimizer = RebindOptimizer,
          .read_batch = ReadBatch,
          .accumulate = AccumulateGradients,
          .samples_of = SamplesOf,
          .ranks_along = RanksAlong,
          .reduce = ReduceGradients,
          .overflows = GradientsOverflow,
          .clip_gradients = ClipGradients,
          .step_parameter = StepParameter,
          .step_on_host = StepOnHost,
          .unfreeze = Unfreeze,
          .freeze_again = FreezeAgain,
          .start_training = StartTraining,
          .place = PlaceOnMesh,
          .chunk = ChunkSlot,
          .shard = ShardModel,
          .materialize = MaterializeMeta,
          .fill = std::move(loading.fill),
          .fill_state = std::move(loading.fill_state),
          .plan_buckets = PlanBuckets,
          .plan_parcels = PlanParcels,
          .unpack = Unpack,
          .verify_loaded = VerifyLoaded,
          .digest = DigestOfSlot,
          .init_missing = InitMissing,
          .compute_buffers = ComputeBuffers,
          .save = SaveModel,
          .snapshot = TakeSnapshot,
          .write_shards = WriteShards,
          .state_of = StateOf,
          .gather = GatherOnRank0,
          .split_fused = SplitFused,
          .plan_dcp = PlanDcpFile,
          .write_dcp = WriteDcpFile,
          .commit = CommitByRename,
          .move_latest = MoveLatest,
          .retain = RetainSteps};
}

}  // namespace shardproof
