#include "src/checkpoint/state_dict.h"

#include <c10/util/accumulate.h>

#include <map>

#include "src/model/rng.h"
#include "src/optim/optimizer.h"
#include "src/pickle/pickle_writer.h"

namespace shardproof {
namespace {

using pickle::PickleWriter;

constexpr const char* kModelKey = "model";
constexpr const char* kStateKey = "state";

template <typename Put>
std::string Pickled(Put put) {
  PickleWriter out;
  put(out);
  return out.Finish();
}

/// A group as torch.optim.AdamW's state dict has it, with its users' attributes: who loads asks for
/// every option that it has itself.
void AddGroup(const std::string& key, const ParameterGroup& group, int64_t index,
              StateDict& state) {
  const auto add = [&](const char* option, auto put) {
    state.values.push_back({{key, "param_groups", index, option}, Pickled(put)});
  };
  const AdamWSettings& settings = group.settings;
  add("params", [&](PickleWriter& out) {
    out.EmptyList();
    out.Mark();
    for (const auto& slot : group.slots) out.Text(slot->spec.name);
    out.Appends();
  });
  add("lr", [&](PickleWriter& out) { out.Float(settings.learning_rate); });
  add("betas", [&](PickleWriter& out) {
    out.Mark();
    out.Float(settings.beta1);
    out.Float(settings.beta2);
    out.Tuple();
  });
  add("eps", [&](PickleWriter& out) { out.Float(settings.epsilon); });
  add("weight_decay", [&](PickleWriter& out) { out.Float(settings.weight_decay); });
  for (const char* option : {"amsgrad", "maximize", "capturable", "differentiable"}) {
    add(option, [](PickleWriter& out) { out.Bool(false); });
  }
  add("decoupled_weight_decay", [](PickleWriter& out) { out.Bool(true); });
  for (const char* option : {"foreach", "fused"}) {
    add(option, [](PickleWriter& out) { out.None(); });
  }
  for (const auto& [name, value] : group.attributes) {
    add(name.c_str(), [&](PickleWriter& out) { out.Text(value); });
  }
  for (const auto& [name, bytes] : group.others) {
    state.values.push_back({{key, "param_groups", index, name}, bytes});
  }
}

void AddOptimizer(const Model& model, StateDict& state) {
  const Optimizer& optimizer = *model.optimizer;
  for (const auto& slot : model.Slots()) {
    const auto kept = optimizer.state.find(slot->spec.name);
    if (kept == optimizer.state.end()) continue;
    for (const auto& [key, part] : kept->second.Parts()) {
      state.tensors.push_back({{{optimizer.saved_as, kStateKey, slot->spec.name, key}}, part});
    }
  }
  int64_t index = 0;
  for (const ParameterGroup& group : optimizer.groups)
    AddGroup(optimizer.saved_as, group, index++, state);
}

/// A path with another name in one place.
StatePath Renamed(StatePath path, size_t at, const std::string& name) {
  path[at] = name;
  return path;
}

/// What stands for an entry of which the name at `at` of its path is a tensor that is kept as
/// `keys`.
void AddParts(const StateTensor& whole, size_t at, const std::vector<StoredKey>& keys,
              const std::vector<int64_t>& shape, StateDict& state) {
  const StatePath& path = whole.paths.front();
  if (whole.slot->spec.shape != shape) {
    StateTensor counter = whole;
    counter.paths.clear();
    for (const StoredKey& key : keys) counter.paths.push_back(Renamed(path, at, key.key));
    state.tensors.push_back(std::move(counter));
    return;
  }
  uint64_t start = 0;
  for (const StoredKey& key : keys) {
    StateTensor part = whole;
    part.paths = {Renamed(path, at, key.key)};
    part.part = StatePart{key.shape, start};
    start += static_cast<uint64_t>(c10::multiply_integers(key.shape));
    state.tensors.push_back(std::move(part));
  }
}

}  // namespace

ByteSpan StateTensor::image() const {
  const uint64_t begin = part ? part->start : 0;
  const auto elements = static_cast<uint64_t>(c10::multiply_integers(shape()));
  return {begin * slot->ElementBytes(), (begin + elements) * slot->ElementBytes()};
}

bool StateTensor::IsWrittenBy(int64_t rank, const Mesh& mesh) const {
  if (only_rank >= 0) return rank == only_rank;
  return IsFirstReplica(slot->placements, mesh.CoordinatesOf(rank));
}

StateDict StateOf(const Model& model, const World& world) {
  StateDict state;
  for (const auto& slot : model.Slots()) {
    if (!slot->spec.persistent) continue;
    StateTensor& tensor = state.tensors.emplace_back(StateTensor{{}, slot});
    for (const std::string& name : slot->names) tensor.paths.push_back({kModelKey, name});
  }
  if (!model.optimizer || !model.rng) return state;
  AddOptimizer(model, state);
  state.values.push_back({{"step"}, Pickled([&](PickleWriter& out) { out.Integer(model.step); })});
  const int64_t world_size = world.communicator->world_size();
  for (int64_t rank = 0; rank < world_size; ++rank) {
    const auto own = rank == world.rank() ? StateOfRng(*model.rng) : nullptr;
    state.tensors.push_back({{{RngKey(rank)}}, own ? own : RngSlot(), rank});
  }
  for (const auto& [key, slot] : model.loop) {
    const size_t dot = key.find('.');
    state.tensors.push_back({{{key.substr(0, dot), key.substr(dot + 1)}}, slot});
  }
  for (const KeptTensor& kept : model.kept.tensors)
    state.tensors.push_back({{kept.path}, kept.slot});
  state.values.insert(state.values.end(), model.kept.values.begin(), model.kept.values.end());
  return state;
}

StateDict SplitFused(StateDict state) {
  std::map<std::string, const Slot*> parameters;
  for (const StateTensor& tensor : state.tensors) {
    const Slot& slot = *tensor.slot;
    if (NameAt(tensor.paths[0], 0) == kModelKey) parameters[slot.spec.name] = &slot;
  }
  StateDict split;
  split.values = std::move(state.values);
  for (StateTensor& tensor : state.tensors) {
    const StatePath& path = tensor.paths[0];
    const bool is_model = NameAt(path, 0) == kModelKey;
    const size_t at = is_model ? 1 : 2;  // where the tensor's name is
    const auto named = is_model || NameAt(path, 1) == kStateKey ? parameters.find(NameAt(path, at))
                                                                : parameters.end();
    if (named == parameters.end() || named->second->saved_as.empty()) {
      split.tensors.push_back(std::move(tensor));
      continue;
    }
    AddParts(tensor, at, named->second->saved_as, named->second->spec.shape, split);
  }
  return split;
}

}  // namespace shardproof
