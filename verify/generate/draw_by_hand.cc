#include "verify/generate/draw_by_hand.h"

#include <algorithm>
#include <string>
#include <vector>

#include "verify/case/names.h"
#include "verify/generate/draw.h"
#include "verify/generate/draw_faults.h"
#include "verify/generate/draw_model.h"

namespace shardproof::draw {
namespace {

bool IsReference(const GenerateOptions& options) { return options.subject == kReference; }

void DrawSubject(Case& made, const GenerateOptions& options) { made.subject = options.subject; }

void DrawModel(Case& made, const GenerateOptions& options) { made.model = Model(options); }

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

int64_t WorldOf(const GenerateOptions& options) {
  if (options.world > 0) return options.world;
  return std::min(options.world_max, OneOf<int64_t>({1, 2, 2, 3, 3, 4, 4, 4, 5, 6, 7, 8, 12, 16}));
}

void DrawMesh(Case& made, const GenerateOptions& options) {
  made.mesh = MeshOf(WorldOf(options), IsReference(options));
}

/// On as many ranks or fewer, which a launcher that ran it has; seldom, where threads stand in for
/// ranks, on more.
void DrawResumeMesh(Case& made, const GenerateOptions& options) {
  if (!Chance(70)) return;
  int64_t most = made.WorldSize();
  const bool may_grow = options.transport == "sim" && options.world == 0;
  if (may_grow && Chance(15)) most = std::min(options.world_max, 2 * most);
  made.resume_mesh = MeshOf(Between(1, most), IsReference(options));
}

void DrawSeed(Case& made, const GenerateOptions&) {
  made.seed = static_cast<uint64_t>(Between(0, (int64_t{1} << 53) - 1));
}

void DrawTransport(Case& made, const GenerateOptions& options) {
  made.transport = options.transport;
}

void DrawUnfreezeAfter(Case& made, const GenerateOptions&) {
  if (Chance(30)) made.training.unfreeze_after = Between(1, made.steps - 1);
}

void DrawUnfrozenSteps(Case& made, const GenerateOptions&) {
  const int64_t most = made.steps - made.training.unfreeze_after - 1;
  if (made.training.unfreeze_after > 0 && most > 0 && Chance(60)) {
    made.training.unfrozen_steps = Between(1, most);
  }
}

void DrawSaveEvery(Case& made, const GenerateOptions&) {
  if (made.steps > 2 && Chance(60)) {
    made.training.save_every = Chance(70) ? 1 : Between(2, made.steps - 1);
  }
}

/// What stays, and often that of several saves some are damaged, but not all.
void DrawKeep(Case& made, const GenerateOptions&) {
  if (Chance(40)) made.training.keep = Between(1, 3);
  const int64_t kept = std::min(static_cast<int64_t>(made.SavedSteps().size()), made.training.keep);
  if (kept > 1 && made.device == "cpu" && Chance(70)) AddDamageOfSaves(made, kept);
}

/// Whole parameters travel from every rank to all, in each step. Replicas are what it is for.
void DrawReduce(Case& made, const GenerateOptions& options) {
  const bool has_replicas = std::any_of(
      made.mesh.begin(), made.mesh.end(),
      [](const AxisCase& axis) { return axis.name == "dp_replicate" && axis.size > 1; });
  if (options.large || !Chance(has_replicas ? 90 : 50)) return;
  made.training.reduce = OneOf<std::string>({"F32", "BF16"});
}

/// What is restored: with a training job besides its model up to four tensors a parameter, and
/// every rank's generator.
uint64_t BytesOf(const Case& made) {
  uint64_t bytes = 0;
  for (const TensorCase& tensor : made.model.tensors) {
    bytes += TensorBytes(tensor.dtype, tensor.shape).value_or(0);
  }
  if (made.steps == 0) return bytes;
  return 5 * bytes + 5056 * static_cast<uint64_t>(made.WorldSize());
}

void DrawBucketBytes(Case& made, const GenerateOptions&) {
  if (!Chance(60)) return;
  const auto bucket =
      static_cast<uint64_t>(OneOf<int64_t>({1, 7, 60, 120, 256, 1000, 4096, 65536}));
  made.bucket_bytes =
      std::max(bucket, BytesOf(made) / 64);  // a case has no thousands of collectives
}

void DrawMaxFileBytes(Case& made, const GenerateOptions&) {
  if (Chance(30)) made.max_file_bytes = std::max<uint64_t>(BytesOf(made) / 8, Between(16, 4096));
}

void DrawFaults(Case& made, const GenerateOptions& options) {
  if (options.large) return;
  const bool has_faults = !options.faults.empty();
  if (has_faults && Chance(10)) return AddFaults(made, options.faults);
  // Last of all draws, so that a seed keeps the cases that it had before.
  if (!made.faults.empty()) return;
  if (has_faults && Chance(4)) return AddDamage(made);
  if (!IsReference(options)) return;
  if (Chance(8)) {
    made.model.format = "dcp";
    if (has_faults && Chance(50)) AddDamage(made);
  } else if (has_faults && Chance(5)) {
    AddOccupied(made);
  }
}

}  // namespace

const std::map<std::string, DrawByHand>& DrawnByHand() {
  static const std::map<std::string, DrawByHand> functions = {
      {"subject", DrawSubject},
      {"model", DrawModel},
      {"mesh", DrawMesh},
      {"resume_mesh", DrawResumeMesh},
      {"seed", DrawSeed},
      {"transport", DrawTransport},
      {"training/unfreeze_after", DrawUnfreezeAfter},
      {"training/unfrozen_steps", DrawUnfrozenSteps},
      {"training/save_every", DrawSaveEvery},
      {"training/keep", DrawKeep},
      {"training/reduce", DrawReduce},
      {"bucket_bytes", DrawBucketBytes},
      {"max_file_bytes", DrawMaxFileBytes},
      {"faults", DrawFaults}};
  return functions;
}

}  // namespace shardproof::draw
