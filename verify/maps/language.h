// The language of maps: how the tensors of a checkpoint A become those of a checkpoint B. README.md
// describes it for people.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/maps/name_pattern.h"

namespace shardproof::maps {

/// A whole number that a rule states: 8, f, {e}, config.num_attention_heads, 2 * f.
struct Size {
  enum class Kind { kNumber, kVariable, kCapture, kConfig, kOperation };
  Kind kind = Kind::kNumber;
  int64_t number = 0;
  std::string name;  ///< of a variable, a capture or a field: "text_config.hidden_size"
  char operation = ' ';
  std::vector<Size> operands;  ///< two of an operation
};

/// One of the parts between commas in w[...]. Without `range`, an index, which takes the dim away.
struct Slice {
  bool range = false;
  std::optional<Size> low;  ///< the index, if no range
  std::optional<Size> high;
};

/// What stands behind NAME= in a call.
struct Option {
  std::vector<Size> sizes;
  std::optional<double> number;
  std::string word;  ///< as it was written
};

/// A tensor, as a rule describes it.
struct Expression {
  enum class Kind { kName, kNumber, kSizes, kCall, kSlice, kArithmetic };
  Kind kind = Kind::kName;
  NamePattern name;
  double number = 0;
  std::vector<Size> sizes;  ///< of [2, -1], an argument
  std::string function;
  std::vector<Expression> arguments;  ///< of a call and of arithmetic; what is sliced
  std::map<std::string, Option> options;
  std::vector<Slice> slices;
  char operation = ' ';
};

/// `left -> right`. Several expressions on a side, joined by &, are each held to be the other side;
/// none: `_`, what is on the other side is left out.
struct Rule {
  std::string where;      ///< "FILE: line 3", for messages
  std::string text;       ///< as it was written
  bool optional = false;  ///< begins with a ?: it may match nothing
  std::vector<Expression> left;
  std::vector<Expression> right;
};

struct Definition {
  std::string where;
  std::string name;
  Size value;
};

struct Map {
  std::vector<Definition> definitions;
  std::vector<Rule> rules;
};

/// \param where  the file, or "--map", for messages. \error kBadInput, one line, with the line's
/// number and what was expected.
Result<Map> ParseMap(const std::string& where, const std::string& text);

/// The rules of files, and rules as they stand on a command line: what has an arrow is a rule.
/// \error kBadInput if a file cannot be read, or one of them cannot be parsed.
Result<Map> ReadMaps(const std::vector<std::string>& words);

/// A name as a map has it: in quotes where it needs them.
std::string NameText(const std::string& name);

}  // namespace shardproof::maps
