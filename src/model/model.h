// A model as one rank holds it: a module tree whose leaves are handles. A handle (Slot) is the
// parameter's identity: its tensor goes from meta to a shard, and whatever is keyed by the handle
// survives, which at::Tensor cannot give (set_data from meta to CPU throws).
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/core/state_path.h"
#include "src/mesh/placement.h"
#include "src/model/spec.h"
#include "src/seam/device.h"

namespace shardproof {

/// Bytes [begin, end) of something.
struct ByteSpan {
  uint64_t begin = 0;
  uint64_t end = UINT64_MAX;  ///< or to where it ends
  friend auto operator<=>(const ByteSpan&, const ByteSpan&) = default;
};

/// Whether a tensor's value means anything yet.
enum class SlotContent { kNone, kUndefined, kDefined };

struct Slot {
  explicit Slot(TensorSpec tensor_spec);

  TensorSpec spec;                  ///< of the canonical name
  std::vector<std::string> names;   ///< canonical first; more than one if tied
  std::vector<StoredKey> saved_as;  ///< keys that a save writes; empty: under its own name
  at::Tensor value;                 ///< meta, the full tensor, or this rank's shard
  SlotContent content = SlotContent::kNone;
  std::vector<Placement> placements;  ///< one per mesh axis; empty until sharded
  Shard shard;                        ///< what `value` holds of the global tensor
  Device* device = nullptr;  ///< that copies to and from `value`, and outlives it; null: the host
  const int64_t identity;    ///< counts up in the order in which handles are made

  uint64_t ElementBytes() const { return value.element_size(); }
  /// Memory of undefined content for a part of the tensor that has `shape`, its dims in the order
  /// that they have in the model. \error as Device::Allocate.
  Result<at::Tensor> Allocate(at::IntArrayRef shape, Device& on) const;
  /// Shape, dtype and order of dims of such a part.
  at::Tensor OnMeta(at::IntArrayRef shape) const;
  /// Copies host or device memory to byte `begin` of `value` in row-major order, or from there,
  /// however `value` lies in memory.
  void CopyIn(uint64_t begin, const void* from, uint64_t bytes) const;
  void CopyOut(uint64_t begin, void* to, uint64_t bytes) const;
};

struct Module {
  std::string name;  ///< within its parent
  std::vector<std::pair<std::string, std::shared_ptr<Slot>>> slots;
  std::vector<std::unique_ptr<Module>> children;
};

struct Optimizer;

/// What a job was restored with beside model and optimizer: nobody here knows what it is, but the
/// next save has it too. The state of a learning-rate scheduler, a module's extra state.
struct KeptTensor {
  StatePath path;
  std::shared_ptr<Slot> slot;
};
struct Kept {
  std::vector<KeptTensor> tensors;
  std::vector<StateValue> values;
};

struct Model {
  Module root;
  double init_scale = 0.0;
  std::shared_ptr<Optimizer> optimizer = nullptr;  ///< what trains it, if anything does
  int64_t step = 0;                                ///< optimizer steps that it has taken
  std::optional<at::Generator> rng;                ///< this rank's own, of a job that trains
  /// Numbers that a training loop keeps beside the optimizer, by key (src/optim/loop.h): 0 dims,
  /// alike on all ranks.
  std::map<std::string, std::shared_ptr<Slot>> loop = {};
  Kept kept = {};

  /// Every distinct slot once, in module order.
  std::vector<std::shared_ptr<Slot>> Slots() const;
  /// Every name with its slot, in module order; a tied slot appears under each of its names.
  std::vector<std::pair<std::string, std::shared_ptr<Slot>>> Named() const;
  /// Whether any parameter or buffer is on meta.
  bool HasMeta() const;
};

/// Builds the tree with every tensor on meta, except those that the model makes on the real device
/// itself: `built_real` ones get their initial value at once, as a pure function of seed and name.
/// Derived buffers stay meta until they are computed.
Result<Model> BuildOnMeta(const ModelSpec& spec, uint64_t seed, Device& device);

}  // namespace shardproof
