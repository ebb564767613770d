#include "src/model/hf_fields.h"

#include <fmt/format.h>

#include "src/core/strict_json.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr double kPositiveMax = 1e38;  // what an F32 holds

bool IsIntegerFrom(const json& value, double least, int64_t most) {
  return value.is_number_integer() && value.get<double>() >= least &&
         value.get<double>() <= static_cast<double>(most);
}

bool IsPositive(const json& value) {
  return value.is_number() && value.get<double>() > 0 && value.get<double>() <= kPositiveMax;
}

}  // namespace

Error Fields::Missing(const char* name, const std::string& expected) const {
  return BadInput(fmt::format("{}: field '{}' is missing: expected {}", origin_, name, expected));
}

Error Fields::Wrong(const char* name, const std::string& expected) const {
  return BadInput(fmt::format("{}: field '{}' is {}: expected {}", origin_, name,
                              Shown(object_.at(name)), expected));
}

Result<int64_t> Fields::Count(const char* name, std::optional<int64_t> fallback,
                              int64_t most) const {
  const std::string expected = fmt::format("an integer from 1 to {}", most);
  if (!Has(name)) {
    if (fallback) return *fallback;
    return Missing(name, expected);
  }
  if (!IsIntegerFrom(object_.at(name), 1, most)) return Wrong(name, expected);
  return object_.at(name).get<int64_t>();
}

Result<int64_t> Fields::Natural(const char* name, int64_t fallback, int64_t most) const {
  if (!Has(name)) return fallback;
  if (IsIntegerFrom(object_.at(name), 0, most)) return object_.at(name).get<int64_t>();
  return Wrong(name, fmt::format("an integer from 0 to {}", most));
}

Result<std::vector<int64_t>> Fields::Indices(const char* name, std::vector<int64_t> fallback,
                                             int64_t most) const {
  if (!Has(name)) return fallback;
  const std::string expected = fmt::format("a list of integers from 0 to {}", most);
  if (!object_.at(name).is_array()) return Wrong(name, expected);
  std::vector<int64_t> indices;
  for (const json& value : object_.at(name)) {
    if (!IsIntegerFrom(value, 0, most)) return Wrong(name, expected);
    indices.push_back(value.get<int64_t>());
  }
  return indices;
}

Result<std::vector<double>> Fields::Positives(const char* name, size_t count) const {
  const std::string expected = fmt::format("a list of {} positive numbers", count);
  if (!Has(name)) return Missing(name, expected);
  const json& list = object_.at(name);
  if (!list.is_array() || list.size() != count) return Wrong(name, expected);
  std::vector<double> numbers;
  for (const json& value : list) {
    if (!IsPositive(value)) return Wrong(name, expected);
    numbers.push_back(value.get<double>());
  }
  return numbers;
}

Result<std::vector<std::string>> Fields::Texts(const char* name) const {
  if (!Has(name)) return Missing(name, "a list of strings");
  if (!object_.at(name).is_array()) return Wrong(name, "a list of strings");
  std::vector<std::string> texts;
  for (const json& value : object_.at(name)) {
    if (!value.is_string()) return Wrong(name, "a list of strings");
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

Result<double> Fields::Positive(const char* name, std::optional<double> fallback) const {
  if (!Has(name)) {
    if (fallback) return *fallback;
    return Missing(name, "a positive number");
  }
  if (!IsPositive(object_.at(name))) return Wrong(name, "a positive number");
  return object_.at(name).get<double>();
}

Result<bool> Fields::Flag(const char* name, bool fallback) const {
  if (!Has(name)) return fallback;
  if (!object_.at(name).is_boolean()) return Wrong(name, "true or false");
  return object_.at(name).get<bool>();
}

Result<std::string> Fields::Text(const char* name, const std::string& fallback) const {
  if (!Has(name)) return fallback;
  if (!object_.at(name).is_string()) return Wrong(name, "a string");
  return object_.at(name).get<std::string>();
}

Result<Fields> Fields::Object(const char* name) const {
  if (!Has(name)) return Missing(name, "an object");
  if (!object_.at(name).is_object()) return Wrong(name, "an object");
  return Fields(object_.at(name), origin_ + ": " + name);
}

Result<at::ScalarType> DtypeFromConfig(const Fields& config) {
  SP_ASSIGN(std::string name,
            config.Text(config.Has("dtype") ? "dtype" : "torch_dtype", "float32"));
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  if (name == "float64") return at::kDouble;
  return BadInput(
      fmt::format("{}: dtype {} is unknown: known are float32, bfloat16, float16, "
                  "float64",
                  config.origin(), ShownText(name)));
}

}  // namespace shardproof
