#include "src/optim/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "src/aten/dtype.h"
#include "src/format/safetensors.h"
#include "src/load/key_match.h"
#include "src/model/rng.h"
#include "src/optim/loop.h"
#include "src/pickle/pickle.h"
#include "src/text/quote.h"

namespace shardproof {
namespace {

using pickle::Describe;
using pickle::Pickle;
using pickle::PickleValue;
using Kind = PickleValue::Kind;

/// The values of a checkpoint, by key.
class Values {
 public:
  explicit Values(const Source& source) : source_(source) {}

  bool Has(const std::string& key) const { return source_.values.contains(key); }

  Result<Pickle> Read(const std::string& key) const {
    const auto found = source_.values.find(key);
    if (found == source_.values.end()) return BadInput("the checkpoint has no value '" + key + "'");
    return pickle::ReadPickle(found->second, "value '" + key + "'");
  }

  /// \pre Has(key).
  const std::string& Bytes(const std::string& key) const { return source_.values.at(key); }

  Result<double> Number(const std::string& key) const {
    SP_ASSIGN(const Pickle read, Read(key));
    return Number(key, read.root());
  }
  static Result<double> Number(const std::string& key, const PickleValue& value) {
    if (value.Is(Kind::kFloat)) return value.number;
    if (value.Is(Kind::kInteger) && !value.is_big) return static_cast<double>(value.integer);
    return BadInput(fmt::format("value '{}': expected a number, found {}", key, Describe(value)));
  }

  Result<int64_t> Integer(const std::string& key) const {
    SP_ASSIGN(const Pickle read, Read(key));
    const PickleValue& value = read.root();
    if (value.Is(Kind::kInteger) && !value.is_big && value.integer >= 0) return value.integer;
    return BadInput(fmt::format("value '{}': expected an integer of at least 0, found {}", key,
                                Describe(value)));
  }

  /// Keys below `prefix` without it: "lr".
  std::vector<std::string> Below(const std::string& prefix) const {
    std::vector<std::string> names;
    for (auto entry = source_.values.lower_bound(prefix);
         entry != source_.values.end() && entry->first.starts_with(prefix); ++entry) {
      names.push_back(entry->first.substr(prefix.size()));
    }
    return names;
  }

