#include "verify/compare/like.h"

#include <fmt/format.h>

#include "verify/compare/checkpoint.h"
#include "verify/maps/apply.h"
#include "verify/maps/model_config.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

using oracle::Quote;

std::string KindOf(const maps::View& view) {
  const std::string shape = maps::ShapeText(view.shape);
  return view.Computes() ? shape : fmt::format("{} {}", view.dtype->name, shape);
}

/// What a computed tensor is rounded to is not said.
bool Alike(const maps::View& a, const maps::View& b) {
  return a.shape == b.shape && (a.dtype == b.dtype || a.Computes() || b.Computes());
}

}  // namespace

Result<std::vector<std::string>> UnlikeLines(const std::string& reference, const std::string& path,
                                             const std::vector<std::string>& words) {
  SP_ASSIGN(const maps::Map map, maps::ReadMaps(words));
  SP_ASSIGN(const compare::Checkpoint a, compare::Checkpoint::Open(reference));
  SP_ASSIGN(const compare::Checkpoint b, compare::Checkpoint::Open(path));
  SP_ASSIGN(const maps::Applied applied, maps::Apply(map, {"A", a.tensors(), nullptr, &a.values()},
                                                     {"B", b.tensors(), nullptr, &b.values()},
                                                     maps::ConfigOf({reference, path})));
  std::vector<std::string> lines;
  for (const maps::Held& held : applied.held) {
    if (Alike(*held.a, *held.b)) continue;
    std::string name;
    maps::ForEachStored(*held.b, [&](const maps::View& box) {
      if (name.empty()) name = box.stored->name;
    });
    lines.push_back(fmt::format("tensor {}: expected {} as in {}{}, found {}", Quote(name),
                                KindOf(*held.a), oracle::Printable(reference),
                                held.source.empty() ? "" : " (" + held.source + ")",
                                KindOf(*held.b)));
  }
  for (const std::string& name : applied.only_in_a) {
    lines.push_back(fmt::format("tensor {}: expected as in {}, found none", Quote(name),
                                oracle::Printable(reference)));
  }
  for (const std::string& name : applied.only_in_b) {
    lines.push_back(fmt::format("tensor {}: expected none, since {} has none", Quote(name),
                                oracle::Printable(reference)));
  }
  for (const maps::Gap& gap : applied.gaps) {
    lines.push_back(
        fmt::format("tensor {}: no rule of the map covers {} of {}'s {} elements, the "
                    "first is element {}",
                    Quote(gap.tensor), gap.missing, gap.side, gap.elements, gap.first));
  }
  return lines;
}

}  // namespace shardproof
