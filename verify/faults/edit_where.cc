#include "verify/faults/edit_where.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "verify/fault/fault.h"

namespace shardproof {

Result<EditAndNumber> ParseEdit(const std::string& where, const std::vector<std::string>& known) {
  const size_t colon = where.find(':');
  std::string edit = where.substr(0, colon);
  if (std::find(known.begin(), known.end(), edit) == known.end()) {
    return BadInput(fmt::format("expected EDIT:N with one of {}", fmt::join(known, ", ")));
  }
  const std::string number = colon == std::string::npos ? "" : where.substr(colon + 1);
  SP_ASSIGN(const int64_t n, ParseIndex(number, int64_t{1} << 48, "the number after the edit"));
  return EditAndNumber{std::move(edit), static_cast<uint64_t>(n)};
}

}  // namespace shardproof
