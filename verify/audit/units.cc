#include "verify/audit/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "src/text/amounts.h"
#include "verify/audit/flattened.h"
#include "verify/audit/scale_values.h"
#include "verify/maps/model_config.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"
#include "verify/quantised/quant_state.h"
#include "verify/quantised/unit_parts.h"

namespace shardproof {
namespace {

using formats::StoredCheckpoint;

std::string Text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string Text(const std::vector<Shape>& shapes) {
  std::vector<std::string> texts;
  for (const Shape& shape : shapes) {
    const std::string text = Text(shape);
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
  }
  return fmt::format("{}", fmt::join(texts, " or "));
}

/// A name with "{}" in place of numbers between dots: what alike modules of all layers share.
std::string KindOf(const std::string& name) {
  std::string kind;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    const std::string part = name.substr(at, end - at);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    kind += (at > 0 ? "." : "") + (is_number ? "{}" : part);
    at = end + 1;
  }
  return kind;
}

/// What quantisers keep while they calibrate.
bool IsLeftIn(const std::string& name) {
  static const std::vector<std::string> kWords = {"_quantizer.", "_observer.", "fake_quant",
                                                  "activation_post_process"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](const std::string& word) { return name.find(word) != std::string::npos; });
}

/// Of floats of one byte, whose scales lie as they do, in blocks that follow from the shapes.
std::optional<ScaleGrid> GridByShapes(const AuditedTensor& codes, const AuditedTensor& scale) {
  if (!codes.dtype.starts_with("F8_") || codes.shape.size() != 2 || scale.shape.size() != 2)
    return {};
  ScaleGrid grid;
  for (const auto& [side, dim] : {std::pair(&grid.rows, 0), std::pair(&grid.columns, 1)}) {
    const int64_t count = scale.shape[static_cast<size_t>(dim)];
    const int64_t whole = codes.shape[static_cast<size_t>(dim)];
    if (count == 0 || whole % count != 0) return {};
    *side = whole / count;
  }
  return grid;
}

class Units {
 public:
  Units(const StoredCheckpoint& checkpoint, const Quantisation& quantisation, AuditResult& result)
      : checkpoint_(checkpoint), quantisation_(quantisation), result_(result) {
    for (size_t i = 0; i < result.tensors.size(); ++i) index_[result.tensors[i].name] = i;
  }

  void Hold() {
    for (size_t i = 0; i < result_.tensors.size(); ++i) HoldTensor(i);
    HoldKinds();
    HoldFlattened();
    result_.quantisation = fmt::format("{} by {}", quantisation_.method, quantisation_.file);
    const bool is_known =
        std::any_of(quantisation_.schemes.begin(), quantisation_.schemes.end(),
                    [](const auto& scheme) { return scheme.dialect != Dialect::kUnknown; });
    result_.quantisation += is_known
                                ? fmt::format(", {} with scales", Count(units_, "weight"))
                                : ", which tensors belong together is not known and not judged";
  }

 private:
  void Found(const std::string& tensor, const std::string& message) {
    result_.damage.push_back(fmt::format("{}: tensor {}: {}", oracle::Printable(result_.path),
                                         oracle::Quote(tensor), message));
  }

  const AuditedTensor* Find(const std::string& name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &result_.tensors[found->second];
  }

  void HoldTensor(size_t index) {
    const AuditedTensor& tensor = result_.tensors[index];
    const std::string module = ModuleOf(tensor.name);
    if (IsLeftIn(tensor.name)) {
      Found(tensor.name,
            "expected only what a model is loaded from, found a tensor that a quantiser keeps "
            "while it calibrates");
      return;
    }
    const QuantisationScheme* scheme = quantisation_.SchemeOf(module);
    if (scheme == nullptr) return;
    const auto base = BaseOfCodes(*scheme, tensor.name, tensor.dtype);
    if (base && IsCodes(*scheme, tensor, *base)) {
      HoldCodes(*scheme, index, *base);
    } else if (const auto owner = BaseOfScale(*scheme, tensor.name)) {
      HoldScale(*scheme, tensor, *owner);
    } else if (scheme->dialect != Dialect::kTorchAo &&  // which it chooses by rules of its own
               tensor.name.ends_with(".weight") && tensor.shape.size() >= 2) {
      plain_[KindOf(module)].push_back(module);
    }
  }

  /// Of what may be codes by its name and dtype. A byte can be other things, too.
  bool IsCodes(const QuantisationScheme& scheme, const AuditedTensor& tensor,
               const std::string& base) const {
    return scheme.dialect != Dialect::kBitsAndBytes4 ||
           IsCodesBeside(tensor.dtype, base,
                         [this](const std::string& name) { return Find(name) != nullptr; });
  }

