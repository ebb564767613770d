#include <array>
#include <utility>

#include "src/model/spec.h"

namespace shardproof {
namespace {

constexpr std::array<std::pair<std::string_view, RopeKind>, 7> kKinds = {{
    {"default", RopeKind::kDefault},
    {"linear", RopeKind::kLinear},
    {"dynamic", RopeKind::kDynamic},
    {"yarn", RopeKind::kYarn},
    {"longrope", RopeKind::kLongrope},
    {"llama3", RopeKind::kLlama3},
    {"proportional", RopeKind::kProportional},
}};

}  // namespace

std::optional<RopeKind> RopeKindFromName(std::string_view name) {
  for (const auto& [known, kind] : kKinds) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

std::string KnownRopeKinds() {
  std::string text;
  for (const auto& [name, kind] : kKinds) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace shardproof
