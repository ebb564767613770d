#include "verify/interpose/fiu_command.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>

#include "verify/interpose/rule.h"
#include "verify/interpose/rule_words.h"

namespace shardproof::interpose {
namespace {

using Words = std::map<std::string, std::optional<std::string>>;

constexpr const char* kExpected =
    "expected POINT:error=ERRNO and one of onetime, always, or probability=P,seed=S, such as "
    "posix/io/rw/write:error=ENOSPC,probability=0.1,seed=7";

Result<Words> SplitWords(const std::string& text, size_t begin) {
  Words words;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(',', begin + 1), text.size());
    const std::string word = text.substr(begin + 1, end - begin - 1);
    const size_t equals = word.find('=');
    std::optional<std::string> value;
    if (equals != word.npos) value = word.substr(equals + 1);
    const bool is_new = words.emplace(word.substr(0, equals), value).second;
    if (!is_new) return BadInput(Shown(word.substr(0, equals)) + " is given twice");
    begin = end;
  }
  return words;
}

Status CheckWords(const Words& words) {
  for (const auto& [key, value] : words) {
    const bool is_flag = key == "onetime" || key == "always";
    const bool has_value = key == "error" || key == "probability" || key == "seed";
    if (is_flag ? !value.has_value() : has_value && value.has_value()) continue;
    return BadInput(Shown(key) + ": " + kExpected);
  }
  if (!words.contains("error")) return BadInput(std::string("it has no error: ") + kExpected);
  const size_t kinds = words.count("onetime") + words.count("always") + words.count("probability");
  if (kinds != 1) return BadInput(std::string("it does not say when: ") + kExpected);
  if (words.contains("probability") != words.contains("seed")) {
    return BadInput(std::string("a probability has a seed, or nobody could run it again: ") +
                    kExpected);
  }
  return Ok();
}

/// As it was written, since libfiu reads it itself.
Result<std::string> ParseProbability(const std::string& text) {
  double probability = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] =
      std::from_chars(text.data(), end, probability, std::chars_format::fixed);
  const bool is_number = failure == std::errc() && stop == end;
  if (is_number && probability > 0 && probability < 1) return text;
  return BadInput("the probability " + Shown(text) +
                  ": expected a number between 0 and 1, as 0.25");
}

}  // namespace

Result<FiuCommand> ParseFiuCommand(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string point = text.substr(0, colon);
  if (!IsPoint(point)) return BadInput("the point " + Shown(point) + ": " + kExpected);
  SP_ASSIGN(const Words words, SplitWords(text, colon));
  SP_TRY(CheckWords(words));
  SP_ASSIGN(const int64_t error, ParseError(Family::kPosix, *words.at("error")));
  const std::string what = " name=" + point + ",failinfo=" + std::to_string(error);
  if (words.contains("onetime")) return FiuCommand{point, "enable" + what + ",onetime", ""};
  if (words.contains("always")) return FiuCommand{point, "enable" + what, ""};
  SP_ASSIGN(const std::string probability, ParseProbability(*words.at("probability")));
  SP_ASSIGN(const int64_t seed,
            ParseNumber(*words.at("seed"), 1, std::numeric_limits<int32_t>::max(), "the seed"));
  return FiuCommand{point, "enable_random" + what + ",probability=" + probability,
                    std::to_string(seed)};
}

}  // namespace shardproof::interpose
