#include "verify/oracle/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "verify/oracle/config_fields.h"
#include "verify/oracle/input_file.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

constexpr uint64_t kConfigBytesMax = 10'000'000;
constexpr int64_t kRankMax = 1 << 16;
constexpr size_t kTargetsMax = 1 << 16;

struct Adapter {
  std::string where;  ///< what asks for it, for messages
  int64_t rank = 0;
  bool all_linear = false;
  std::vector<std::string> targets;
  std::vector<std::pair<std::string, int64_t>> ranks;  ///< of some modules, by how they end
};

/// What may stand in the file and adds or changes no tensor.
bool ChangesNoTensor(std::string_view field) {
  static constexpr std::string_view kFields[] = {
      "task_type",         "auto_mapping",         "peft_version",  "base_model_name_or_path",
      "revision",          "inference_mode",       "lora_alpha",    "lora_dropout",
      "use_rslora",        "init_lora_weights",    "alpha_pattern", "loftq_config",
      "eva_config",        "corda_config",         "lora_ga_config", "megatron_core",
      "qalora_group_size", "ensure_weight_tying",  "peft_type",     "r",
      "target_modules",    "rank_pattern",         "bias"};
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
    return fields.Wrong(std::string(member.key), "nothing that could mean further tensors",
                        member.value);
  }
  return Ok();
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
  if (!targets) return fields.Missing("target_modules", "names of modules, or all-linear");
  if (targets->is_string()) {
    adapter.all_linear = std::string_view(*targets) == "all-linear";
    if (!adapter.all_linear) {
      return fields.Wrong("target_modules", "a list of names, or all-linear", *targets);
    }
  } else {
    SP_ASSIGN(adapter.targets, fields.Texts("target_modules", kTargetsMax));
  }
  SP_ASSIGN(const Fields ranks, fields.Object("rank_pattern"));
  for (const JsonMember& member : ranks.members()) {
    const std::string name(member.key);
    const bool is_pattern = name.empty() || name.find_first_not_of(
                                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                "0123456789_.") != std::string::npos;
    if (is_pattern) {
      return ranks.Wrong(name, "the name of a module, no pattern", member.value);
    }
    SP_ASSIGN(const int64_t rank, ranks.Integer(name, kRankMax));
    adapter.ranks.emplace_back(name, rank);
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

bool IsTarget(const Adapter& adapter, std::string_view module, bool linear) {
  if (adapter.all_linear) return linear && module != "lm_head";
  return std::any_of(adapter.targets.begin(), adapter.targets.end(),
                     [&](const std::string& name) { return IsNamed(module, name); });
}

/// Modules that are targets and no linear layers: PEFT refuses them.
Status CheckModules(const DeclaredModel& model, const Adapter& adapter) {
  for (const TensorCase& tensor : model.tensors) {
    for (size_t dot = tensor.name.find('.'); dot != std::string::npos;
         dot = tensor.name.find('.', dot + 1)) {
      const std::string module = tensor.name.substr(0, dot);
      const bool linear = model.linears.contains(module);
      if (linear || !IsTarget(adapter, module, linear)) continue;
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
      if (!adapter.all_linear && !IsTarget(adapter, Module(part.key), true)) continue;
      return BadInput(fmt::format("{}: targets: expected none of an expert's projections, found {}, a "
                                  "part of {}",
                                  adapter.where, Quote(std::string(Module(part.key))),
                                  Quote(tensor.name)));
    }
  }
  return Ok();
}

Status CheckLayer(const DeclaredModel& model, const Adapter& adapter, const TensorCase& weight) {
  const std::string_view module = Module(weight.name);
  for (const auto& tie : model.ties) {
    if (std::find(tie.begin(), tie.end(), weight.name) == tie.end()) continue;
    return BadInput(fmt::format("{}: targets: expected weights that are not tied, found that of {}",
                                adapter.where, Quote(std::string(module))));
  }
  for (const char* plain : {"F64", "F32", "BF16", "F16"}) {
    if (weight.dtype == plain) return Ok();
  }
  return BadInput(fmt::format("{}: targets: expected weights of F64, F32, BF16 or F16, found {} in {}",
                              adapter.where, weight.dtype, Quote(std::string(module))));
}

Result<int64_t> RankOf(const Adapter& adapter, std::string_view module) {
  int64_t rank = 0;
  for (const auto& [name, own] : adapter.ranks) {
    if (!IsNamed(module, name)) continue;
    if (rank != 0 && rank != own) {
      return BadInput(fmt::format("{}: rank_pattern: expected one rank for {}, found {} and {}",
                                  adapter.where, Quote(std::string(module)), rank, own));
    }
    rank = own;
  }
  return rank == 0 ? adapter.rank : rank;
}

TensorCase LowRank(const std::string& module, const std::string& which, int64_t rows,
                   int64_t columns, const char* init) {
  TensorCase tensor;
  tensor.name = module + "." + which + ".default.weight";
  tensor.shape = {rows, columns};
  tensor.init = init;
  tensor.stored = {{{"base_model.model." + module + "." + which + ".weight", tensor.shape}}};
  return tensor;
}

}  // namespace

Result<DeclaredModel> Adapt(DeclaredModel model, const ModelCase& asked) {
  Adapter adapter{.where = "case: model: lora"};
  if (asked.lora) {
    adapter.rank = asked.lora->rank;
    adapter.targets = asked.lora->targets;
    adapter.all_linear = adapter.targets == std::vector<std::string>{"all-linear"};
  } else if (!asked.adapter.empty()) {
    SP_ASSIGN(adapter, ReadAdapter(asked.adapter));
  } else {
    return model;
  }
  SP_TRY(CheckModules(model, adapter));
  SP_TRY(CheckExperts(model, adapter));
  std::vector<TensorCase> added;
  for (TensorCase& tensor : model.tensors) {
    tensor.requires_grad = false;
    const std::string module(Module(tensor.name));
    if (!model.linears.contains(module) || !IsTarget(adapter, module, true)) continue;
    const std::string leaf = tensor.name.substr(module.size() + 1);
    if (leaf == "weight") {
      SP_TRY(CheckLayer(model, adapter, tensor));
      SP_ASSIGN(const int64_t rank, RankOf(adapter, module));
      added.push_back(LowRank(module, "lora_A", rank, tensor.shape[1], "uniform"));
      added.push_back(LowRank(module, "lora_B", tensor.shape[0], rank, "zeros"));
    }
    tensor.stored.push_back({{tensor.name, tensor.shape}});
    tensor.name = module + ".base_layer." + leaf;
  }
  if (added.empty()) {
    return BadInput(
        fmt::format("{}: targets: expected names of linear layers of the model, found {}",
                    adapter.where,
                    adapter.targets.empty() ? "none" : Quote(adapter.targets.front())));
  }
  model.adapted.clear();
  for (const TensorCase& tensor : added) model.adapted.insert(tensor.name);
  model.tensors.insert(model.tensors.end(), added.begin(), added.end());
  return model;
}

}  // namespace shardproof::oracle
