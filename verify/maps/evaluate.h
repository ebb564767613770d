// What an expression of a map comes to on one side, once its captures are known.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/core/result.h"
#include "verify/maps/apply.h"

namespace shardproof::maps {

/// What the sizes in a map are.
struct Sizes {
  std::map<std::string, int64_t> variables;  ///< those that the map defines
  /// Those that follow from shapes: by the tensor that is cut and the variable.
  std::map<std::pair<std::string, std::string>, int64_t> found;
  const ConfigField& config;

  /// \param tensor  that is cut, if it is one. \error kBadInput: unknown, no number, out of range.
  Result<int64_t> Value(const Size& size, const Captures& captures,
                        const std::string& tensor = "") const;
};

/// Calls visit(pattern) for each name of a tensor in the expression.
void ForEachName(const Expression& expression,
                 const std::function<void(const NamePattern&)>& visit);

/// The captures of an expression, in names and in sizes.
std::set<std::string> CapturesIn(const Expression& expression);

class Evaluator {
 public:
  Evaluator(const Side& side, const Sizes& sizes) : side_(side), sizes_(sizes) {}

  /// The names of the tensors that it takes, those there are and those that are missing.
  struct Named {
    std::vector<std::string> there;
    std::vector<std::string> missing;
  };
  /// \error kBadInput: a capture that is neither known nor gathered by a stack or cat.
  Result<Named> NamesIn(const Expression& expression, const Captures& captures);

  /// \param other  the other side of the rule, for pads that state no size; or null.
  /// \pre no name is missing. \error kBadInput: what does not fit, with the function's name.
  Result<ViewPtr> View(const Expression& expression, const Captures& captures,
                       const ViewPtr& other);

 private:
  Result<ViewPtr> Tensor(const std::string& name) const;
  Result<ViewPtr> Sliced(const Expression& expression, const Captures& captures,
                         const ViewPtr& other);
  Result<ViewPtr> Called(const Expression& call, const Captures& captures, const ViewPtr& other);
  Result<ViewPtr> Padded(const Expression& call, const ViewPtr& part, const Captures& captures,
                         const ViewPtr& other);
  Result<ViewPtr> Turned(const Expression& call, const ViewPtr& part, const Captures& captures);
  Result<std::vector<ViewPtr>> Parts(const Expression& call, const Captures& captures,
                                     const ViewPtr& other);
  Result<int64_t> SizeOption(const Expression& call, const std::string& option, int64_t otherwise,
                             const Captures& captures) const;
  Result<std::vector<int64_t>> SizeList(const std::vector<Size>& sizes,
                                        const Captures& captures) const;
  Status AddNames(const Expression& expression, const Captures& captures, Named& named);
  /// Each set of captures with the gathered one in it. Empty: the expression gathers none.
  Result<std::vector<Captures>> Gathered(const Expression& call, const Captures& captures);
  const std::vector<Captures>& Matches(const NamePattern& pattern);

  const Side& side_;
  const Sizes& sizes_;
  std::map<std::string, std::vector<Captures>> matches_;  ///< by the pattern's text
};

}  // namespace shardproof::maps
