// Why two tensors differ, when the answer takes more than their two images side by side.
#pragma once

#include <functional>
#include <string>

#include "src/core/result.h"
#include "verify/compare/checkpoint.h"
#include "verify/maps/apply.h"

namespace shardproof::compare {

/// The name of a tensor among those of a checkpoint, other than `own`, that has exactly the values
/// that the view has; empty if there is none or the view is one value over and over.
/// \error kBadInput on a short read.
Result<std::string> FindSameValues(const Inputs& inputs, const Checkpoint& among,
                                   const maps::View& view, const std::string& own);

/// Whether a view begins with one value over and over, as many tensors do.
Result<bool> BeginsWithOneValue(const Inputs& inputs, const maps::View& view);

/// Explains a difference whose first element is `first`, from the tensors or, where they are large,
/// from the stretch around it. \error kBadInput on a short read.
Result<std::string> DiagnoseValues(TensorReader& a, TensorReader& b, uint64_t first);

/// Whether B is what a view of A's gives.
using IsB = std::function<Result<bool>(const maps::View& view)>;

/// Whether B has the parts that a map puts together in another order, or joined where they should
/// be interleaved; else empty. \error kBadInput on a short read.
Result<std::string> DiagnoseOrder(const maps::Held& held, const IsB& is_b);

/// Whether B has what the map makes for another of B's tensors; else empty. \pre neither is
/// computed. \param all  what is compared.
Result<std::string> DiagnoseMapped(const Inputs& inputs, const maps::Held& held,
                                   const std::vector<maps::Held>& all);

/// Whether B is what the map computes, but for the adapter, the scale or its direction; else empty.
/// \pre A's view computes. \param all  what is compared.
Result<std::string> DiagnoseStep(const Inputs& inputs, const maps::Held& held,
                                 const std::vector<maps::Held>& all);

/// Explains a shape that differs, or returns an empty string.
Result<std::string> DiagnoseShape(const Inputs& inputs, const maps::ViewPtr& a,
                                  const maps::ViewPtr& b);

}  // namespace shardproof::compare
