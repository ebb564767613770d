// Collectives in words, for errors: what is done, and which tensors travel.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/seam/communicator.h"

namespace shardproof {

/// "w, b and 3 more": each once, though it may travel in many pieces, one after another.
inline std::string Contents(std::vector<std::string> tensors) {
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  std::string text;
  for (size_t i = 0; i < tensors.size() && i < 2; ++i) text += (i ? ", " : "") + tensors[i];
  if (tensors.size() > 2) text += fmt::format(" and {} more", tensors.size() - 2);
  return text;
}

inline std::vector<std::string> NamesOf(const std::vector<Piece>& pieces) {
  std::vector<std::string> tensors;
  for (const Piece& piece : pieces) tensors.push_back(piece.tensor);
  return tensors;
}

inline std::string BroadcastText(int64_t root, const std::vector<Piece>& pieces) {
  return fmt::format("broadcast from rank {} of {}", root, Contents(NamesOf(pieces)));
}

inline std::string ScatterText(int64_t root, const std::vector<std::string>& tensors) {
  return fmt::format("scatter from rank {} of {}", root, Contents(tensors));
}

}  // namespace shardproof
