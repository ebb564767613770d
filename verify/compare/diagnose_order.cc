// The ways in which a conversion puts the right parts together wrongly.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "verify/compare/diagnose.h"
#include "verify/compare/streams.h"
#include "verify/oracle/quote.h"

namespace shardproof::compare {
namespace {

using maps::View;
using maps::ViewPtr;

// Each order costs little: two tensors that differ mostly do so at once.
constexpr size_t kPartsMax = 4;
constexpr int64_t kGroupsMax = 256;

/// What was put together: by groups, or one part behind the other.
struct Joined {
  std::vector<ViewPtr> parts;
  size_t dim = 0;
  int64_t groups = 1;
};

/// The join that a layer of a stack is; null if it is none.
const View* JoinIn(const View& layer) {
  if (layer.kind != View::Kind::kReshape) return nullptr;
  const View& inner = *layer.parts[0];
  const bool is_layer = layer.shape[0] == 1 && layer.shape.size() == inner.shape.size() + 1;
  return is_layer && inner.kind == View::Kind::kJoin ? &inner : nullptr;
}

/// Of a stack of joins, such as experts of gate and up: the stacks of their first parts, of their
/// second ones, and so on. No parts: it is something else.
Result<Joined> JoinedInStack(const View& stack) {
  const View* first = JoinIn(*stack.parts[0]);
  if (first == nullptr || stack.dim != 0) return Joined{};
  Joined joined{{}, first->dim + 1, 1};
  for (size_t i = 0; i < first->parts.size(); ++i) {
    std::vector<ViewPtr> layers;
    for (const ViewPtr& layer : stack.parts) {
      const View* join = JoinIn(*layer);
      const bool is_alike =
          join != nullptr && join->dim == first->dim && join->parts.size() == first->parts.size();
      if (!is_alike) return Joined{};
      layers.push_back(join->parts[i]);
    }
    SP_ASSIGN(ViewPtr part, maps::Stack(layers, 0));
    joined.parts.push_back(std::move(part));
  }
  return joined;
}

Result<Joined> JoinedOf(const View& view) {
  if (view.kind == View::Kind::kJoin) {
    SP_ASSIGN(Joined joined, JoinedInStack(view));
    return joined.parts.empty() ? Joined{view.parts, view.dim, 1} : std::move(joined);
  }
  const bool grouped = view.kind == View::Kind::kReshape &&
                       view.parts[0]->kind == View::Kind::kJoin && view.parts[0]->dim > 0 &&
                       view.parts[0]->shape.size() == view.shape.size() + 1;
  if (!grouped) return Joined{};
  const View& join = *view.parts[0];
  Joined joined{{}, join.dim - 1, join.shape[join.dim - 1]};
  for (const ViewPtr& part : join.parts) {
    std::vector<int64_t> shape = part->shape;
    shape[joined.dim] *= shape[joined.dim + 1];
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(joined.dim) + 1);
    SP_ASSIGN(ViewPtr whole, maps::Reshape(part, std::move(shape)));
    joined.parts.push_back(std::move(whole));
  }
  return joined;
}

std::string FirstName(const View& view) { return oracle::Printable(NameOf(view)); }

std::string ListOf(const std::vector<ViewPtr>& parts) {
  std::vector<std::string> names;
  for (const ViewPtr& part : parts) names.push_back(FirstName(*part));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<std::string> DiagnoseMapped(const Inputs& inputs, const maps::Held& held,
                                   const std::vector<maps::Held>& all) {
  SP_ASSIGN(const bool is_one_value, BeginsWithOneValue(inputs, *held.b));
  if (is_one_value) return std::string();
  for (const maps::Held& other : all) {
    const bool may_be = &other != &held && !other.a->Computes() && !other.b->Computes() &&
                        other.a->dtype == held.b->dtype;
    if (!may_be) continue;
    if (other.a->shape != held.b->shape) continue;
    SP_ASSIGN(const bool is_its, AreEqual(*inputs.Open(*other.a), *inputs.Open(*held.b)));
    if (is_its)
      return fmt::format("B has the values of {}, of A's {}", FirstName(*other.b),
                         FirstName(*other.a));
  }
  return std::string();
}

Result<std::string> DiagnoseOrder(const maps::Held& held, const IsB& is_b) {
  const auto fits = [&](const Result<ViewPtr>& view) -> Result<bool> {
    if (!view.ok() || view.value()->shape != held.b->shape) return false;
    return is_b(*view.value());
  };
  SP_ASSIGN(const Joined joined, JoinedOf(*held.a));
  const size_t count = joined.parts.size();
  if (count < 2 || count > kPartsMax) return std::string();
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  do {
    std::vector<ViewPtr> parts;
    for (const size_t part : order) parts.push_back(joined.parts[part]);
    const bool same_order = std::is_sorted(order.begin(), order.end());
    const std::string what = same_order ? "the parts" : "the parts in the order " + ListOf(parts);
    SP_ASSIGN(const bool apart, fits(maps::Join(parts, joined.dim)));
    if (apart) {
      return fmt::format("B has {}{}", what,
                         joined.groups > 1 ? ", one behind the other and not by groups" : "");
    }
    for (int64_t groups = 2; groups <= kGroupsMax; ++groups) {
      SP_ASSIGN(const bool grouped, fits(maps::Interleave(parts, joined.dim, groups)));
      if (grouped) return fmt::format("B has {} in {} groups", what, groups);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return std::string();
}

}  // namespace shardproof::compare