 private:
  const Source& source_;
};

/// Options of torch.optim.AdamW, of which some have to be as they are here.
bool IsTorchOption(const std::string& name) {
  static const std::set<std::string> names = {"params",   "lr",           "betas",
                                              "eps",      "weight_decay", "amsgrad",
                                              "maximize", "capturable",   "differentiable",
                                              "foreach",  "fused",        "decoupled_weight_decay"};
  return names.contains(name);
}

/// That a switch of a group, if it has it, is as this AdamW works.
Status CheckSwitch(const Values& values, const std::string& key, bool wanted) {
  if (!values.Has(key)) return Ok();
  SP_ASSIGN(const Pickle read, values.Read(key));
  const PickleValue& value = read.root();
  if (value.Is(Kind::kBool) && (value.integer != 0) == wanted) return Ok();
  return Unsupported(
      fmt::format("value '{}': expected {}, found {}: the optimizer is another than this AdamW",
                  key, wanted ? "True" : "False",
                  value.Is(Kind::kBool) ? (wanted ? "False" : "True") : Describe(value)));
}

Result<ParameterGroup> ReadGroup(const Values& values, const std::string& prefix,
                                 const std::map<std::string, std::shared_ptr<Slot>>& slots) {
  ParameterGroup group;
  SP_TRY(CheckSwitch(values, prefix + "amsgrad", false));
  SP_TRY(CheckSwitch(values, prefix + "maximize", false));
  SP_TRY(CheckSwitch(values, prefix + "decoupled_weight_decay", true));
  SP_ASSIGN(group.settings.learning_rate, values.Number(prefix + "lr"));
  SP_ASSIGN(group.settings.epsilon, values.Number(prefix + "eps"));
  SP_ASSIGN(group.settings.weight_decay, values.Number(prefix + "weight_decay"));
  SP_ASSIGN(const Pickle betas, values.Read(prefix + "betas"));
  if (!betas.root().Is(Kind::kTuple) || betas.root().items.size() != 2) {
    return BadInput(fmt::format("value '{}betas': expected two numbers, found {}", prefix,
                                Describe(betas.root())));
  }
  SP_ASSIGN(group.settings.beta1, Values::Number(prefix + "betas", *betas.root().items[0]));
  SP_ASSIGN(group.settings.beta2, Values::Number(prefix + "betas", *betas.root().items[1]));
  SP_ASSIGN(const Pickle params, values.Read(prefix + "params"));
  for (const PickleValue* name : params.root().items) {
    const auto slot = slots.find(std::string(name->text));
    if (!name->Is(Kind::kText) || slot == slots.end()) {
      return BadInput(
          fmt::format("value '{}params': expected names of the model's parameters, found {}",
                      prefix, name->Is(Kind::kText) ? text::Quote(name->text) : Describe(*name)));
    }
    group.slots.push_back(slot->second);
    group.tensors.push_back(slot->second->value);
  }
  for (const std::string& name : values.Below(prefix)) {
    if (IsTorchOption(name) || name.find('.') != std::string::npos) continue;
    SP_ASSIGN(const Pickle value, values.Read(prefix + name));
    if (value.root().Is(Kind::kText))
      group.attributes[name] = std::string(value.root().text);
    else
      group.others[name] = values.Bytes(prefix + name);
  }
  return group;
}

/// What comes before ".state.<FQN>.exp_avg" in the keys of a source that has an optimizer's state;
/// else nothing.
std::optional<std::string> OptimizerKey(const Source& source) {
  constexpr std::string_view kMoment = ".exp_avg";
  for (const auto& [key, tensor] : source.state) {
    const size_t state = key.find(".state.");
    if (state != std::string::npos && key.ends_with(kMoment)) return key.substr(0, state);
  }
  return std::nullopt;
}

/// The groups as they were saved. What they lack of the model stays in the groups that it is in.
Status ReadGroups(const Values& values, const Model& model) {
  const std::string prefix = model.optimizer->saved_as + ".param_groups.";
  std::map<std::string, std::shared_ptr<Slot>> slots;
  for (const auto& slot : model.Slots()) {
    for (const std::string& name : slot->names) slots[name] = slot;
  }
  if (!values.Has(prefix + "0.params")) {
    return Unsupported("the checkpoint has no value " + text::Quote(prefix + "0.params") +
                       ": groups are read as a list, not flattened by parameter");
  }
  std::vector<ParameterGroup> groups;
  std::set<const Slot*> taken;
  for (size_t i = 0; values.Has(fmt::format("{}{}.params", prefix, i)); ++i) {
    SP_ASSIGN(ParameterGroup group, ReadGroup(values, fmt::format("{}{}.", prefix, i), slots));
    for (const auto& slot : group.slots) {
      if (taken.insert(slot.get()).second) continue;
      return BadInput(fmt::format("value '{}{}.params': parameter '{}' is in another group too",
                                  prefix, i, slot->spec.name));
    }
    groups.push_back(std::move(group));
  }
  for (size_t i = 0; i < model.optimizer->groups.size(); ++i) {
    const ParameterGroup& made = model.optimizer->groups[i];
    if (i >= groups.size())
      groups.push_back({.settings = made.settings, .attributes = made.attributes});
    for (const auto& slot : made.slots) {
      if (taken.contains(slot.get())) continue;
      groups[i].slots.push_back(slot);
      groups[i].tensors.push_back(slot->value);
    }
  }
  model.optimizer->groups = std::move(groups);
  return Ok();
}

/// Has a slot filled from keys of the source, whose tensors make it one after the other.
Status Want(const std::shared_ptr<Slot>& slot, const std::vector<StoredKey>& keys,
            const Source& state, KeyMatch& match) {
  SlotKeys load{slot, {}};
  uint64_t start = 0;
  for (const auto& [key, shape] : keys) {
    const auto found = state.tensors.find(key);
    if (found == state.tensors.end()) return BadInput("the checkpoint has no tensor '" + key + "'");
    const SourceTensor& tensor = found->second;
    if (tensor.dtype != slot->spec.dtype || tensor.shape != shape) {
      return BadInput(fmt::format("tensor '{}': the checkpoint has {} [{}], this job {} [{}]", key,
                                  DtypeName(tensor.dtype), fmt::join(tensor.shape, ", "),
                                  DtypeName(slot->spec.dtype), fmt::join(shape, ", ")));
    }
    load.parts.push_back({key, start, tensor.length});
    start += tensor.length;
  }
  match.loads.push_back(std::move(load));
  return Ok();
}

/// A step counter, and the key that it is filled from: of a tensor that is kept in parts, of each.
struct Counter {
  std::string key;
  std::shared_ptr<Slot> slot;
  std::string parameter;
};

/// What is restored of the optimizer.
struct Wanted {
  KeyMatch match;
  std::vector<Counter> counters;
};

/// Where the state of a parameter is: under its own name, or those that its parts are kept under.
/// Empty if it took no step yet.
std::vector<StoredKey> KeysOfState(const Slot& parameter, const std::string& prefix,
                                   const Source& state) {
  const auto has = [&](const std::string& name) {
    const auto any = state.tensors.lower_bound(prefix + name + ".");
    return any != state.tensors.end() && any->first.starts_with(prefix + name + ".");
  };
  for (const std::string& name : parameter.names) {
    if (has(name)) return {{name, parameter.spec.shape}};
  }
  const std::vector<StoredKey>& parts = parameter.saved_as;
  const bool any =
      std::any_of(parts.begin(), parts.end(), [&](const StoredKey& part) { return has(part.key); });
  return any ? parts : std::vector<StoredKey>();
}

/// Has the counters of all parts filled, the first one in its place.
Status WantCounters(const ParameterState& kept, const std::string& parameter,
                    const std::vector<StoredKey>& keys, const std::string& prefix,
                    const Source& state, Device& device, Wanted& wanted) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string key = prefix + keys[i].key + ".step";
    auto slot = kept.step;
    if (i > 0) {
      TensorSpec spec = kept.step->spec;
      spec.name = key;
      slot = std::make_shared<Slot>(std::move(spec));
      slot->placements = kept.step->placements;
      slot->device = kept.step->device;
      SP_ASSIGN(slot->value, slot->Allocate({}, device));
    }
    SP_TRY(Want(slot, {{key, {}}}, state, wanted.match));
    wanted.counters.push_back({key, slot, parameter});
  }
  return Ok();
}

