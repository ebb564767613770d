// What a map computes, held against what is stored: equal within a bound that follows from the
// roundings on the way.
#pragma once

#include <functional>

#include "verify/compare/streams.h"
#include "verify/maps/view.h"

namespace shardproof::compare {

/// The relative error of a rounding between two steps, if B's dtype is this one: the steps are
/// taken to have been rounded to it, or to F32 where it is narrower than 16 bits or no float.
double UnitOf(const oracle::DtypeInfo& dtype);

/// Two tensors of numbers, piece by piece: visit(index of the first, a's, b's, how many).
using VisitNumbers =
    std::function<void(uint64_t, const maps::Number*, const maps::Number*, uint64_t)>;
Status WalkNumbers(TensorReader& a, TensorReader& b, uint64_t start, uint64_t count,
                   const VisitNumbers& visit);

struct BoundedDifference {
  Difference difference;  ///< `expected` and `seen` are texts
  double worst = 0;       ///< the largest error as a part of its bound
};

/// Counts elements that are further apart than their bound: what the roundings before the last may
/// have made, and half a step of B's dtype for the last. NaN equals NaN. \param count  of the first
/// elements that are looked at; all, if there are no more.
/// \pre of one shape; at least one of them computes. \error kBadInput if a file ends early.
Result<BoundedDifference> CountBeyondBound(TensorReader& a, TensorReader& b,
                                           uint64_t count = UINT64_MAX);

/// Whether B's numbers are the reciprocals of A's, or A's times one factor, throughout the first
/// few; else empty.
Result<std::string> DiagnoseNumbers(TensorReader& a, TensorReader& b);

}  // namespace shardproof::compare
