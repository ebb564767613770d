// Two tensors of numbers side by side: how far they are apart, and where they are too far.
#pragma once

#include <vector>

#include "verify/compare/checkpoint.h"
#include "verify/maps/view.h"

namespace shardproof::compare {

using maps::Number;

/// A view's elements with what each may have been rounded from: of stored floats, half a step.
Reader OpenNumbers(const Inputs& inputs, const maps::View& view);

/// The error as a part of what is allowed; infinite where one alone is NaN, or where they differ
/// and one of them or of their bounds is not finite.
double PartOfBound(const Number& a, const Number& b);

/// Whether two are the same but for the roundings of a few operations in F32.
bool AreSame(const Number& a, const Number& b);

/// Some of the elements of a kind, evenly spread over those that there are.
class Spread {
 public:
  void Add(uint64_t index);
  const std::vector<uint64_t>& indices() const { return kept_; }

 private:
  std::vector<uint64_t> kept_;
  uint64_t seen_ = 0;
  uint64_t every_ = 1;
};

struct NumberPair {
  uint64_t elements = 0;
  uint64_t beyond = 0;
  uint64_t unlike = 0;  ///< elements that are not the same, within their bound or not
  double worst = 0;
  uint64_t worst_index = 0;
  Number worst_a;
  Number worst_b;
  bool is_far = false;  ///< the error of a stretch has more energy than the stretch itself
  Spread beyond_at;
  Spread unlike_at;
};

/// \error kBadInput if a file ends early.
Result<NumberPair> Hold(TensorReader& a, TensorReader& b);

/// How many of these elements are within their bound, or the same, and how far the others are.
struct Fit {
  uint64_t within = 0;
  uint64_t same = 0;
  double energy = 0;  ///< of the errors, each as a part of its bound
  double errors = 0;  ///< the sum of their squares
  double values = 0;  ///< and that of B's numbers and A's, whichever is less
};
Result<Fit> FitOf(TensorReader& a, TensorReader& b, const std::vector<uint64_t>& at);

}  // namespace shardproof::compare