Status WantState(Optimizer& optimizer, const Source& state, Device& device, Wanted& wanted) {
  const std::string prefix = optimizer.saved_as + ".state.";
  for (const ParameterGroup& group : optimizer.groups) {
    for (const auto& slot : group.slots) {
      const std::vector<StoredKey> keys = KeysOfState(*slot, prefix, state);
      if (keys.empty()) continue;
      SP_ASSIGN(const ParameterState* kept, MakeState(*slot, optimizer, device));
      for (const auto& [name, part] : kept->Parts()) {
        if (part == kept->step) continue;
        std::vector<StoredKey> of_part = keys;
        for (StoredKey& key : of_part) key.key = prefix + key.key + "." + name;
        SP_TRY(Want(part, of_part, state, wanted.match));
      }
      SP_TRY(WantCounters(*kept, slot->spec.name, keys, prefix, state, device, wanted));
    }
  }
  return Ok();
}

std::set<std::string> KeysTaken(const KeyMatch& match) {
  std::set<std::string> taken;
  for (const SlotKeys& load : match.loads) {
    for (const KeyPart& part : load.parts) taken.insert(part.key);
  }
  return taken;
}

/// A job that went without some of it begins with that.
Status WantLoop(const Model& model, const Source& state, KeyMatch& match) {
  for (const auto& [key, slot] : model.loop) {
    if (state.tensors.contains(key)) SP_TRY(Want(slot, {{key, {}}}, state, match));
  }
  return Ok();
}

/// That nothing below ".state." is left: what is dropped would be gone from the next save.
Status CheckAllTaken(const Source& state, const KeyMatch& match) {
  const std::set<std::string> taken = KeysTaken(match);
  for (const auto& [key, tensor] : state.tensors) {
    if (key.find(".state.") == key.npos || taken.contains(key)) continue;
    return Unsupported(
        "tensor " + text::Quote(key) +
        ": expected AdamW's state of a parameter that the model has, found what is none of it");
  }
  return Ok();
}

/// This rank's generator, if there was such a rank; else a stream of its own goes on.
Result<std::shared_ptr<Slot>> WantRng(const Source& state, World& world, KeyMatch& match) {
  std::shared_ptr<Slot> own;
  // All ranks plan alike, so all want every generator: they are small.
  for (int64_t rank = 0; rank < world.communicator->world_size(); ++rank) {
    const std::string key = RngKey(rank);
    if (!state.tensors.contains(key)) continue;
    const auto slot = RngSlot();
    slot->spec.name = key;
    slot->device = world.device->IsHost() ? nullptr : world.device.get();
    SP_ASSIGN(slot->value, slot->Allocate(slot->spec.shape, *world.device));
    SP_TRY(Want(slot, {{key, slot->spec.shape}}, state, match));
    if (rank == world.rank()) own = slot;
  }
  return own;
}

StatePath PathOf(const std::string& key, const Source& source) {
  const auto known = source.paths_of_state.find(key);
  return known == source.paths_of_state.end() ? StatePath{key} : known->second;
}

