// Names that are alike but for their numbers.
#pragma once

#include <string>
#include <vector>

namespace shardproof::compare {

/// The name with its numbers as captures, {n1}, {n2}, and these numbers.
struct Template {
  std::string text;
  std::vector<std::string> numbers;
};

/// A number is a component of the name, between dots, that is digits alone.
Template TemplateOf(const std::string& name);

}  // namespace shardproof::compare
