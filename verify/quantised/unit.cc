#include "verify/quantised/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "verify/oracle/quote.h"
#include "verify/quantised/ggml_blocks.h"
#include "verify/quantised/quant_state.h"

namespace shardproof::quantised {
namespace {

using formats::StoredCheckpoint;
using formats::StoredTensor;

const char* KindOf(Dialect dialect) {
  switch (dialect) {
    case Dialect::kBlockFp8:
    case Dialect::kRowFp8:
      return "fp8";
    case Dialect::kModelOptFp8:
      return "fp8 of ModelOpt";
    case Dialect::kModelOptNvfp4:
      return "NVFP4 of ModelOpt";
    case Dialect::kPlainCodes:
    case Dialect::kPackedWords:
    case Dialect::kPackedMx:
      return "compressed-tensors";
    case Dialect::kPackedNvfp4:
      return "NVFP4 of compressed-tensors";
    case Dialect::kMxfp4:
      return "MXFP4";
    case Dialect::kAwq:
      return "AWQ";
    case Dialect::kGptq:
      return "GPTQ";
    case Dialect::kBitsAndBytes4:
    case Dialect::kBitsAndBytes8:
      return "bitsandbytes";
    case Dialect::kTorchAo:
      return "torchao";
    case Dialect::kGguf:
    case Dialect::kUnknown:
      break;
  }
  return "quantised";
}

bool MayBeFitted(Dialect dialect) {
  switch (dialect) {
    case Dialect::kModelOptNvfp4:
    case Dialect::kPlainCodes:
    case Dialect::kPackedWords:
    case Dialect::kPackedNvfp4:
    case Dialect::kPackedMx:
    case Dialect::kAwq:
    case Dialect::kGptq:
    case Dialect::kTorchAo:
      return true;
    default:
      return false;
  }
}

/// What the weight is called where it is not quantised.
std::string NameOf(Dialect dialect, const std::string& base) {
  if (dialect == Dialect::kAwq || dialect == Dialect::kGptq) return base + "weight";
  if (dialect != Dialect::kTorchAo) return base;
  const size_t at = base.rfind("_weight");
  return at == std::string::npos ? base : base.substr(0, at) + "weight";
}

/// What a part is, by its name without the base or, where it has none, the module.
std::string RoleOf(const std::string& base, const std::string& name) {
  const std::string end =
      name.starts_with(base) ? name.substr(base.size()) : name.substr(name.rfind('.') + 1);
  const std::pair<const char*, const char*> kRoles[] = {{"_scale_2", "global"},
                                                        {"_global_scale", "global"},
                                                        {"_zero_point", "zero"},
                                                        {"qzeros", "zero"},
                                                        {"g_idx", "groups"},
                                                        {"_g_idx", "groups"},
                                                        {"_shape", "shape"},
                                                        {".quant_map", "map"},
                                                        {".nested_absmax", "nested"},
                                                        {".nested_quant_map", "nested map"},
                                                        {"SCB", "scale"},
                                                        {".absmax", "scale"},
                                                        {"weight_format", "format"}};
  for (const auto& [known, role] : kRoles) {
    if (end == known) return role;
  }
  return end.find("quant_state") != std::string::npos ? "state" : "scale";
}

/// Tensors beside a quantised weight that are about its input or output.
bool IsBeside(const std::string& name) {
  static const char* const kEnds[] = {"input_scale",      "input_global_scale",
                                      "activation_scale", "input_zero_point",
                                      "output_scale",     "k_scale",
                                      "v_scale",          "q_scale",
                                      "weight_format",    "input_scale_ub",
                                      "k_zero_point",     "v_zero_point"};
  const size_t dot = name.rfind('.');
  const std::string last = dot == std::string::npos ? name : name.substr(dot + 1);
  return std::any_of(std::begin(kEnds), std::end(kEnds),
                     [&](const char* end) { return last == end; });
}

class Finder {
 public:
  Finder(const StoredCheckpoint& checkpoint, const Quantisation& quantisation, const Opener& open)
      : quantisation_(quantisation), open_(open) {
    for (const StoredTensor& tensor : checkpoint.tensors) by_name_[tensor.name] = &tensor;
    for (const formats::StoredValue& value : checkpoint.values) {
      if (checkpoint.format == "GGUF" && value.name.ends_with(".type"))
        types_[value.name.substr(0, value.name.size() - 5)] = value.text;
    }
  }

