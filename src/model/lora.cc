#include "src/model/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "src/core/strict_json.h"

namespace shardproof {
namespace {

constexpr const char* kHead = "lm_head";

bool EndsAsModule(const std::string& module, const std::string& end) {
  if (module == end) return true;
  return module.size() > end.size() && module.ends_with(end) &&
         module[module.size() - end.size() - 1] == '.';
}

std::string ModuleOf(const std::string& tensor) {
  const size_t dot = tensor.find_last_of('.');
  return dot == std::string::npos ? "" : tensor.substr(0, dot);
}

/// The modules of a model, and which of them are linear layers.
struct Modules {
  std::set<std::string> all;
  std::map<std::string, const TensorSpec*> linear;  ///< by name, its weight

  explicit Modules(const ModelSpec& model) {
    for (const TensorSpec& tensor : model.tensors) {
      if (tensor.linear) linear[ModuleOf(tensor.name)] = &tensor;
      for (std::string m = ModuleOf(tensor.name); !m.empty(); m = ModuleOf(m)) all.insert(m);
    }
  }
};

bool IsWithin(const std::string& module, const std::string& outer) {
  return module == outer || module.starts_with(outer + ".");
}

/// Whether one of the names stands in the module's for it or for one that it is in: then it is no
/// target. PEFT takes the names for patterns here, so that a dot is any character.
bool IsInSaved(const std::string& module, const std::vector<std::string>& saved) {
  const std::string dotted = "." + module + ".";
  const auto same = [](char found, char wanted) { return wanted == '.' || found == wanted; };
  for (const std::string& name : saved) {
    for (size_t at = 0; at != std::string::npos; at = dotted.find('.', at + 1)) {
      if (at + name.size() + 1 >= dotted.size()) break;
      const auto begin = dotted.begin() + static_cast<int64_t>(at) + 1;
      const auto end = begin + static_cast<int64_t>(name.size());
      if (*end == '.' && std::equal(begin, end, name.begin(), same)) return true;
    }
  }
  return false;
}

Result<bool> IsTarget(const std::string& module, bool linear, const LoraSpec& lora) {
  if (IsInSaved(module, lora.saved)) return false;
  SP_ASSIGN(const bool excluded, lora.excluded.Has(module));
  if (excluded) return false;
  if (lora.targets.IsAllLinear()) return linear && module != kHead;
  return lora.targets.Has(module);
}

Result<std::set<std::string>> Chosen(const Modules& modules, const LoraSpec& lora,
                                     const std::string& origin) {
  std::set<std::string> chosen;
  for (const std::string& module : modules.all) {
    const bool linear = modules.linear.contains(module);
    const auto is_target = IsTarget(module, linear, lora);
    if (!is_target.ok()) return is_target.error().While(origin);
    if (!is_target.value()) continue;
    if (!linear) {
      return BadInput(fmt::format("{}: targets have the module '{}': expected linear layers only",
                                  origin, module));
    }
    chosen.insert(module);
  }
  if (!chosen.empty() || (lora.targets.empty() && !lora.experts.empty())) return chosen;
  std::vector<std::string> shown;
  for (const std::string& one : lora.targets.names) shown.push_back(ShownText(one));
  if (shown.empty()) shown = {"by their pattern"};
  return BadInput(
      fmt::format("{}: targets {} are no module of the model", origin, fmt::join(shown, ", ")));
}

Result<int64_t> RankOf(const std::string& module, const LoraSpec& lora, const std::string& origin) {
  for (const auto& [pattern, own] : lora.ranks) {
    const auto fits = pattern.Fits(module);
    if (!fits.ok()) return fits.error().While(origin);
    if (fits.value()) return own;
  }
  return lora.rank;
}

/// Packed experts have parameters for what other models have linear layers for, and what PEFT makes
/// of targets that name these differs by architecture.
Status CheckExperts(const ModelSpec& model, const LoraSpec& lora, const std::string& origin) {
  for (const TensorSpec& tensor : model.tensors) {
    for (const auto& way : tensor.stored) {
      if (way.size() == 1) continue;
      for (const StoredKey& part : way) {
        const std::string module = ModuleOf(part.key);
        SP_ASSIGN(const bool named, IsTarget(module, true, lora));
        if (!named) continue;
        return BadInput(
            fmt::format("{}: targets have '{}', a projection of an expert: expected linear "
                        "layers",
                        origin, module));
      }
    }
  }
  return Ok();
}

/// Whether it holds codes, which nothing trains.
bool IsQuantised(const TensorSpec& tensor) {
  return !at::isFloatingType(tensor.dtype) || c10::elementSize(tensor.dtype) == 1;
}

Status CheckTarget(const ModelSpec& model, const TensorSpec& weight, const std::string& origin) {
  if (IsQuantised(weight)) {
    return BadInput(
        fmt::format("{}: target '{}' is quantised: adapters are known beside F64, F32, "
                    "BF16 and F16",
                    origin, ModuleOf(weight.name)));
  }
  for (const auto& tie : model.ties) {
    if (std::find(tie.begin(), tie.end(), weight.name) == tie.end()) continue;
    return BadInput(
        fmt::format("{}: target '{}' is tied to '{}': expected a layer with a weight of "
                    "its own",
                    origin, ModuleOf(weight.name), tie[0] == weight.name ? tie[1] : tie[0]));
  }
  return Ok();
}

/// \param part  "lora_A" or so. \param key_end  what its key has after that.
TensorSpec Part(const std::string& module, const char* part, std::vector<int64_t> shape,
                InitialValue init, const char* key_end = ".weight") {
  return {.name = fmt::format("{}.{}.default.weight", module, part),
          .shape = shape,
          .init = init,
          .stored = {{{fmt::format("{}{}.{}{}", kAdapterKeyPrefix, module, part, key_end), shape}}},
          .adapter = true};
}

bool IsPacked(const TensorSpec& tensor) {
  return std::any_of(tensor.stored.begin(), tensor.stored.end(),
                     [](const auto& way) { return way.size() > 1; });
}

/// Packed experts that are targets, by the module that has them and in its order.
Result<std::map<std::string, std::vector<TensorSpec>>> ChosenExperts(const ModelSpec& model,
                                                                     const LoraSpec& lora,
                                                                     const std::string& origin) {
  std::map<std::string, std::vector<TensorSpec>> chosen;
  for (const TensorSpec& tensor : model.tensors) {
    const auto end = std::find_if(lora.experts.begin(), lora.experts.end(),
                                  [&](const auto& one) { return EndsAsModule(tensor.name, one); });
    if (end == lora.experts.end()) continue;
    if (!IsPacked(tensor)) {
      return BadInput(fmt::format("{}: field 'target_parameters' has '{}': expected packed experts",
                                  origin, tensor.name));
    }
    if (IsQuantised(tensor)) {
      return BadInput(fmt::format("{}: field 'target_parameters' has '{}', which is quantised",
                                  origin, tensor.name));
    }
    chosen[ModuleOf(tensor.name)].push_back(tensor);
  }
  if (!chosen.empty() || lora.experts.empty()) return chosen;
  return BadInput(
      fmt::format("{}: field 'target_parameters' has {}: expected packed experts of the model",
                  origin, ShownText(lora.experts[0])));
}

/// The module by the name that it has within so many wrappers.
std::string Wrapped(std::string module, size_t times) {
  for (; times > 0; --times) module += ".base_layer";
  return module;
}

/// PEFT wraps the module for the first of its parameters, then what that has become for the next.
Status AdaptExperts(const std::string& module, const std::vector<TensorSpec>& targets,
                    const LoraSpec& lora, const std::string& origin, ModelSpec& model,
                    std::vector<TensorSpec>& added) {
  for (TensorSpec& tensor : model.tensors) {
    if (ModuleOf(tensor.name) != module) continue;
    tensor.stored.push_back({{tensor.name, tensor.shape}});
    tensor.name = Wrapped(module, targets.size()) + tensor.name.substr(module.size());
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    const std::string at = Wrapped(module, targets.size() - 1 - i);
    const std::vector<int64_t>& shape = targets[i].shape;
    SP_ASSIGN(const int64_t rank, RankOf(targets[i].name, lora, origin));
    added.push_back(Part(at, "lora_A", {shape[0] * rank, shape[2]}, InitialValue::kUniform));
    added.push_back(Part(at, "lora_B", {shape[1], shape[0] * rank}, InitialValue::kZeros));
  }
  return Ok();
}

/// The modules that are trained whole: those whose names end so, wherever the end begins.
std::vector<std::string> SavedModules(const Modules& modules, const LoraSpec& lora) {
  std::vector<std::string> saved;
  for (const std::string& module : modules.all) {
    if (std::any_of(lora.saved.begin(), lora.saved.end(),
                    [&](const std::string& end) { return module.ends_with(end); })) {
      saved.push_back(module);
    }
  }
  return saved;
}

Status CheckSaved(const ModelSpec& model, const std::vector<std::string>& saved,
                  const std::set<std::string>& chosen, const std::string& origin) {
  const auto complain = [&](const std::string& module, const std::string& why) {
    return BadInput(
        fmt::format("{}: field 'modules_to_save' has the module '{}', {}", origin, module, why));
  };
  for (const std::string& module : saved) {
    for (const std::string& other : saved) {
      if (other != module && IsWithin(other, module)) {
        return complain(module, fmt::format("and '{}' in it: expected modules apart", other));
      }
    }
    for (const std::string& target : chosen) {
      if (IsWithin(target, module) || IsWithin(module, target)) {
        return complain(module, fmt::format("and targets have '{}': expected one of them", target));
      }
    }
    for (const auto& tie : model.ties) {
      for (const std::string& name : tie) {
        if (IsWithin(ModuleOf(name), module)) {
          return complain(module,
                          fmt::format("where '{}' is tied: expected tensors of its own", name));
        }
      }
    }
    for (const TensorSpec& tensor : model.tensors) {
      if (IsQuantised(tensor) && IsWithin(ModuleOf(tensor.name), module)) {
        return complain(module, fmt::format("where '{}' is quantised: expected what can be trained",
                                            tensor.name));
      }
      if (IsPacked(tensor) && IsWithin(ModuleOf(tensor.name), module)) {
        return complain(module, "which has packed experts: expected none");
      }
    }
  }
  return Ok();
}

/// Freezes the tensors of a module and appends the copies of them that are trained.
void SaveModule(const std::string& module, ModelSpec& model, std::vector<TensorSpec>& added) {
  for (TensorSpec& tensor : model.tensors) {
    if (!IsWithin(ModuleOf(tensor.name), module)) continue;
    const std::string rest = tensor.name.substr(module.size());
    TensorSpec& copy = added.emplace_back(tensor);
    copy.name = module + ".modules_to_save.default" + rest;
    copy.requires_grad = tensor.kind == TensorKind::kParameter;
    copy.stored.clear();
    if (tensor.persistent) {
      copy.stored = {{{kAdapterKeyPrefix + tensor.name, tensor.shape}}};
      copy.adapter = true;
      tensor.stored.push_back({{tensor.name, tensor.shape}});
    }
    copy.linear = false;
    tensor.name = module + ".original_module" + rest;
  }
}

}  // namespace

Result<bool> ModuleChoice::Has(const std::string& module) const {
  if (pattern) return pattern->Fits(module);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& end) { return EndsAsModule(module, end); });
}

