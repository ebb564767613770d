#include "src/aten/dtype.h"

#include <array>
#include <utility>

namespace shardproof {
namespace {

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 17> kDtypes = {{
    {"F32", at::kFloat},
    {"BF16", at::kBFloat16},
    {"F16", at::kHalf},
    {"F64", at::kDouble},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U64", at::kUInt64},
    {"U32", at::kUInt32},
    {"U16", at::kUInt16},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
    {"C64", at::kComplexFloat},
}};

}  // namespace

std::optional<at::ScalarType> DtypeFromName(std::string_view safetensors_name) {
  for (const auto& [name, dtype] : kDtypes) {
    if (name == safetensors_name) return dtype;
  }
  return std::nullopt;
}

std::string DtypeName(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes) {
    if (known == dtype) return std::string(name);
  }
  return "?";
}

std::string KnownDtypes() {
  std::string text;
  for (const auto& [name, dtype] : kDtypes) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace shardproof
