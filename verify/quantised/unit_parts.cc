#include "verify/quantised/unit_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardproof {
namespace {

constexpr int64_t kNvfp4Group = 16;
constexpr int64_t kMxGroup = 32;

bool IsFp8(const std::string& dtype) {
  return dtype.starts_with("F8_E4M3") || dtype.starts_with("F8_E5M2");
}

bool IsBytes(const std::string& dtype) { return dtype == "U8" || dtype == "I8" || dtype == "F4"; }

/// A name without this end, if it has it.
std::optional<std::string> Without(const std::string& name, std::string_view end) {
  if (!name.ends_with(end)) return {};
  return name.substr(0, name.size() - end.size());
}

/// The end of the name of codes, behind the base.
std::string_view EndOfCodes(Dialect dialect) {
  switch (dialect) {
    case Dialect::kPackedWords:
    case Dialect::kPackedNvfp4:
    case Dialect::kPackedMx:
      return "_packed";
    case Dialect::kMxfp4:
      return "_blocks";
    case Dialect::kAwq:
    case Dialect::kGptq:
      return "qweight";
    case Dialect::kTorchAo:
      return "_qdata";
    default:
      return "";
  }
}

std::string_view EndOfScale(Dialect dialect) {
  switch (dialect) {
    case Dialect::kBlockFp8:
      return "_scale_inv";
    case Dialect::kMxfp4:
      return "_scales";
    case Dialect::kAwq:
    case Dialect::kGptq:
      return "scales";
    case Dialect::kBitsAndBytes4:
      return ".absmax";
    case Dialect::kBitsAndBytes8:
      return "SCB";
    default:
      return "_scale";
  }
}

bool CanBeCodes(Dialect dialect, const std::string& dtype) {
  switch (dialect) {
    case Dialect::kBlockFp8:
    case Dialect::kRowFp8:
    case Dialect::kModelOptFp8:
      return IsFp8(dtype);
    case Dialect::kPlainCodes:
      return IsFp8(dtype) || dtype == "I8";
    case Dialect::kBitsAndBytes8:
      return dtype == "I8";
    case Dialect::kPackedWords:
    case Dialect::kAwq:
    case Dialect::kGptq:
      return dtype == "I32";
    case Dialect::kModelOptNvfp4:
    case Dialect::kPackedNvfp4:
    case Dialect::kPackedMx:
    case Dialect::kMxfp4:
      return IsBytes(dtype);
    case Dialect::kTorchAo:
      return IsFp8(dtype) || IsBytes(dtype);
    case Dialect::kBitsAndBytes4:
      return true;
    case Dialect::kGguf:  // its file says which
    case Dialect::kUnknown:
      return false;
  }
  return false;
}

std::string ModuleWithDot(const std::string& base) {
  const std::string module = ModuleOf(base);
  return module.empty() ? "" : module + ".";
}

UnitPart Optional(UnitPart part) {
  part.is_required = false;
  return part;
}

UnitPart Scale(std::string name, std::vector<Shape> shapes, std::string what) {
  return {std::move(name), std::move(shapes), std::move(what), true, true};
}

UnitPart ZeroPoints(const QuantisationScheme& scheme, const std::string& base) {
  return {.name = base + "_zero_point", .what = "zero points", .is_required = !scheme.symmetric};
}

/// Elements of a row that share a scale of NVFP4.
int64_t Nvfp4Group(const QuantisationScheme& scheme) {
  return scheme.dialect == Dialect::kModelOptNvfp4 && scheme.group > 0 ? scheme.group : kNvfp4Group;
}

/// One number for the tensor; of stacked experts one for each.
std::vector<Shape> OfTensor(const Shape& codes) {
  std::vector<Shape> shapes = {{}, {1}};
  if (codes.size() > 2) {
    Shape stacked(codes.begin(), codes.end() - 2);
    shapes.push_back(stacked);
    shapes.push_back(stacked);
    shapes.back().push_back(1);
    stacked.insert(stacked.end(), {1, 1});
    shapes.push_back(stacked);
  }
  return shapes;
}

/// The codes' shape with its last two dims as they are given.
Shape WithLast(Shape codes, int64_t rows, int64_t columns) {
  codes[codes.size() - 2] = rows;
  codes[codes.size() - 1] = columns;
  return codes;
}

/// Scales of a weight of [rows, columns] by a scheme's strategy, and what they are.
UnitPart ByStrategy(const QuantisationScheme& scheme, const std::string& name, const Shape& codes,
                    int64_t rows, int64_t columns) {
  if (scheme.strategy == "channel") {
    std::vector<Shape> shapes = {WithLast(codes, rows, 1)};
    shapes.push_back({codes.begin(), codes.end() - 2});
    shapes.back().push_back(rows);
    return Scale(name, std::move(shapes), "one scale for each row");
  }
  if (scheme.strategy == "block" && scheme.block_height > 0) {
    const Shape blocks =
        WithLast(codes, CeilDiv(rows, scheme.block_height), CeilDiv(columns, scheme.block_width));
    return Scale(name, {blocks},
                 fmt::format("one scale for each block of {} x {}", scheme.block_height,
                             scheme.block_width));
  }
  if (scheme.strategy == "group" && scheme.group > 0) {
    return Scale(name, {WithLast(codes, rows, CeilDiv(columns, scheme.group))},
                 fmt::format("one scale for each {} elements of a row", scheme.group));
  }
  if (scheme.strategy == "tensor") return Scale(name, OfTensor(codes), "one scale");
  return Scale(name, {}, "scales");
}

std::vector<UnitPart> PartsOfFour(const QuantisationScheme& scheme, const std::string& base,
                                  const Shape& codes) {
  const int64_t rows = codes[codes.size() - 2];
  if (scheme.dialect == Dialect::kPackedMx) {
    if (scheme.bits < 1) return {};
    const int64_t columns = codes.back() * 8 / scheme.bits;
    UnitPart scale = Scale(base + "_scale", {WithLast(codes, rows, CeilDiv(columns, kMxGroup))},
                           "one scale for each 32 elements of a row");
    scale.is_exponent = true;
    return {scale};
  }
  const int64_t columns = 2 * codes.back();
  const int64_t group = Nvfp4Group(scheme);
  std::vector<UnitPart> parts = {
      Scale(base + "_scale", {WithLast(codes, rows, CeilDiv(columns, group))},
            fmt::format("one scale for each {} elements of a row", group))};
  const bool is_modelopt = scheme.dialect == Dialect::kModelOptNvfp4;
  parts.push_back(Scale(base + (is_modelopt ? "_scale_2" : "_global_scale"), OfTensor(codes),
                        "one scale for the tensor"));
  const char* input = is_modelopt ? "input_scale" : "input_global_scale";
  parts.push_back(Optional(Scale(ModuleWithDot(base) + input, {}, "")));
  return parts;
}

/// AWQ packs along the columns of [k, n], GPTQ along its rows.
std::vector<UnitPart> PartsOfWords(const QuantisationScheme& scheme, const std::string& base,
                                   const Shape& codes) {
  const bool is_awq = scheme.dialect == Dialect::kAwq;
  const int64_t bits = scheme.bits;
  const int64_t k = is_awq ? codes[0] : codes[0] * 32 / bits;
  const int64_t n = is_awq ? codes[1] * 32 / bits : codes[1];
  const int64_t groups = scheme.group > 0 ? CeilDiv(k, scheme.group) : 1;
  const std::string of_group = scheme.group > 0
                                   ? fmt::format("for each {} rows of [{}, {}]", scheme.group, k, n)
                                   : fmt::format("for each column of [{}, {}]", k, n);
  std::vector<UnitPart> parts = {
      Scale(base + "scales", {{groups, n}}, "a row of scales " + of_group),
      {base + "qzeros", {{groups, CeilDiv(n * bits, 32)}}, "packed zero points " + of_group}};
  parts[1].is_required = !scheme.symmetric;
  if (!is_awq) parts.push_back(Optional({base + "g_idx", {{k}}, "the group of each row"}));
  return parts;
}

std::vector<UnitPart> PartsOfPackedWords(const QuantisationScheme& scheme, const std::string& base,
                                         const Shape& codes) {
  const int64_t rows = codes[codes.size() - 2];
  // Codes of an odd width leave bits of the last word unused, so the width is not known to the
  // column; the scales of a group say no less.
  const int64_t columns = codes.back() * (32 / scheme.bits);
  UnitPart scale = ByStrategy(scheme, base + "_scale", codes, rows, columns);
  if (scheme.strategy == "group" && scheme.group > 0) {
    // Of each packing the number of codes in the last word is not known: 32 widths at most.
    const auto add = [&](int64_t before, int64_t most) {
      for (int64_t groups = CeilDiv(before + 1, scheme.group);
           groups <= CeilDiv(most, scheme.group); ++groups) {
        scale.shapes.push_back(WithLast(codes, rows, groups));
      }
    };
    const int64_t words = codes.back();
    add((words - 1) * (32 / scheme.bits), columns);
    // Since version 0.20 codes of an odd width may lie in two words.
    if (32 % scheme.bits != 0) add((words - 1) * 32 / scheme.bits, words * 32 / scheme.bits);
  }
  std::vector<UnitPart> parts = {
      scale, {base + "_shape", {{static_cast<int64_t>(codes.size())}}, "the shape of the weight"}};
  parts.push_back(ZeroPoints(scheme, base));
  parts.push_back(Optional({.name = base + "_g_idx"}));
  return parts;
}

std::vector<UnitPart> PartsOfPlain(const QuantisationScheme& scheme, const std::string& base,
                                   const Shape& codes) {
  const int64_t rows = codes[codes.size() - 2];
  const int64_t columns = codes.back();
  const std::string name = base + std::string(EndOfScale(scheme.dialect));
  std::vector<UnitPart> parts = {ByStrategy(scheme, name, codes, rows, columns)};
  parts[0].is_exponent = scheme.has_exponents;
  if (scheme.dialect == Dialect::kPlainCodes) parts.push_back(ZeroPoints(scheme, base));
  for (const char* input : {"input_scale", "activation_scale"})
    parts.push_back(Optional(Scale(ModuleWithDot(base) + input, {}, "")));
  return parts;
}

}  // namespace

