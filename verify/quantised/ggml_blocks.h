// The types of blocks of ggml, which files of GGUF hold: codes and scales in one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/maps/view.h"

namespace shardproof::quantised {

struct BlockType {
  const char* name;
  uint64_t elements;  ///< of a block
  uint64_t bytes;     ///< likewise
  /// Whether its usual writers search for scales that do not fit the largest numbers.
  bool is_searched;
  void (*decode)(const uint8_t* block, maps::Number* out);
};

/// Null: not known.
const BlockType* FindBlockType(const std::string& name);

/// \param blocks  bytes, [..., bytes of a row]. \param shape  of the numbers.
maps::Reader ReadBlocks(maps::Reader blocks, const BlockType& type, std::vector<int64_t> shape);

}  // namespace shardproof::quantised
