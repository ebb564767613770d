#include "verify/verdict/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof {

bool RefusalsToJudge(const Evidence& evidence, Judgement& judgement) {
  if (!IsReference(evidence)) {
    judgement.Skipped("a subject raises what it likes: how it ends is judged, not why");
    return false;
  }
  if (std::any_of(evidence.phases.begin(), evidence.phases.end(), WasStruck)) {
    judgement.Skipped("a fault struck: what it damaged must be refused");
    return false;
  }
  return true;
}

std::string WithoutFinder(const std::string& message) {
  constexpr std::string_view kBefore = "rank ";
  if (!message.starts_with(kBefore)) return message;
  const size_t end = message.find_first_not_of("0123456789", kBefore.size());
  if (end == std::string::npos || message.compare(end, 2, ": ") != 0) return message;
  return message.substr(end + 2);
}

std::string TensorNamedIn(const CheckpointRecord& record, const std::string& message) {
  std::string named;
  size_t first = std::string::npos;
  const auto look_for = [&](const std::string& key, const std::string& tensor) {
    const size_t at = message.find(fmt::format("'{}'", key));
    if (at >= first) return;
    first = at;
    named = tensor;
  };
  for (const auto& [name, tensor] : record.tensors) {
    look_for(name, name);
    for (const std::string& key : tensor.keys) look_for(key, name);
  }
  return named;
}

std::string FileNamedIn(const CheckpointRecord& record, const std::string& message) {
  const auto names = [&](const std::string& file) {
    return message.find("/" + file) != std::string::npos ||
           message.find("'" + file + "'") != std::string::npos;
  };
  for (const auto& [name, form] : record.files) {
    if (names(name)) return name;
  }
  if (names("config.json")) return "config.json";
  constexpr const char* kIndex = "model.safetensors.index.json";
  return record.indexed && names(kIndex) ? kIndex : "";
}

std::string FoundThere(const CheckpointRecord& record, const std::string& tensor) {
  if (tensor.empty()) return "the verifier's own reader reads all of it";
  const FileTensor& held = record.tensors.at(tensor);
  return fmt::format("the verifier's own reader finds {} {} there", held.dtype,
                     ShapeText(held.shape));
}

}  // namespace shardproof
