#include "verify/oracle/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "src/pattern/pattern.h"
#include "verify/oracle/config_fields.h"
#include "verify/oracle/input_file.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

constexpr int64_t kRankMax = 1 << 16;
constexpr size_t kTargetsMax = 1 << 16;
constexpr size_t kRanksMax = 256;

/// A field that lists modules: by their ends, or by an expression for whole names.
struct Listed {
  std::vector<std::string> ends;
  std::optional<Pattern> expression;
};

struct Adapter {
  std::string where;  ///< what asks for it, for messages
  int64_t rank = 0;
  bool all_linear = false;
  Listed targets;
  Listed excluded;
  std::vector<std::pair<Pattern, int64_t>> ranks;  ///< of modules that an expression fits
  std::vector<std::string> retrained;              ///< ends of modules that it has whole
  bool magnitudes = false;
  std::vector<std::string> parameters;  ///< ends of the names of packed experts
};

/// What may stand in the file and adds or changes no tensor.
bool ChangesNoTensor(std::string_view field) {
  static constexpr std::string_view kFields[] = {"task_type",
                                                 "auto_mapping",
                                                 "peft_version",
                                                 "base_model_name_or_path",
                                                 "revision",
                                                 "inference_mode",
                                                 "lora_alpha",
                                                 "lora_dropout",
                                                 "use_rslora",
                                                 "init_lora_weights",
                                                 "alpha_pattern",
                                                 "loftq_config",
                                                 "eva_config",
                                                 "corda_config",
                                                 "lora_ga_config",
                                                 "megatron_core",
                                                 "qalora_group_size",
                                                 "ensure_weight_tying",
                                                 "peft_type",
                                                 "r",
                                                 "target_modules",
                                                 "rank_pattern",
                                                 "bias",
                                                 "exclude_modules",
                                                 "modules_to_save",
                                                 "use_dora",
                                                 "target_parameters",
                                                 "fan_in_fan_out"};
  return std::find(std::begin(kFields), std::end(kFields), field) != std::end(kFields);
}

/// null, false, [] or {}.
bool IsNothing(const JsonElement& value) {
  simdjson::dom::array array;
  simdjson::dom::object object;
  if (value.is_null()) return true;
  if (value.is_bool()) return !bool(value);
  if (!value.get_array().get(array)) return array.size() == 0;
  return !value.get_object().get(object) && object.size() == 0;
}

Status CheckPlain(const Fields& fields) {
  SP_ASSIGN(const std::string type, fields.Text("peft_type", "none"));
  if (type != "LORA") return fields.Wrong("peft_type", "LORA", *fields.Find("peft_type"));
  SP_ASSIGN(const std::string bias, fields.Text("bias", "none"));
  if (bias != "none") return fields.Wrong("bias", "none", *fields.Find("bias"));
  for (const JsonMember& member : fields.members()) {
    if (ChangesNoTensor(member.key) || IsNothing(member.value)) continue;
    return fields.Wrong(Printable(member.key), "nothing that could mean further tensors",
                        member.value);
  }
  return Ok();
}

Result<Pattern> ReadExpression(const Fields& fields, const std::string& field,
                               const std::string& text) {
  auto expression = Pattern::Of(text);
  if (expression.ok()) return expression;
  return BadInput(fmt::format("{}: {}: expected a regular expression, found {}: {}", fields.where(),
                              field, Quote(text), expression.error().message));
}

Result<Listed> ReadListed(const Fields& fields, const std::string& field) {
  Listed listed;
  const auto value = fields.Find(field);
  if (value && value->is_string()) {
    SP_ASSIGN(listed.expression,
              ReadExpression(fields, field, std::string(std::string_view(*value))));
  } else {
    SP_ASSIGN(listed.ends, fields.Texts(field, kTargetsMax));
  }
  return listed;
}

