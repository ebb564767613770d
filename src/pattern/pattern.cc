#include "src/pattern/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

namespace shardproof {
namespace {

constexpr size_t kTextMax = 1 << 14;
constexpr uint32_t kStepsMax = 1 << 20;  // milliseconds; an honest pattern takes some dozens

std::string Reason(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR Units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Pattern::Compiled {
  ~Compiled() {
    pcre2_code_free(code);
    pcre2_match_context_free(limits);
  }

  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
};

Result<Pattern> Pattern::Of(const std::string& text) {
  if (text.size() > kTextMax) {
    return BadInput(fmt::format("a pattern of {} characters: expected at most {}", text.size(), kTextMax));
  }
  int error = 0;
  PCRE2_SIZE at = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code = pcre2_compile(Units(text), text.size(), PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error,
                                 &at, nullptr);
  if (compiled->code == nullptr) {
    return BadInput(fmt::format("no pattern: {} after {} characters", Reason(error), at));
  }
  compiled->limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(compiled->limits, kStepsMax);
  pcre2_set_depth_limit(compiled->limits, kStepsMax);
  return Pattern(std::move(compiled));
}

Result<bool> Pattern::Fits(std::string_view name) const {
  pcre2_match_data* data = pcre2_match_data_create_from_pattern(compiled_->code, nullptr);
  const int found = pcre2_match(compiled_->code, Units(name), name.size(), 0, 0, data, compiled_->limits);
  pcre2_match_data_free(data);
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  return BadInput(fmt::format("a pattern that cannot be held against '{}': {}", name, Reason(found)));
}

}  // namespace shardproof
