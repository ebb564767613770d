// A map held against the tensors of two checkpoints: which view of A must be which view of B.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/maps/language.h"
#include "verify/maps/view.h"

namespace shardproof::maps {

/// One of the two checkpoints.
struct Side {
  std::string name;                                   ///< "A" or "B", for messages
  const std::vector<formats::StoredTensor>& tensors;  ///< sorted by name; they outlive the views
  /// What a name stands for, where that is more than the tensor as it is stored; or null.
  std::function<Result<ViewPtr>(const formats::StoredTensor&)> view = nullptr;
  /// What is no tensor: a rule may rename it alone. Null: none.
  const std::vector<formats::StoredValue>* values = nullptr;

  const formats::StoredTensor* Find(const std::string& tensor) const;
};

/// A whole number of config.json by the path to it, "text_config.hidden_size".
using ConfigField = std::function<Result<int64_t>(const std::string&)>;

/// Two views that must be equal.
struct Held {
  ViewPtr a;
  ViewPtr b;
  std::string source;  ///< what of A it is, as the rule has it, with the captures filled in;
                       ///< empty: no rule names them, their names agree
  bool again = false;  ///< the rule holds the same of A against another view of B, too
};

/// Elements of a tensor that rules name, and that no rule holds against anything.
struct Gap {
  std::string side;
  std::string tensor;
  uint64_t missing = 0;  ///< elements
  uint64_t elements = 0;
  uint64_t first = 0;  ///< row-major index of the first of them
};

struct Applied {
  std::vector<Held> held;
  std::vector<std::string> only_in_a;  ///< sorted
  std::vector<std::string> only_in_b;
  /// Of only_in_a, sorted: a rule joins them with tensors that A lacks, and B has what it makes.
  std::vector<std::string> incomplete_a;
  /// Of names that are only in one, a line for each rule and captures: which name is missing.
  std::vector<std::string> lacking;
  std::vector<Gap> gaps;
  uint64_t left_out_a = 0;  ///< elements that the map says are held against nothing
  uint64_t left_out_b = 0;
};

/// Tensors that no rule names are held against those of the same name. A rule with {x*} takes only
/// what no other rule names.
/// \error kBadInput, one line with the rule's: it matches nothing, or takes elements that another
/// takes; its captures or sizes contradict each other or the shapes.
Result<Applied> Apply(const Map& map, const Side& a, const Side& b, const ConfigField& config);

/// The name that a value, which is no tensor, has in B: rules that only rename apply to it.
std::string RenamedValue(const Map& map, const std::string& name);

}  // namespace shardproof::maps