/// What is neither the optimizer's nor of the random state is kept as it is. Tensors are cut as
/// parameters are, since nobody knows how large they are.
Status Keep(Model& model, const Source& source, const Source& state, const Stages& stages,
            const Job& job, World& world, KeyMatch& match) {
  const std::set<std::string> taken = KeysTaken(match);
  const std::vector<int64_t> coordinates = job.mesh.CoordinatesOf(world.rank());
  for (const auto& [key, tensor] : state.tensors) {
    if (taken.contains(key) || IsRngKey(key)) continue;
    auto slot = std::make_shared<Slot>(TensorSpec{
        .name = key, .dtype = tensor.dtype, .shape = tensor.shape, .requires_grad = false});
    slot->placements = stages.place(*slot, job.mesh);
    slot->shard = stages.chunk(*slot, slot->placements, job.mesh, coordinates);
    slot->device = world.device->IsHost() ? nullptr : world.device.get();
    SP_ASSIGN(slot->value, slot->Allocate(slot->shard.local_shape, *world.device));
    slot->content = SlotContent::kUndefined;
    SP_TRY(Want(slot, {{key, tensor.shape}}, state, match));
    model.kept.tensors.push_back({PathOf(key, source), slot});
  }
  const std::string groups = model.optimizer->saved_as + ".param_groups.";
  for (const auto& [key, bytes] : source.values) {
    if (key == "step" || key.starts_with(groups)) continue;
    model.kept.values.push_back({PathOf(key, source), bytes});
  }
  return Ok();
}

/// The most that any parameter has taken. \error kBadInput if that is no number of steps, or parts
/// of one parameter have taken different ones.
Result<int64_t> StepsTaken(const std::vector<Counter>& counters) {
  float most = 0;
  std::map<std::string, float> of_parameter;
  for (const Counter& counter : counters) {
    float taken = 0;
    counter.slot->CopyOut(0, &taken, sizeof taken);
    if (!(taken >= 0 && taken <= 0x1p24f)) {
      return BadInput(
          fmt::format("tensor '{}': expected a number of steps, found {}", counter.key, taken));
    }
    const float first = of_parameter.emplace(counter.parameter, taken).first->second;
    if (first != taken) {
      return BadInput(fmt::format("tensor '{}': expected {}, as other parts of '{}' have, found {}",
                                  counter.key, first, counter.parameter, taken));
    }
    most = std::max(most, taken);
  }
  return static_cast<int64_t>(most);
}

Status Resume(Model& model, const Source& source, const Stages& stages, const Job& job,
              World& world) {
  const Values values(source);
  Source state;
  state.tensors = source.state;
  state.files = source.files;
  state.paths = source.paths;
  state.sealed = source.sealed;
  Wanted wanted;
  KeyMatch& match = wanted.match;
  std::shared_ptr<Slot> rng;
  const auto prepare = [&]() -> Status {
    if (values.Has("step")) {
      SP_ASSIGN(model.step, values.Integer("step"));
    }
    if (job.training.unfreeze_after > 0 && model.step > job.training.unfreeze_after) {
      SP_TRY(stages.unfreeze(model));
      const int64_t trained = model.step - job.training.unfreeze_after;
      const int64_t most = job.training.unfrozen_steps;
      if (most > 0 && trained > most) SP_TRY(stages.freeze_again(model));
    }
    SP_TRY(ReadGroups(values, model));
    SP_TRY(WantState(*model.optimizer, state, *world.device, wanted));
    SP_TRY(WantLoop(model, state, match));
    SP_TRY(CheckAllTaken(state, match));
    SP_ASSIGN(rng, WantRng(state, world, match));
    return Keep(model, source, state, stages, job, world, match);
  };
  SP_TRY(Agree(*world.communicator, prepare(), "preparing to restore the optimizer"));
  SP_TRY(stages.fill_state(model, match, state, stages, job, world));
  SP_TRY(stages.verify_loaded(match, state, stages, job, world));
  const Result<int64_t> taken = StepsTaken(wanted.counters);
  if (taken.ok() && !values.Has("step")) model.step = taken.value();
  Status restored = taken.ok() ? Ok() : Status(taken.error());
  if (restored.ok() && rng != nullptr) {
    std::vector<std::byte> bytes(rng->value.nbytes());
    rng->CopyOut(0, bytes.data(), bytes.size());
    restored = RestoreRng(bytes, *model.rng);
  }
  return Agree(*world.communicator, restored, "restoring the training state");
}

}  // namespace

Status StartTraining(Model& model, const Source& source, const Stages& stages, const Job& job,
                     World& world) {
  if (!model.optimizer)
    model.optimizer = std::make_shared<Optimizer>(stages.make_optimizer(model, job.training));
  const Training& training = job.training;
  model.optimizer->options = {training.moments, training.masters, training.offload,
                              training.average};
  SP_TRY(Agree(*world.communicator, BeginLoop(model, job, world), "beginning to train"));
  model.rng = MakeRng(job.seed, world.rank());
  const std::optional<std::string> key = OptimizerKey(source);
  const auto is_state = [](const auto& entry) {
    return entry.first.find(".state.") != std::string::npos;
  };
  const bool has_state = std::any_of(source.state.begin(), source.state.end(), is_state);
  if (!key && !has_state && !source.values.contains("step")) return Ok();
  if (key) model.optimizer->saved_as = *key;
  return Resume(model, source, stages, job, world);
}

}  // namespace shardproof
