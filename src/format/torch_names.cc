#include "src/format/torch_names.h"

#include <array>

namespace shardproof {
namespace {

struct Names {
  at::ScalarType dtype;
  std::string_view torch;
  std::string_view storage;
};

constexpr std::array<Names, 17> kNames = {{
    {at::kFloat, "float32", "FloatStorage"},
    {at::kBFloat16, "bfloat16", "BFloat16Storage"},
    {at::kHalf, "float16", "HalfStorage"},
    {at::kDouble, "float64", "DoubleStorage"},
    {at::kFloat8_e4m3fn, "float8_e4m3fn", ""},
    {at::kFloat8_e5m2, "float8_e5m2", ""},
    {at::kFloat8_e8m0fnu, "float8_e8m0fnu", ""},
    {at::kLong, "int64", "LongStorage"},
    {at::kInt, "int32", "IntStorage"},
    {at::kShort, "int16", "ShortStorage"},
    {at::kChar, "int8", "CharStorage"},
    {at::kUInt64, "uint64", ""},
    {at::kUInt32, "uint32", ""},
    {at::kUInt16, "uint16", ""},
    {at::kByte, "uint8", "ByteStorage"},
    {at::kBool, "bool", "BoolStorage"},
    {at::kComplexFloat, "complex64", "ComplexFloatStorage"},
}};

const Names* Find(at::ScalarType dtype) {
  for (const Names& names : kNames) {
    if (names.dtype == dtype) return &names;
  }
  return nullptr;
}

}  // namespace

std::string_view TorchDtypeName(at::ScalarType dtype) {
  const Names* names = Find(dtype);
  return names == nullptr ? "" : names->torch;
}

std::string_view TorchStorageName(at::ScalarType dtype) {
  const Names* names = Find(dtype);
  return names == nullptr ? "" : names->storage;
}

std::optional<at::ScalarType> DtypeFromTorchName(std::string_view name) {
  constexpr std::string_view kModule = "torch.";
  if (!name.starts_with(kModule)) return std::nullopt;
  name.remove_prefix(kModule.size());
  for (const Names& names : kNames) {
    if (name == names.torch || (!names.storage.empty() && name == names.storage))
      return names.dtype;
  }
  return std::nullopt;
}

}  // namespace shardproof
