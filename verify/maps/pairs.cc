#include "verify/maps/pairs.h"

#include <algorithm>

namespace shardproof::maps {
namespace {

using ViewKind = View::Kind;

constexpr size_t kPairsMax = 1 << 22;

Error Uncut(const View& view) {
  return {ErrorCode::kUnsupported,
          "the reshape to " + ShapeText(view.shape) + " cuts through tensors that were joined"};
}

/// The same view as the join of equal parts along `dim`, each a part of its own.
Result<ViewPtr> InParts(const ViewPtr& view, size_t dim, int64_t count) {
  const int64_t size = view->shape[dim] / count;
  std::vector<ViewPtr> parts;
  for (int64_t i = 0; i < count; ++i) {
    SP_ASSIGN(ViewPtr part, Narrow(view, dim, i * size, size));
    parts.push_back(std::move(part));
  }
  return Join(std::move(parts), dim);
}

/// A join that was reshaped, as a join of tensors that were. \param view  the reshape of `join`.
Result<ViewPtr> ReshapedParts(const ViewPtr& view, const View& join) {
  const std::vector<int64_t>& shape = view->shape;
  const int64_t before = Extent(join.shape, 0, join.dim);
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const int64_t rows = before * Extent(shape, dim + 1, shape.size());
    const bool divides = std::all_of(join.parts.begin(), join.parts.end(), [&](const auto& part) {
      return rows > 0 && static_cast<int64_t>(part->Elements()) % rows == 0;
    });
    if (Extent(shape, 0, dim) != before || !divides) continue;
    std::vector<ViewPtr> parts;
    for (const ViewPtr& part : join.parts) {
      std::vector<int64_t> own = shape;
      own[dim] = static_cast<int64_t>(part->Elements()) / rows;
      SP_ASSIGN(ViewPtr reshaped, Reshape(part, std::move(own)));
      parts.push_back(std::move(reshaped));
    }
    return Join(std::move(parts), dim);
  }
  // What was interleaved: one group of rows after the other.
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const int64_t outer = Extent(shape, 0, dim);
    const int64_t groups = outer > 0 && before % outer == 0 ? before / outer : 1;
    if (groups > 1 && shape[dim] % groups == 0) return InParts(view, dim, groups);
  }
  return Uncut(*view);
}

/// The same view with a join at its top; null if nothing was joined in it.
Result<ViewPtr> JoinOnTop(const ViewPtr& view) {
  if (view->kind == ViewKind::kJoin) return view;
  if (view->kind == ViewKind::kStored || view->kind == ViewKind::kFill) return ViewPtr();
  const bool keeps = view->kind == ViewKind::kPermute || view->kind == ViewKind::kReshape ||
                     view->kind == ViewKind::kBits;
  if (!keeps) {
    return Error{ErrorCode::kUnsupported, "the map computes values, which need A's bytes"};
  }
  SP_ASSIGN(const ViewPtr join, JoinOnTop(view->parts[0]));
  if (!join) return join;
  if (view->kind == ViewKind::kReshape) {
    SP_ASSIGN(const ViewPtr reshaped, Reshape(join, view->shape));
    if (reshaped->kind == ViewKind::kJoin) return reshaped;
    return ReshapedParts(reshaped, *join);
  }
  size_t dim = join->dim;
  std::vector<ViewPtr> parts;
  for (const ViewPtr& part : join->parts) {
    ViewPtr turned;
    if (view->kind == ViewKind::kPermute) {
      SP_ASSIGN(turned, Permute(part, view->order));
    } else {
      SP_ASSIGN(turned, BitsAs(part, std::string(view->dtype->name)));
    }
    parts.push_back(std::move(turned));
  }
  if (view->kind == ViewKind::kPermute) {
    const auto& order = view->order;
    dim = static_cast<size_t>(std::find(order.begin(), order.end(), dim) - order.begin());
  }
  return Join(std::move(parts), dim);
}

/// The view's own box, and the steps that lead from it to the view.
Box BoxOf(const View& view, std::vector<Step>& steps) {
  if (view.kind == ViewKind::kStored) return {view.stored, view.offsets, view.shape, {}};
  if (view.kind == ViewKind::kFill) return {nullptr, {}, view.shape, view.fill};
  Box box = BoxOf(*view.parts[0], steps);
  if (view.kind == ViewKind::kReshape) {
    steps.push_back({Step::Kind::kReshape, view.shape});
  } else if (view.kind == ViewKind::kPermute) {
    steps.push_back({Step::Kind::kPermute, {view.order.begin(), view.order.end()}});
  } else {
    steps.push_back({Step::Kind::kBits, {}, std::string(view.dtype->name)});
  }
  return box;
}

/// The steps that lead from the view to its own box.
void AddBack(const View& view, std::vector<Step>& steps) {
  if (view.parts.empty()) return;
  const View& part = *view.parts[0];
  if (view.kind == ViewKind::kReshape) {
    steps.push_back({Step::Kind::kReshape, part.shape});
  } else if (view.kind == ViewKind::kPermute) {
    std::vector<int64_t> back(view.order.size());
    for (size_t dim = 0; dim < back.size(); ++dim) {
      back[view.order[dim]] = static_cast<int64_t>(dim);
    }
    steps.push_back({Step::Kind::kPermute, std::move(back)});
  } else {
    steps.push_back({Step::Kind::kBits, {}, std::string(part.dtype->name)});
  }
  AddBack(part, steps);
}

bool Repeats(const View& view) {
  return view.parts.empty() ? view.repeats : Repeats(*view.parts[0]);
}

Status AddPairs(const ViewPtr& a, const ViewPtr& b, bool again, std::vector<Pair>& pairs) {
  for (const bool of_a : {true, false}) {
    SP_ASSIGN(const ViewPtr join, JoinOnTop(of_a ? a : b));
    if (!join) continue;
    int64_t at = 0;
    for (const ViewPtr& part : join->parts) {
      const int64_t size = part->shape[join->dim];
      SP_ASSIGN(const ViewPtr other, Narrow(of_a ? b : a, join->dim, at, size));
      SP_TRY(AddPairs(of_a ? part : other, of_a ? other : part, again, pairs));
      at += size;
    }
    return Ok();
  }
  if (pairs.size() == kPairsMax) {
    return Error{ErrorCode::kUnsupported, "the map cuts a tensor into too many parts"};
  }
  Pair pair;
  pair.b = BoxOf(*b, pair.steps);
  AddBack(*a, pair.steps);
  std::vector<Step> unused;
  pair.a = BoxOf(*a, unused);
  pair.again = again || Repeats(*a);
  pairs.push_back(std::move(pair));
  return Ok();
}

}  // namespace

Result<std::vector<Pair>> PairsOf(const Held& held) {
  std::vector<Pair> pairs;
  SP_TRY(AddPairs(held.a, held.b, held.again, pairs));
  return pairs;
}

}  // namespace shardproof::maps
