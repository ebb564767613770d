#include "verify/generate/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "verify/case/names.h"
#include "verify/generate/draw.h"
#include "verify/generate/draw_faults.h"
#include "verify/generate/draw_model.h"

namespace shardproof {
namespace {

using draw::Between;
using draw::Chance;
using draw::OneOf;

/// A mesh of just `ranks`, of one to three axes in any order; an axis may have one rank.
std::vector<AxisCase> MeshOf(int64_t ranks, bool reference) {
  if (!reference) {
    // What a device mesh of a framework is made for: replicas of shards.
    for (const int64_t replicas : {2, 3}) {
      if (ranks % replicas == 0 && ranks > replicas && Chance(40)) {
        return {{"dp_replicate", replicas}, {"dp_shard", ranks / replicas}};
      }
    }
    return {{"dp_shard", ranks}};
  }
  std::vector<std::string> names = {"dp_shard", "dp_replicate", "tp", "ep", "cp"};
  const int64_t axes =
      ranks < 8 ? OneOf<int64_t>({1, 1, 2, 2, 3}) : OneOf<int64_t>({1, 2, 2, 3, 3});
  std::vector<AxisCase> mesh;
  for (int64_t axis = 0; axis < axes; ++axis) {
    std::vector<int64_t> sizes;
    for (int64_t size = 1; size <= ranks; ++size) {
      if (ranks % size == 0) sizes.push_back(size);
    }
    // Neither this axis nor the rest of them has one rank, mostly: an axis of one rank cuts
    // nothing.
    if (sizes.size() > 2 && Chance(80)) sizes = {sizes.begin() + 1, sizes.end() - 1};
    const int64_t size = axis + 1 == axes ? ranks : OneOf(sizes);
    ranks /= size;
    const bool usual = axis == 0 && Chance(50);
    const std::string name = usual ? names.front() : OneOf(names);
    std::erase(names, name);
    mesh.push_back({name, size});
  }
  return mesh;
}

/// How often it saves, what stays, and seldom that the newest save is damaged where it is read.
void MakeSaves(Case& made) {
  if (made.steps > 2 && Chance(60)) {
    made.training.save_every = Chance(70) ? 1 : Between(2, made.steps - 1);
  }
  if (Chance(40)) made.training.keep = Between(1, 3);
  const bool has_older = made.SavedSteps().size() > 1 && made.training.keep > 1;
  if (!has_older || made.device != "cpu" || !Chance(70)) return;
  made.faults.push_back({"file/rot", std::to_string(Between(0, 9999))});
}

Case DrawCase(const GenerateOptions& options) {
  const bool reference = options.subject == "reference";
  const auto world = [&] {
    if (options.world > 0) return options.world;
    return std::min(options.world_max,
                    OneOf<int64_t>({1, 2, 2, 3, 3, 4, 4, 4, 5, 6, 7, 8, 12, 16}));
  };
  Case made;
  made.subject = options.subject;
  made.model = draw::Model(options);
  const int64_t ranks = world();
  made.mesh = MeshOf(ranks, reference);
  if (Chance(70)) {
    // On as many ranks or fewer: a launcher that has so many can run it.
    made.resume_mesh = MeshOf(Between(1, ranks), reference);
  }
  made.seed = static_cast<uint64_t>(Between(0, (int64_t{1} << 53) - 1));
  if (!reference) return made;
  made.transport = options.transport;
  const NameTable& strategies = KnownStrategies();
  made.strategy = std::string(strategies[Between(0, static_cast<int64_t>(strategies.size()) - 1)]);
  if (Chance(15)) made.device = "isolated";
  if (Chance(30)) made.optimizer = "before-sharding";
  uint64_t bytes = 0;
  for (const TensorCase& tensor : made.model.tensors) {
    bytes += TensorBytes(tensor.dtype, tensor.shape).value_or(0);
  }
  if (Chance(12)) {  // takes as long as five that do not train
    made.steps = OneOf<int64_t>({2, 2, 3, 4});
    if (Chance(30)) made.training.clip_norm = OneOf<double>({0, 0.01, 1000});
    if (Chance(30)) made.training.moments = "BF16";
    made.training.masters = Chance(70);
    if (Chance(30)) made.training.unfreeze_after = Between(1, made.steps - 1);
    if (Chance(40)) made.training.offload = OneOf<double>({0.25, 0.5, 1});
    made.training.overlap = Chance(70);
    MakeSaves(made);
    made.training.async = Chance(30);
    if (Chance(40)) made.training.format = "safetensors";
    made.training.split_fused = Chance(30);
  }
  // What is restored with a training job besides its model: up to three tensors a parameter, and
  // every rank's generator.
  if (made.steps > 0) bytes = 4 * bytes + 5056 * static_cast<uint64_t>(ranks);
  if (Chance(60)) {
    const auto bucket =
        static_cast<uint64_t>(OneOf<int64_t>({1, 7, 60, 120, 256, 1000, 4096, 65536}));
    made.bucket_bytes = std::max(bucket, bytes / 64);  // a case has no thousands of collectives
  }
  if (Chance(30)) made.max_file_bytes = std::max<uint64_t>(bytes / 8, Between(16, 4096));
  made.leftovers = Chance(25);
  if (!options.faults.empty() && !options.large && Chance(10))
    draw::AddFaults(made, options.faults);
  return made;
}

}  // namespace

Case GenerateCase(const GenerateOptions& options, uint64_t seed, uint64_t index) {
  Case made = draw::CaseOf([&options] { return DrawCase(options); }, seed, index);
  made.why = fmt::format("case {} of seed {}", index, seed);
  return made;
}

}  // namespace shardproof
