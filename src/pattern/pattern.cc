#include "src/pattern/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <cctype>

namespace shardproof {
namespace {

constexpr size_t kTextMax = 1 << 14;
constexpr uint32_t kStepsMax = 1 << 15;  // an honest pattern takes some dozens
constexpr uint32_t kGroupsMax = 100;     // the more, the longer takes each step

std::string Reason(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

/// Python's text as PCRE2 reads it in the same way: `{,n}` is a number of times in Python.
/// \error kBadInput for what Python does not take, or takes for something else.
Result<std::string> Translated(const std::string& text) {
  constexpr std::string_view kEscapes = "abBdDfnrsStvwWxZ0123456789";
  std::string out;
  bool in_class = false;
  size_t class_at = 0;  // in `out`
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i);
    const auto refuse = [&] {
      return BadInput(fmt::format("no pattern of Python's after {} characters", i));
    };
    if (text[i] == '\\') {
      const auto next = static_cast<unsigned char>(rest.size() > 1 ? rest[1] : 0);
      if (std::isalnum(next) && kEscapes.find(rest[1]) == std::string_view::npos) return refuse();
      out += rest.substr(0, 2);
      ++i;
      continue;
    }
    if (in_class) {
      const bool is_first =
          out.size() == class_at + 1 || (out.size() == class_at + 2 && out.back() == '^');
      in_class = text[i] != ']' || is_first;
      if (rest.starts_with("[:")) return refuse();
    } else if (text[i] == '[') {
      in_class = true;
      class_at = out.size();
      if (rest.starts_with("[[:")) return refuse();
    } else if (rest.starts_with("(*")) {
      return refuse();
    } else if (rest.starts_with("(?")) {
      const std::string_view kind = rest.substr(2);
      bool known = rest.starts_with("(?i)") && i == 0;
      for (const char* one : {":", "=", "!", ">", "#", "P<", "P=", "<=", "<!", "("}) {
        known = known || kind.starts_with(one);
      }
      if (!known) return refuse();
    } else if (rest.starts_with("{,")) {
      const size_t end = rest.find_first_not_of("0123456789", 2);
      const bool counts = end != std::string_view::npos && rest[end] == '}';
      out += counts ? "{0" : "{";
      continue;
    }
    out += text[i];
  }
  return out;
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
    return BadInput(
        fmt::format("a pattern of {} characters: expected at most {}", text.size(), kTextMax));
  }
  int error = 0;
  PCRE2_SIZE at = 0;
  SP_ASSIGN(const std::string translated, Translated(text));
  auto compiled = std::make_shared<Compiled>();
  compiled->code = pcre2_compile(Units(translated), translated.size(),
                                 PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &at, nullptr);
  if (compiled->code == nullptr) {
    return BadInput(fmt::format("no pattern: {} after {} characters", Reason(error), at));
  }
  uint32_t groups = 0;
  pcre2_pattern_info(compiled->code, PCRE2_INFO_CAPTURECOUNT, &groups);
  if (groups > kGroupsMax) {
    return BadInput(fmt::format("a pattern of {} groups: expected at most {}", groups, kGroupsMax));
  }
  compiled->limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(compiled->limits, kStepsMax);
  pcre2_set_depth_limit(compiled->limits, kStepsMax);
  return Pattern(std::move(compiled));
}

Result<bool> Pattern::Fits(std::string_view name) const {
  pcre2_match_data* data = pcre2_match_data_create_from_pattern(compiled_->code, nullptr);
  const int found =
      pcre2_match(compiled_->code, Units(name), name.size(), 0, 0, data, compiled_->limits);
  pcre2_match_data_free(data);
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  return BadInput(
      fmt::format("a pattern that cannot be held against '{}': {}", name, Reason(found)));
}

}  // namespace shardproof
