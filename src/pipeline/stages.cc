#include "src/pipeline/stages.h"

#include "src/checkpoint/save.h"
#include "src/load/buckets.h"
#include "src/load/load.h"
#include "src/shard/shard.h"

namespace shardproof {
namespace {

constexpr uint64_t kConfigBytesMax = 16u << 20;

/// The file is the truth about dtypes: loading converts nothing.
Result<ModelSpec> DescribeModel(const Job& job, const Source& source, World& world) {
  ModelSpec spec;
  if (job.model) {
    spec = *job.model;
  } else {
    const std::string path = job.checkpoint + "/config.json";
    SP_ASSIGN(const std::string text, world.files->ReadText(path, kConfigBytesMax));
    SP_ASSIGN(spec, SpecFromConfig(text, path));
  }
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
    const auto entry = source.tensors.find(tensor.name);
    const auto tied = tied_dtype.find(tensor.name);
    if (tied != tied_dtype.end()) tensor.dtype = tied->second;
    else if (tensor.persistent && entry != source.tensors.end()) tensor.dtype = entry->second.dtype;
  }
  return spec;
}

Result<Model> BuildModel(const ModelSpec& spec, const Job& job, World& world) {
  return BuildOnMeta(spec, job.seed, *world.device);
}

}  // namespace

Stages ReferenceStages(Strategy strategy) {
  const bool from_rank0 = strategy == Strategy::kRank0Broadcast;
  return {.describe = DescribeModel,
          .build = BuildModel,
          .open_source = from_rank0 ? OpenSourceOnRank0 : OpenSourceOnEveryRank,
          .match_keys = MatchKeys,
          .load = from_rank0 ? LoadOnRank0 : LoadOnEveryRank,
          .place = PlaceLikeFsdp,
          .chunk = ChunkSlot,
          .shard = ShardModel,
          .materialize = MaterializeMeta,
          .fill = from_rank0 ? FillByBroadcast : FillNothing,
          .plan_buckets = PlanBuckets,
          .unpack = Unpack,
          .init_missing = InitMissing,
          .compute_buffers = ComputeBuffers,
          .save = SaveModel,
          .write_shards = WriteShards,
          .commit = CommitByRename};
}

}  // namespace shardproof