/// PEFT reads these in two ways; for a plain name both mean one thing.
Result<std::vector<std::string>> ReadRetrained(const Fields& fields) {
  const std::string field = "modules_to_save";
  SP_ASSIGN(std::vector<std::string> names, fields.Texts(field, kTargetsMax));
  for (const std::string& name : names) {
    const bool plain = !name.empty() && name.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_.") == std::string::npos;
    if (plain) continue;
    return BadInput(fmt::format("{}: {}: expected names of modules, found {}", fields.where(),
                                field, Quote(name)));
  }
  return names;
}

/// In capitals too.
bool IsAllLinear(const JsonElement& targets) {
  static constexpr std::string_view kName = "all-linear";
  std::string_view text;
  if (targets.get_string().get(text)) return false;
  return std::equal(text.begin(), text.end(), kName.begin(), kName.end(),
                    [](char found, char wanted) { return (found | 0x20) == (wanted | 0x20); });
}

Result<Adapter> ReadAdapter(const std::string& directory) {
  const std::string path = directory + "/adapter_config.json";
  SP_ASSIGN(const std::string text, ReadWholeFile(path, kConfigBytesMax));
  simdjson::dom::parser parser;
  SP_ASSIGN(const simdjson::dom::object root, ParseObject(parser, path, text));
  SP_ASSIGN(const Fields fields, Fields::Of(Printable(path), root));
  if (!fields.Has("peft_type")) return fields.Missing("peft_type", "LORA");
  SP_TRY(CheckPlain(fields));
  Adapter adapter{.where = Printable(path)};
  SP_ASSIGN(adapter.rank, fields.IntegerOr(8, "r", kRankMax));
  const auto targets = fields.Find("target_modules");
  SP_ASSIGN(adapter.parameters, fields.Texts("target_parameters", kTargetsMax));
  if (!targets && adapter.parameters.empty()) {
    return fields.Missing("target_modules", "names of modules, an expression, or all-linear");
  }
  adapter.all_linear = targets && IsAllLinear(*targets);
  if (!adapter.all_linear) {
    SP_ASSIGN(adapter.targets, ReadListed(fields, "target_modules"));
  }
  SP_ASSIGN(adapter.excluded, ReadListed(fields, "exclude_modules"));
  SP_ASSIGN(const Fields ranks, fields.Object("rank_pattern"));
  if (ranks.members().size() > kRanksMax) {
    return fields.Wrong("rank_pattern", fmt::format("at most {} expressions", kRanksMax),
                        static_cast<int64_t>(ranks.members().size()));
  }
  for (const JsonMember& member : ranks.members()) {
    const std::string name(member.key);
    SP_TRY(ReadExpression(ranks, "a key", name));
    SP_ASSIGN(Pattern expression, ReadExpression(ranks, "a key", "(.*\\.)?(" + name + ")"));
    SP_ASSIGN(const int64_t rank, ranks.Integer(name, kRankMax));
    adapter.ranks.emplace_back(std::move(expression), rank);
  }
  SP_ASSIGN(adapter.retrained, ReadRetrained(fields));
  SP_ASSIGN(adapter.magnitudes, fields.Bool("use_dora", false));
  if (adapter.magnitudes && !adapter.parameters.empty()) {
    return fields.Wrong("use_dora", "false beside target_parameters", *fields.Find("use_dora"));
  }
  const auto dropout = fields.Find("lora_dropout");
  double share = 0;
  if (!adapter.parameters.empty() && dropout && (dropout->get_double().get(share) || share != 0)) {
    return fields.Wrong("lora_dropout", "0 beside target_parameters", *dropout);
  }
  return adapter;
}

bool IsNamed(std::string_view module, std::string_view name) {
  if (!module.ends_with(name)) return false;
  module.remove_suffix(name.size());
  return module.empty() || module.back() == '.';
}

std::string_view Module(std::string_view tensor) {
  return tensor.substr(0, std::min(tensor.rfind('.'), tensor.size()));
}

Result<bool> Fits(const Adapter& adapter, const Pattern& expression, std::string_view module) {
  auto fits = expression.Fits(module);
  if (fits.ok()) return fits;
  return BadInput(fmt::format("{}: targets: {}", adapter.where, fits.error().message));
}

