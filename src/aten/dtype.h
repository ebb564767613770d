// Dtypes by safetensors' names, the only names that Shardproof uses outside ATen.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

namespace shardproof {

/// \returns nullopt if LibTorch stores no such dtype.
std::optional<at::ScalarType> DtypeFromName(std::string_view safetensors_name);

/// The safetensors name, or "?" for a dtype that the format does not know.
std::string DtypeName(at::ScalarType dtype);

/// "F32, BF16, ...": for error messages.
std::string KnownDtypes();

}  // namespace shardproof