  UnitsOfCheckpoint Run() {
    for (const auto& [name, tensor] : by_name_) {
      // The file's own metadata may have such a name, too. Blocks are bytes, and nothing else is.
      const auto type = types_.find(name);
      if (type != types_.end() && tensor->dtype == "U8") {
        AddBlocks(*tensor, type->second);
        continue;
      }
      const QuantisationScheme* scheme = quantisation_.SchemeOf(ModuleOf(name));
      if (scheme == nullptr) continue;
      const auto base = BaseOfCodes(*scheme, name, tensor->dtype);
      const auto is_there = [this](const std::string& other) { return by_name_.count(other) > 0; };
      const bool is_codes = base && (scheme->dialect != Dialect::kBitsAndBytes4 ||
                                     IsCodesBeside(tensor->dtype, *base, is_there));
      if (is_codes) {
        AddUnit(*scheme, *tensor, *base);
      } else if (IsBeside(name)) {
        out_.beside.insert(name);
      }
    }
    for (const std::string& part : out_.parts) out_.beside.erase(part);
    return std::move(out_);
  }

 private:
  /// A tensor of GGUF's blocks.
  void AddBlocks(const StoredTensor& tensor, const std::string& type) {
    Unit unit{.name = tensor.name};
    unit.scheme.dialect = Dialect::kGguf;
    unit.block_type = type.size() > 2 ? type.substr(1, type.size() - 2) : type;  // in quotes
    unit.kind = unit.block_type + " of GGUF";
    unit.parts["codes"] = tensor;
    const BlockType* known = FindBlockType(unit.block_type);
    if (known == nullptr || tensor.shape.empty()) {
      unit.unknown = "blocks of this type are not known";
    } else {
      unit.may_be_fitted = known->is_searched;
      unit.shape = tensor.shape;
      unit.shape.back() = unit.shape.back() / static_cast<int64_t>(known->bytes) *
                          static_cast<int64_t>(known->elements);
    }
    Add(std::move(unit));
  }

  void AddUnit(const QuantisationScheme& scheme, const StoredTensor& codes,
               const std::string& base) {
    Unit unit{.name = NameOf(scheme.dialect, base), .kind = KindOf(scheme.dialect)};
    unit.scheme = scheme;
    unit.may_be_fitted = MayBeFitted(scheme.dialect);
    unit.parts["codes"] = codes;
    for (const UnitPart& part : PartsOf(scheme, base, codes.shape)) {
      const auto found = by_name_.find(part.name);
      if (found == by_name_.end()) {
        if (part.is_required) unit.unknown = "it has no " + oracle::Quote(part.name);
      } else if (!IsBeside(part.name)) {
        unit.parts[RoleOf(base, part.name)] = *found->second;
        const bool fits = part.shapes.empty() ||
                          std::find(part.shapes.begin(), part.shapes.end(), found->second->shape) !=
                              part.shapes.end();
        if (!fits)
          unit.unknown = oracle::Quote(part.name) + " has another shape than its codes say";
      }
    }
    if (scheme.dialect == Dialect::kBitsAndBytes4) {
      for (const char* end : {".nested_absmax", ".nested_quant_map",
                              ".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"}) {
        const auto found = by_name_.find(base + end);
        if (found != by_name_.end()) unit.parts[RoleOf(base, base + end)] = *found->second;
      }
    }
    if (by_name_.count(ModuleOf(unit.name) + ".pre_quant_scale") > 0)
      unit.unknown = "its input is scaled, too, by 'pre_quant_scale'";
    if (unit.unknown.empty() && (unit.Part("scale") == nullptr || codes.shape.size() < 2))
      unit.unknown = "its codes are no matrix";
    if (unit.unknown.empty()) SetShape(unit);
    Add(std::move(unit));
  }