Result<bool> IsListed(const Adapter& adapter, const Listed& listed, std::string_view module) {
  if (listed.expression) return Fits(adapter, *listed.expression, module);
  return std::any_of(listed.ends.begin(), listed.ends.end(),
                     [&](const std::string& name) { return IsNamed(module, name); });
}

/// Whether the module, or one that it is in, has one of the names: no adapter goes there. PEFT
/// reads a dot in a name as any character here.
bool IsInRetrained(const Adapter& adapter, std::string_view module) {
  const auto fits = [](char wanted, char found) { return wanted == '.' || wanted == found; };
  for (std::string_view outer = module;; outer = Module(outer)) {
    for (const std::string& name : adapter.retrained) {
      if (name.size() > outer.size()) continue;
      const std::string_view before = outer.substr(0, outer.size() - name.size());
      const std::string_view end = outer.substr(before.size());
      const bool is_part = before.empty() || before.back() == '.';
      if (is_part && std::equal(name.begin(), name.end(), end.begin(), fits)) return true;
    }
    if (outer.find('.') == std::string_view::npos) return false;
  }
}

Result<bool> IsTarget(const Adapter& adapter, std::string_view module, bool linear) {
  if (IsInRetrained(adapter, module)) return false;
  SP_ASSIGN(const bool excluded, IsListed(adapter, adapter.excluded, module));
  if (excluded) return false;
  if (adapter.all_linear) return linear && module != "lm_head";
  return IsListed(adapter, adapter.targets, module);
}

/// Whether the adapter has a module of its own in place of this one.
bool IsRetrained(const Adapter& adapter, std::string_view module) {
  return std::any_of(adapter.retrained.begin(), adapter.retrained.end(),
                     [&](const std::string& end) { return module.ends_with(end); });
}

/// Modules that are targets and no linear layers: PEFT refuses them.
Status CheckModules(const DeclaredModel& model, const Adapter& adapter) {
  for (const TensorCase& tensor : model.tensors) {
    for (size_t dot = tensor.name.find('.'); dot != std::string::npos;
         dot = tensor.name.find('.', dot + 1)) {
      const std::string module = tensor.name.substr(0, dot);
      if (model.linears.contains(module)) continue;
      SP_ASSIGN(const bool target, IsTarget(adapter, module, false));
      if (!target) continue;
      return BadInput(fmt::format("{}: targets: expected linear layers only, found {}",
                                  adapter.where, Quote(module)));
    }
  }
  return Ok();
}

/// What PEFT makes of targets that name a packed expert's projections differs by architecture.
Status CheckExperts(const DeclaredModel& model, const Adapter& adapter) {
  for (const TensorCase& tensor : model.tensors) {
    if (tensor.stored.empty() || tensor.stored[0].size() < 2) continue;
    for (const StoredCase& part : tensor.stored[0]) {
      SP_ASSIGN(const bool target, IsTarget(adapter, Module(part.key), true));
      if (!target) continue;
      return BadInput(
          fmt::format("{}: targets: expected none of an expert's projections, found {}, a "
                      "part of {}",
                      adapter.where, Quote(std::string(Module(part.key))), Quote(tensor.name)));
    }
  }
  return Ok();
}

bool IsQuantised(const TensorCase& tensor) {
  for (const char* plain : {"F64", "F32", "BF16", "F16"}) {
    if (tensor.dtype == plain) return false;
  }
  return true;
}

Status CheckLayer(const DeclaredModel& model, const Adapter& adapter, const TensorCase& weight) {
  const std::string_view module = Module(weight.name);
  for (const auto& tie : model.ties) {
    if (std::find(tie.begin(), tie.end(), weight.name) == tie.end()) continue;
    return BadInput(fmt::format("{}: targets: expected weights that are not tied, found that of {}",
                                adapter.where, Quote(std::string(module))));
  }
  if (!IsQuantised(weight)) return Ok();
  return BadInput(
      fmt::format("{}: targets: expected weights of F64, F32, BF16 or F16, found {} in {}",
                  adapter.where, weight.dtype, Quote(std::string(module))));
}