  void HoldCodes(const QuantisationScheme& scheme, size_t index, const std::string& base) {
    ++units_;
    AuditedTensor& codes = result_.tensors[index];
    const std::string module = ModuleOf(codes.name);
    quantised_[KindOf(module)].push_back(module);
    if (scheme.dialect == Dialect::kBitsAndBytes4) codes.nan_count = codes.inf_count = 0;
    if (quantisation_.Keeps(module)) {
      Found(codes.name, fmt::format("expected it not to be quantised, since {} lists {}, found {}",
                                    quantisation_.file, oracle::Quote(module), codes.dtype));
    }
    for (const UnitPart& part : PartsOf(scheme, base, codes.shape)) HoldPart(scheme, index, part);
    if (scheme.dialect == Dialect::kBitsAndBytes4) HoldBlocks(scheme, codes, base);
    if (scheme.dialect == Dialect::kPackedWords) HoldStatedShape(scheme, codes, base);
    const AuditedTensor* scale = Find(base + "_scale");
    if (scheme.dialect == Dialect::kTorchAo && scale != nullptr) HoldDividing(codes, *scale);
  }

  /// Of compressed-tensors, which says what shape the weight has whose codes lie in words.
  void HoldStatedShape(const QuantisationScheme& scheme, const AuditedTensor& codes,
                       const std::string& base) {
    const AuditedTensor* stated = Find(base + "_shape");
    const bool is_judged = stated != nullptr && stated->elements == codes.shape.size() &&
                           codes.shape.size() >= 2 && scheme.bits >= 1 && scheme.bits <= 8;
    if (!is_judged) return;
    const auto reader =
        maps::ReadStored(checkpoint_, checkpoint_.tensors[index_.at(stated->name)], 0);
    if (ReadPackedShape(*reader, codes.shape, scheme.bits)) return;
    Found(stated->name,
          fmt::format("expected the shape of a weight whose codes of {} bits are {} {}, found "
                      "another",
                      scheme.bits, oracle::Quote(codes.name), Text(codes.shape)));
  }

  /// What bitsandbytes says of a weight stands in bytes of JSON beside it.
  void HoldBlocks(const QuantisationScheme& scheme, const AuditedTensor& codes,
                  const std::string& base) {
    const std::string state = base + ".quant_state.bitsandbytes__";
    const AuditedTensor* found = Find(state + "nf4");
    if (found == nullptr) found = Find(state + "fp4");
    if (found == nullptr) {
      Found(codes.name, fmt::format("expected {} beside it, the shape and size of its blocks, "
                                    "found none",
                                    oracle::Quote(state + "nf4")));
      return;
    }
    const maps::Reader bytes =
        maps::ReadStored(checkpoint_, checkpoint_.tensors[index_.at(found->name)], 0);
    const auto blocks = ReadQuantState(*bytes);
    const AuditedTensor* scale = Find(base + ".absmax");
    if (!blocks || scale == nullptr) return;
    if (codes.bytes != (blocks->elements + 1) / 2) {
      Found(codes.name, fmt::format("expected the {} bytes of {} codes that {} says, found {}",
                                    (blocks->elements + 1) / 2, blocks->elements,
                                    oracle::Quote(found->name), codes.bytes));
    } else if (scale->elements != (blocks->elements + blocks->size - 1) / blocks->size) {
      Found(scale->name,
            fmt::format("expected [{}], one scale for each {} elements of {}, found {}",
                        (blocks->elements + blocks->size - 1) / blocks->size, blocks->size,
                        oracle::Quote(codes.name), Text(scale->shape)));
    } else if (blocks->nested_size > 0) {
      const auto nested =
          static_cast<int64_t>((scale->elements + blocks->nested_size - 1) / blocks->nested_size);
      for (const UnitPart& part :
           {UnitPart{base + ".nested_absmax", {{nested}}, "scales of its scales", true, true},
            UnitPart{base + ".nested_quant_map", {{256}}, "the values of its scales"}})
        HoldPart(scheme, index_.at(codes.name), part);
    }
  }

  /// Of torchao, whose config does not say how scales lie: floats, one or one for each block.
  void HoldDividing(const AuditedTensor& codes, const AuditedTensor& scale) {
    const bool is_plain = codes.dtype == "I8" || codes.dtype.starts_with("F8_");
    const bool is_float = scale.dtype == "F32" || scale.dtype == "F16" || scale.dtype == "BF16";
    if (!is_plain || !is_float || scale.elements == 1) return;
    bool divides = scale.shape.size() == codes.shape.size();
    for (size_t dim = 0; divides && dim < codes.shape.size(); ++dim)
      divides = scale.shape[dim] > 0 && codes.shape[dim] % scale.shape[dim] == 0;
    if (divides) return;
    Found(scale.name,
          fmt::format("expected one scale, or sizes that divide those of {} {}, found {}",
                      oracle::Quote(codes.name), Text(codes.shape), Text(scale.shape)));
  }