std::string ModuleOf(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::optional<std::string> BaseOfCodes(const QuantisationScheme& scheme, const std::string& name,
                                       const std::string& dtype) {
  if (!CanBeCodes(scheme.dialect, dtype)) return {};
  const std::optional<std::string> base = Without(name, EndOfCodes(scheme.dialect));
  if (!base) return {};
  const bool is_named = scheme.dialect == Dialect::kMxfp4 || base->ends_with("weight") ||
                        base->ends_with(".") || base->empty() || base->ends_with("_proj");
  return is_named ? base : std::nullopt;
}

bool IsCodesBeside(const std::string& dtype, const std::string& base,
                   const std::function<bool(const std::string& name)>& is_there) {
  return dtype == "U8" || is_there(base + ".absmax") || is_there(base + ".quant_map") ||
         is_there(base + ".quant_state.bitsandbytes__nf4") ||
         is_there(base + ".quant_state.bitsandbytes__fp4");
}

std::optional<std::string> BaseOfScale(const QuantisationScheme& scheme, const std::string& name) {
  if (scheme.dialect == Dialect::kUnknown) return {};
  const std::optional<std::string> base = Without(name, EndOfScale(scheme.dialect));
  if (!base) return {};
  if (scheme.dialect == Dialect::kBlockFp8 || scheme.dialect == Dialect::kMxfp4) return base;
  const bool is_behind_module = base->empty() || base->ends_with(".");
  if (scheme.dialect == Dialect::kAwq || scheme.dialect == Dialect::kGptq)
    return is_behind_module ? base : std::nullopt;
  if (scheme.dialect == Dialect::kBitsAndBytes8)
    return is_behind_module ? std::optional(*base + "weight") : std::nullopt;
  return base->ends_with("weight") ? base : std::nullopt;
}

std::string CodesOfBase(const QuantisationScheme& scheme, const std::string& base) {
  return base + std::string(EndOfCodes(scheme.dialect));
}

std::vector<UnitPart> PartsOf(const QuantisationScheme& scheme, const std::string& base,
                              const Shape& codes) {
  switch (scheme.dialect) {
    case Dialect::kUnknown:
    case Dialect::kGguf:
      return {};
    case Dialect::kTorchAo:  // how codes lie stands in the file's metadata
      return {Scale(base + "_scale", {}, "scales"),
              Optional({.name = base + "_zero_point", .what = "zero points"})};
    case Dialect::kBitsAndBytes8:
      return {Scale(ModuleWithDot(base) + "SCB",
                    codes.empty() ? std::vector<Shape>{} : std::vector<Shape>{{codes[0]}},
                    "one scale for each row"),
              Optional({.name = ModuleWithDot(base) + "weight_format"})};
    case Dialect::kBitsAndBytes4:
      return {Scale(base + ".absmax", {}, "scales of its blocks"),
              {base + ".quant_map", {{16}}, "the values of its codes"}};
    default:
      break;
  }
  const auto is_vast = [](int64_t size) { return size > kSizeMax; };
  if (codes.size() < 2 || std::any_of(codes.begin(), codes.end(), is_vast)) return {};
  switch (scheme.dialect) {
    case Dialect::kModelOptNvfp4:
    case Dialect::kPackedNvfp4:
    case Dialect::kPackedMx:
      return PartsOfFour(scheme, base, codes);
    case Dialect::kMxfp4: {
      // Blocks of 16 bytes have a dim of their own, or lie one behind the other.
      Shape blocks(codes.begin(), codes.end() - 1);
      if (codes.size() < 4) blocks.push_back(CeilDiv(codes.back(), kMxGroup / 2));
      UnitPart scale = Scale(base + "_scales", {blocks}, "one scale for each 32 elements of a row");
      scale.is_exponent = true;
      return {scale};
    }
    case Dialect::kAwq:
    case Dialect::kGptq:
      return codes.size() == 2 && scheme.bits >= 1 && scheme.bits <= 32
                 ? PartsOfWords(scheme, base, codes)
                 : std::vector<UnitPart>();
    case Dialect::kPackedWords:
      return scheme.bits >= 1 && scheme.bits <= 32 ? PartsOfPackedWords(scheme, base, codes)
                                                   : std::vector<UnitPart>();
    default:
      return PartsOfPlain(scheme, base, codes);
  }
}

bool MayRoundToZero(const oracle::DtypeInfo& dtype) {
  return dtype.kind == oracle::NumberKind::kFloat && dtype.bytes == 1;
}

std::optional<ScaleGrid> GridOf(const QuantisationScheme& scheme) {
  switch (scheme.dialect) {
    case Dialect::kModelOptNvfp4:
    case Dialect::kPackedNvfp4:
      return ScaleGrid{1, Nvfp4Group(scheme), 2};
    case Dialect::kBlockFp8:
    case Dialect::kRowFp8:
    case Dialect::kModelOptFp8:
    case Dialect::kPlainCodes:
      if (scheme.strategy == "channel") return ScaleGrid{1, 0, 1};
      if (scheme.strategy == "tensor") return ScaleGrid{0, 0, 1};
      if (scheme.strategy == "group" && scheme.group > 0) return ScaleGrid{1, scheme.group, 1};
      if (scheme.strategy == "block" && scheme.block_height > 0)
        return ScaleGrid{scheme.block_height, scheme.block_width, 1};
      return {};
    default:
      return {};
  }
}

}  // namespace shardproof
