// An optimizer as frameworks have it: groups of parameters with their settings, which hold the tensors
// themselves. One that is made before its model is sharded holds tensors that the model gives up: it has
// to let go of them first, or both stay in memory, and take what the model has instead afterwards.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/model/model.h"

namespace shardproof {

struct ParameterGroup {
  std::map<std::string, std::string> options;  ///< "lr" -> "0.001": settings and users' attributes
  std::vector<at::Tensor> tensors;             ///< empty while it is unbound
  std::vector<std::shared_ptr<Slot>> slots = {};  ///< whose they are, while it is unbound
};

struct Optimizer {
  std::vector<ParameterGroup> groups;
  bool bound = true;
};

/// Two groups of the trained parameters, in module order, as is usual: matrices decay, the rest does
/// not. Holds what the slots hold now.
Optimizer MakeOptimizer(const Model& model);

/// Drops the tensors and keeps whose they were.
/// \error kInternal if a tensor is none of the model's.
Status UnbindOptimizer(Optimizer& optimizer, const Model& model);

/// Takes what the same slots hold now, group by group and in the same order.
Status RebindOptimizer(Optimizer& optimizer, const Model& model);

}  // namespace shardproof