  void HoldPart(const QuantisationScheme& scheme, size_t codes_index, const UnitPart& part) {
    const AuditedTensor& codes = result_.tensors[codes_index];
    const AuditedTensor* found = Find(part.name);
    if (found == nullptr) {
      if (!part.is_required) return;
      const std::string shape = part.shapes.empty() ? "" : " " + Text(part.shapes);
      Found(codes.name, fmt::format("expected {}{} beside it, {}, found none",
                                    oracle::Quote(part.name), shape, part.what));
      return;
    }
    const bool fits = part.shapes.empty() || std::find(part.shapes.begin(), part.shapes.end(),
                                                       found->shape) != part.shapes.end();
    if (!fits) {
      Found(part.name,
            fmt::format("expected {}, {} of {} {}, found {}", Text(part.shapes), part.what,
                        oracle::Quote(codes.name), Text(codes.shape), Text(found->shape)));
      return;
    }
    if (!part.is_scale || result_.is_headers_only) return;
    const size_t scale_index = index_.at(part.name);
    const auto known = GridOf(scheme);
    const auto grid = known ? known : GridByShapes(codes, *found);
    const std::string wrong =
        WrongScale(checkpoint_, {checkpoint_.tensors[codes_index], checkpoint_.tensors[scale_index],
                                 part.is_exponent, part.is_required ? grid : std::nullopt});
    if (!wrong.empty()) Found(part.name, wrong);
  }

  void HoldScale(const QuantisationScheme& scheme, const AuditedTensor& scale,
                 const std::string& base) {
    const std::string codes = CodesOfBase(scheme, base);
    const AuditedTensor* found = Find(codes);
    if (found == nullptr) {
      Found(scale.name,
            fmt::format("expected the codes {} that it scales, found none", oracle::Quote(codes)));
    } else if (!BaseOfCodes(scheme, codes, found->dtype)) {
      Found(scale.name, fmt::format("expected {} to be the codes that it scales, found it as {}",
                                    oracle::Quote(codes), found->dtype));
    }
  }

  /// torchao's files say of which tensors a weight is made.
  void HoldFlattened() {
    for (const FlattenedPart& part : FlattenedPartsOf(checkpoint_)) {
      if (Find(part.name) != nullptr) continue;
      Found(part.name, fmt::format("expected it as a part of {}, as the header of {} says, found "
                                   "none",
                                   oracle::Quote(part.weight), oracle::Quote(part.file)));
    }
  }

  /// Modules of one kind are quantised in all layers, unless the config says which are not.
  void HoldKinds() {
    for (const auto& [kind, modules] : plain_) {
      const auto alike = quantised_.find(kind);
      if (alike == quantised_.end()) continue;
      for (const std::string& module : modules) {
        if (quantisation_.MayKeep(module)) continue;
        Found(module + ".weight",
              fmt::format("expected it to be quantised as {} other{} of its kind, such as {}, "
                          "since {} does not exclude it; found {}",
                          alike->second.size(), alike->second.size() == 1 ? "" : "s",
                          oracle::Quote(alike->second[0]), quantisation_.file,
                          Find(module + ".weight")->dtype));
      }
    }
  }

  const StoredCheckpoint& checkpoint_;
  const Quantisation& quantisation_;
  AuditResult& result_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::vector<std::string>> quantised_;  ///< modules by their kind
  std::map<std::string, std::vector<std::string>> plain_;      ///< likewise
  uint64_t units_ = 0;
};

}  // namespace

void HoldUnits(const StoredCheckpoint& checkpoint, AuditResult& result) {
  const Quantisation quantisation = ReadQuantisation(maps::ConfigFolder(result.path));
  if (quantisation.file.empty()) return;
  const std::string name = std::filesystem::path(result.path).filename();
  const bool is_whole = oracle::IsDirectory(result.path) || name == "model.safetensors" ||
                        name == "pytorch_model.bin";
  if (!is_whole) {
    result.remarks.push_back(
        fmt::format("not judged: quantised weights, of which {} beside the file tells: a part of "
                    "one may lie in another file; audit the directory",
                    quantisation.file));
    return;
  }
  Units(checkpoint, quantisation, result).Hold();
}

}  // namespace shardproof
