// Writes one safetensors file, streaming: memory stays at one piece whatever the tensors' size.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/oracle/dtype.h"

namespace shardproof::oracle {

/// A tensor to write. `fill(start, count, out)` puts elements [start, start + count) of the
/// row-major order at `out`.
struct PlannedTensor {
  std::string name;
  const DtypeInfo* dtype = nullptr;
  std::vector<int64_t> shape;
  std::function<void(uint64_t start, uint64_t count, char* out)> fill;
};

/// None if they are more than can be counted.
std::optional<uint64_t> BytesOf(const PlannedTensor& tensor);

/// A tensor whose bytes are at hand. `bytes` must be as long as dtype and shape say.
PlannedTensor PlannedBytes(std::string name, const std::string& dtype, std::vector<int64_t> shape,
                           std::string bytes);

/// A JSON string literal of `text`.
std::string JsonString(const std::string& text);

/// Writes the tensors in the given order, with metadata {"format": "pt"}.
/// \param form  chooses what the format leaves open, as other writers have it: the order of keys,
///   spaces, escapes, further metadata, where the data begins; none: as the format's own library.
/// \error kBadInput if a size overflows; kFailed if the file cannot be written.
Status WriteSafetensors(const std::string& path, const std::vector<PlannedTensor>& tensors,
                        std::optional<uint64_t> form = std::nullopt);

/// Writes a small file whole. \error kFailed.
Status WriteTextFile(const std::string& path, const std::string& text);

}  // namespace shardproof::oracle