Result<ModelSpec> WithAdapter(ModelSpec model, const LoraSpec& lora, const std::string& origin) {
  const Modules modules(model);
  SP_TRY(CheckExperts(model, lora, origin));
  SP_ASSIGN(const std::set<std::string> chosen, Chosen(modules, lora, origin));
  std::vector<TensorSpec> adapters;
  for (const std::string& module : chosen) {
    const TensorSpec& weight = *modules.linear.at(module);
    SP_TRY(CheckTarget(model, weight, origin));
    SP_ASSIGN(const int64_t rank, RankOf(module, lora, origin));
    adapters.push_back(Part(module, "lora_A", {rank, weight.shape[1]}, InitialValue::kUniform));
    adapters.push_back(Part(module, "lora_B", {weight.shape[0], rank}, InitialValue::kZeros));
    if (lora.magnitudes) {
      adapters.push_back(
          Part(module, "lora_magnitude_vector", {weight.shape[0]}, InitialValue::kOnes, ""));
    }
  }
  const std::vector<std::string> saved = SavedModules(modules, lora);
  SP_TRY(CheckSaved(model, saved, chosen, origin));
  SP_ASSIGN(const auto experts, ChosenExperts(model, lora, origin));
  for (TensorSpec& tensor : model.tensors) {
    tensor.requires_grad = false;
    const std::string module = ModuleOf(tensor.name);
    if (!chosen.contains(module)) continue;
    tensor.stored.push_back({{tensor.name, tensor.shape}});
    tensor.name = module + ".base_layer" + tensor.name.substr(module.size());
  }
  for (const std::string& module : saved) SaveModule(module, model, adapters);
  for (const auto& [module, targets] : experts) {
    SP_TRY(AdaptExperts(module, targets, lora, origin, model, adapters));
  }
  std::move(adapters.begin(), adapters.end(), std::back_inserter(model.tensors));
  return model;
}

}  // namespace shardproof
