// What of a job is saved, under which keys.
#include <fmt/format.h>

#include "src/checkpoint/dcp.h"
#include "src/pickle/pickle_writer.h"
#include "src/pipeline/rng.h"

namespace shardproof {
namespace {

using pickle::PickleWriter;

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
}

void AddOptimizer(const Model& model, StateDict& state) {
  const Optimizer& optimizer = *model.optimizer;
  for (const auto& slot : model.Slots()) {
    const auto kept = optimizer.state.find(slot->spec.name);
    if (kept == optimizer.state.end()) continue;
    for (const auto& [key, part] : kept->second.Parts()) {
      state.tensors.push_back({{{optimizer.saved_as, "state", slot->spec.name, key}}, part});
    }
  }
  int64_t index = 0;
  for (const ParameterGroup& group : optimizer.groups)
    AddGroup(optimizer.saved_as, group, index++, state);
}

}  // namespace

StateDict StateOf(const Model& model, const World& world) {
  StateDict state;
  for (const auto& slot : model.Slots()) {
    if (!slot->spec.persistent) continue;
    StateTensor& tensor = state.tensors.emplace_back(StateTensor{{}, slot});
    for (const std::string& name : slot->names) tensor.paths.push_back({"model", name});
  }
  if (!model.optimizer || !model.rng) return state;
  AddOptimizer(model, state);
  state.values.push_back({{"step"}, Pickled([&](PickleWriter& out) { out.Integer(model.step); })});
  const int64_t world_size = world.communicator->world_size();
  for (int64_t rank = 0; rank < world_size; ++rank) {
    const auto own = rank == world.rank() ? StateOfRng(*model.rng) : nullptr;
    state.tensors.push_back({{{fmt::format("rng_{}", rank)}}, own ? own : RngSlot(), rank});
  }
  return state;
}

}  // namespace shardproof
