// Regular expressions as Python's `re.fullmatch` takes them: configs of Python libraries hold them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "src/core/result.h"

namespace shardproof {

class Pattern {
 public:
  /// \error kBadInput: what is wrong with it, and after how many characters.
  /// \source PCRE2, whose syntax has all of Python's that names of modules need.
  static Result<Pattern> Of(const std::string& text);

  /// Whether it fits all of `name`.
  /// \error kBadInput if finding out takes too many steps, as of `(a*)*b`.
  Result<bool> Fits(std::string_view name) const;

 private:
  struct Compiled;
  explicit Pattern(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}

  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace shardproof