  void Add(Unit unit) {
    for (const auto& [role, part] : unit.parts) out_.parts.insert(part.name);
    out_.units.push_back(std::move(unit));
  }

  /// Of the weight, by the codes' and what other parts say of it.
  void SetShape(Unit& unit) {
    const Shape& codes = unit.Part("codes")->shape;
    unit.shape = codes;
    switch (unit.scheme.dialect) {
      case Dialect::kModelOptNvfp4:
      case Dialect::kPackedNvfp4:
        unit.shape.back() *= 2;
        break;
      case Dialect::kPackedMx:
        unit.shape.back() = codes.back() * 8 / unit.scheme.bits;
        break;
      case Dialect::kMxfp4:
        if (codes.size() == 4 && codes.back() == 16) {
          unit.shape = {codes[0], codes[2] * 32, codes[1]};  // as its model has it, turned
        } else if (codes.size() == 3) {
          unit.shape = {codes[0], codes[2] * 2, codes[1]};
        } else {
          unit.unknown = "its blocks are not [experts, rows, blocks, 16]";
        }
        break;
      case Dialect::kAwq:
        unit.shape = {codes[1] * 32 / unit.scheme.bits, codes[0]};
        break;
      case Dialect::kGptq:
        unit.shape = {codes[1], codes[0] * 32 / unit.scheme.bits};
        break;
      case Dialect::kPackedWords:
        SetPackedShape(unit);
        break;
      case Dialect::kBitsAndBytes4:
        SetStatedShape(unit);
        break;
      default:
        break;
    }
  }

  void SetPackedShape(Unit& unit) {
    const StoredTensor& stated = *unit.Part("shape");
    const Shape& codes = unit.Part("codes")->shape;
    const Reader reader = open_(stated);
    if (const auto shape = ReadPackedShape(*reader, codes, unit.scheme.bits)) {
      unit.shape = *shape;
    } else {
      unit.unknown = oracle::Quote(stated.name) + " is not a shape of its codes";
    }
  }

  void SetStatedShape(Unit& unit) {
    const StoredTensor* stated = unit.Part("state");
    if (stated == nullptr) {
      unit.unknown = "it has no quant_state";
      return;
    }
    const auto state = ReadQuantState(*open_(*stated));
    const StoredTensor& scale = *unit.Part("scale");
    const bool fits = state && unit.Part("codes")->Bytes() == (state->elements + 1) / 2 &&
                      scale.Elements() == (state->elements + state->size - 1) / state->size;
    const bool is_nested = state && state->nested_size > 0;
    if (!fits) {
      unit.unknown = oracle::Quote(stated->name) + " is not what its codes and scales are";
    } else if (is_nested &&
               (unit.Part("nested") == nullptr || unit.Part("nested map") == nullptr)) {
      unit.unknown = "it lacks what its scales are scaled by";
    } else {
      unit.shape = state->shape;
    }
  }

  const Quantisation& quantisation_;
  const Opener& open_;
  std::map<std::string, const StoredTensor*> by_name_;
  std::map<std::string, std::string> types_;  ///< of GGUF's tensors
  UnitsOfCheckpoint out_;
};

}  // namespace

const formats::StoredTensor* Unit::Part(const std::string& part) const {
  const auto found = parts.find(part);
  return found == parts.end() ? nullptr : &found->second;
}

UnitsOfCheckpoint FindUnits(const StoredCheckpoint& checkpoint, const Quantisation& quantisation,
                            const Opener& open) {
  return Finder(checkpoint, quantisation, open).Run();
}

}  // namespace shardproof::quantised