Result<int64_t> RankOf(const Adapter& adapter, std::string_view module) {
  for (const auto& [expression, own] :
       adapter.ranks) {  // in the file's order, of which the first counts
    SP_ASSIGN(const bool fits, Fits(adapter, expression, module));
    if (fits) return own;
  }
  return adapter.rank;
}

TensorCase Beside(const std::string& module, const std::string& which, std::vector<int64_t> shape,
                  const char* init) {
  TensorCase tensor;
  tensor.name = module + "." + which + ".default.weight";
  tensor.shape = std::move(shape);
  tensor.init = init;
  // Of matrices PEFT keeps the name of their own weight, of a vector it does not.
  const char* leaf = tensor.shape.size() == 2 ? ".weight" : "";
  tensor.stored = {{{"base_model.model." + module + "." + which + leaf, tensor.shape}}};
  return tensor;
}

/// Of a tensor, the module that the adapter has whole; empty if there is none. Refused where what
/// PEFT makes of it depends on more than names.
Result<std::string> RetrainedModule(const DeclaredModel& model, const Adapter& adapter,
                                    const TensorCase& tensor) {
  std::string found;
  for (size_t dot = tensor.name.find('.'); dot != std::string::npos;
       dot = tensor.name.find('.', dot + 1)) {
    const std::string module = tensor.name.substr(0, dot);
    if (!IsRetrained(adapter, module)) continue;
    if (!found.empty()) {
      return BadInput(fmt::format("{}: modules_to_save: expected modules apart, found {} in {}",
                                  adapter.where, Quote(module), Quote(found)));
    }
    found = module;
  }
  if (found.empty()) return found;
  for (const auto& tie : model.ties) {
    if (std::find(tie.begin(), tie.end(), tensor.name) == tie.end()) continue;
    return BadInput(fmt::format("{}: modules_to_save: expected tensors that are not tied, found {}",
                                adapter.where, Quote(tensor.name)));
  }
  if (IsQuantised(tensor)) {
    return BadInput(
        fmt::format("{}: modules_to_save: expected what can be trained, found {} of dtype {}",
                    adapter.where, Quote(tensor.name), tensor.dtype));
  }
  for (const auto& way : tensor.stored) {
    if (way.size() < 2) continue;
    return BadInput(fmt::format("{}: modules_to_save: expected no packed experts, found {}",
                                adapter.where, Quote(tensor.name)));
  }
  return found;
}

/// What the adapter has in place of a tensor of such a module; the tensor itself moves aside.
TensorCase Retrained(const std::string& module, TensorCase& tensor) {
  TensorCase own = tensor;
  const std::string key = tensor.name;
  const std::string rest = key.substr(module.size());
  own.name = module + ".modules_to_save.default" + rest;
  own.stored.clear();
  own.requires_grad = own.kind == "parameter";
  tensor.name = module + ".original_module" + rest;
  if (tensor.persistent) {
    own.stored = {{{"base_model.model." + key, tensor.shape}}};
    tensor.stored.push_back({{key, tensor.shape}});
  }
  return own;
}

