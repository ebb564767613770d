#include "verify/compare/name_template.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardproof::compare {

Template TemplateOf(const std::string& name) {
  Template made;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    if (number) made.numbers.push_back(part);
    made.text += begin > 0 ? "." : "";
    made.text += number ? fmt::format("{{n{}}}", made.numbers.size()) : part;
    begin = end + 1;
  }
  return made;
}

}  // namespace shardproof::compare
