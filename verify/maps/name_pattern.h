// Names of tensors with captures: layers.{l}.mlp.{part}.weight.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace shardproof::maps {

/// What the captures of a name stand for.
using Captures = std::map<std::string, std::string>;

/// {x} stands for some text without a dot, {x*} for any text, also with dots; neither is empty. One
/// that stands twice is the same text twice.
class NamePattern {
 public:
  struct Piece {
    bool captures = false;
    bool any = false;  ///< {x*}
    std::string text;  ///< the capture's name, or what stands there
  };

  NamePattern() = default;
  explicit NamePattern(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}

  /// What its captures are in this name; nullopt if the name is another.
  std::optional<Captures> Match(const std::string& name) const;

  /// The name with these captures. \pre it has all of them.
  std::string Fill(const Captures& captures) const;

  std::set<std::string> Names() const;
  bool IsGeneral() const;  ///< has a {x*}
  std::string Text() const;

 private:
  std::vector<Piece> pieces_;
};

}  // namespace shardproof::maps