/// Packed experts [count, out, in] that have adapters, module by module. Each adapter is a layer
/// around the module as it then is, so that the first is the innermost.
Status AdaptPacked(DeclaredModel& model, const Adapter& adapter, std::vector<TensorCase>& added) {
  std::map<std::string, std::vector<TensorCase>> by_module;
  for (const TensorCase& tensor : model.tensors) {
    const bool named =
        std::any_of(adapter.parameters.begin(), adapter.parameters.end(),
                    [&](const std::string& end) { return IsNamed(tensor.name, end); });
    if (!named) continue;
    const bool packed = !tensor.stored.empty() && tensor.stored[0].size() > 1;
    if (!packed || IsQuantised(tensor)) {
      return BadInput(
          fmt::format("{}: target_parameters: expected packed experts that are not quantised, "
                      "found {}",
                      adapter.where, Quote(tensor.name)));
    }
    by_module[std::string(Module(tensor.name))].push_back(tensor);
  }
  if (by_module.empty() && !adapter.parameters.empty()) {
    return BadInput(
        fmt::format("{}: target_parameters: expected packed experts of the model, found {}",
                    adapter.where, Quote(adapter.parameters.front())));
  }
  for (const auto& [module, targets] : by_module) {
    std::string inside = module;
    std::vector<std::string> around;  // from the outermost
    for (size_t i = 0; i < targets.size(); ++i) {
      around.push_back(inside);
      inside += ".base_layer";
    }
    for (TensorCase& tensor : model.tensors) {
      if (Module(tensor.name) != module) continue;
      tensor.stored.push_back({{tensor.name, tensor.shape}});
      tensor.name = inside + tensor.name.substr(module.size());
    }
    for (const TensorCase& target : targets) {
      SP_ASSIGN(const int64_t rank, RankOf(adapter, target.name));
      const int64_t inner = rank * target.shape[0];
      added.push_back(Beside(around.back(), "lora_A", {inner, target.shape[2]}, "uniform"));
      added.push_back(Beside(around.back(), "lora_B", {target.shape[1], inner}, "zeros"));
      around.pop_back();
    }
  }
  return Unit{};
}

}  // namespace

Result<DeclaredModel> Adapt(DeclaredModel model, const ModelCase& asked) {
  Adapter adapter{.where = "case: model: lora"};
  if (asked.lora) {
    adapter.rank = asked.lora->rank;
    adapter.targets.ends = asked.lora->targets;
    adapter.all_linear = adapter.targets.ends == std::vector<std::string>{"all-linear"};
  } else if (!asked.adapter.empty()) {
    SP_ASSIGN(adapter, ReadAdapter(asked.adapter));
  } else {
    return model;
  }
  SP_TRY(CheckModules(model, adapter));
  SP_TRY(CheckExperts(model, adapter));
  std::vector<TensorCase> added;
  std::vector<TensorCase> retrained;
  for (TensorCase& tensor : model.tensors) {
    tensor.requires_grad = false;
    const std::string module(Module(tensor.name));
    SP_ASSIGN(const std::string whole, RetrainedModule(model, adapter, tensor));
    SP_ASSIGN(const bool target, IsTarget(adapter, module, true));
    const bool adapted = target && model.linears.contains(module);
    if (adapted && !whole.empty()) {
      return BadInput(
          fmt::format("{}: modules_to_save: expected modules without a target, found {} with {}",
                      adapter.where, Quote(whole), Quote(module)));
    }
    if (!whole.empty()) retrained.push_back(Retrained(whole, tensor));
    if (!adapted) continue;
    const std::string leaf = tensor.name.substr(module.size() + 1);
    if (leaf == "weight") {
      SP_TRY(CheckLayer(model, adapter, tensor));
      SP_ASSIGN(const int64_t rank, RankOf(adapter, module));
      added.push_back(Beside(module, "lora_A", {rank, tensor.shape[1]}, "uniform"));
      added.push_back(Beside(module, "lora_B", {tensor.shape[0], rank}, "zeros"));
      if (adapter.magnitudes) {
        added.push_back(Beside(module, "lora_magnitude_vector", {tensor.shape[0]}, "ones"));
      }
    }
    tensor.stored.push_back({{tensor.name, tensor.shape}});
    tensor.name = module + ".base_layer." + leaf;
  }
  SP_TRY(AdaptPacked(model, adapter, added));
  if (added.empty()) {
    const auto& ends = adapter.targets.ends;
    return BadInput(
        fmt::format("{}: targets: expected names of linear layers of the model, found {}",
                    adapter.where, ends.empty() ? "none" : Quote(ends.front())));
  }
  std::move(retrained.begin(), retrained.end(), std::back_inserter(added));
  model.adapted.clear();
  for (const TensorCase& tensor : added) {
    if (!tensor.stored.empty()) model.adapted.insert(tensor.name);
  }
  model.tensors.insert(model.tensors.end(), added.begin(), added.end());
  return model;
}

}  // namespace shardproof::oracle
