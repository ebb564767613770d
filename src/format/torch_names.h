// Dtypes by the names that pickles of torch.save have.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace shardproof {

/// "float32" of `torch.float32`; empty of a dtype that checkpoints do not have.
std::string_view TorchDtypeName(at::ScalarType dtype);

/// "FloatStorage" of `torch.FloatStorage`; empty of younger dtypes, whose tensors are views of
/// bytes.
std::string_view TorchStorageName(at::ScalarType dtype);

/// By "torch.float32" or by "torch.FloatStorage"; nothing if there is none of that name.
std::optional<at::ScalarType> DtypeFromTorchName(std::string_view name);

}  // namespace shardproof
