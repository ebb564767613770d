// An optimizer as frameworks have it: groups of parameters with their settings, which hold the
// tensors themselves, and what AdamW keeps of each. One that is made before its model is sharded
// holds tensors that the model gives up: it has to let go of them first, or both stay in memory,
// and take what the model has instead afterwards.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/model/model.h"
#include "src/numeric/adamw.h"

namespace shardproof {

struct Training;

struct ParameterGroup {
  AdamWSettings settings;
  std::map<std::string, std::string> attributes;   ///< users' own: "name" -> "matrices"
  std::map<std::string, std::string> others = {};  ///< of other kinds, as pickles: "initial_lr"
  std::vector<at::Tensor> tensors;                 ///< empty while it is unbound
  std::vector<std::shared_ptr<Slot>> slots = {};   ///< whose they are, in the same order
};

/// What is kept of one parameter from its first step on, each cut and placed as the parameter is.
/// The names are torch.optim's.
struct ParameterState {
  std::shared_ptr<Slot> step;        ///< F32, no dims: how many steps the parameter has taken
  std::shared_ptr<Slot> exp_avg;     ///< first moment
  std::shared_ptr<Slot> exp_avg_sq;  ///< second moment
  std::shared_ptr<Slot> master;      ///< F32, which is stepped in the parameter's place; or null
  std::shared_ptr<Slot> average;     ///< F32, of the parameter over its steps; or null
  float average_rest = 0;  ///< what the average takes of the parameter in a step: 1 - decay
  bool on_host = false;    ///< where it lies, and where the parameter is stepped

  /// "exp_avg" and the like, with what is there.
  std::vector<std::pair<std::string, std::shared_ptr<Slot>>> Parts() const;
};

/// How state is kept.
struct StateOptions {
  at::ScalarType moments = at::kFloat;  ///< or BFloat16: rounded at every step
  bool masters = true;                  ///< of BF16 parameters; of other narrow ones always
  double on_host = 0;  ///< the fraction of it that is in the host's memory, of [0, 1]
  double average = 0;  ///< decay of the averages; 0: none are kept
};

/// A parameter that the host steps.
struct HostStep {
  Slot* parameter = nullptr;
  AdamWSettings settings;
  float gradient_scale = 1;
};

struct Optimizer {
  std::vector<ParameterGroup> groups;
  StateOptions options;
  std::string saved_as = "optimizer";  ///< key of a state dict that it is saved under
  /// By the parameter's canonical FQN: what is saved is found again by name, however groups are
  /// ordered.
  std::map<std::string, ParameterState> state;
  /// F32, cut and placed as the parameter is, of one whose micro-batches are being added up.
  std::map<std::string, std::shared_ptr<Slot>> gradients = {};
  std::set<std::string> unfrozen = {};  ///< parameters that were frozen when the job began
  uint64_t elements = 0;          ///< of the parameters that have state; whole, not the rank's own
  uint64_t elements_on_host = 0;  ///< of those whose state is on the host
  bool bound = true;

  /// The group that a parameter is in, or null.
  const ParameterGroup* GroupOf(const Slot& parameter) const;
};

/// Two groups of the trained parameters, in module order, as is usual: matrices decay, the rest
/// does not and learns half as fast. Holds what the slots hold now.
Optimizer MakeOptimizer(const Model& model, const Training& training);

/// Drops the tensors and keeps whose they were.
/// \error kInternal if a tensor is none of the model's.
Status UnbindOptimizer(Optimizer& optimizer, const Model& model);

/// Takes what the same slots hold now, group by group and in the same order.
Status RebindOptimizer(Optimizer& optimizer, const Model& model);

/// Whether AdamW steps parameters of this dtype: those of which F32 has every value.
bool IsStepped(at::ScalarType dtype);

/// Gives a parameter that is cut and has memory state of undefined content: on the host while that
/// has less than its fraction, so that it has at most one parameter more; alike on all ranks.
/// \error as Device::Allocate.
Result<ParameterState*> MakeState(const Slot& parameter, Optimizer& optimizer, Device& device);

/// Memory of a parameter's gradient, all 0. \error as Device::Allocate.
Result<std::shared_ptr<Slot>> MakeGradient(const Slot& parameter, Device& device);

/// Fills with zeros.
void FillZeros(Slot& slot);

/// The settings of a group and its users' attributes, by name, as Python shows them.
std::map<std::string, std::string> OptionsOf(const ParameterGroup& group);

}  // namespace shardproof
