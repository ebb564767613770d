// The fields of a Hugging Face config.json, read with suspicion: every complaint names the file,
// the field, what was expected and what was found.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

// Far above any real model, and low enough that no tensor's bytes overflow.
inline constexpr int64_t kDimMax = 1 << 24;
inline constexpr int64_t kHeadsMax = 1 << 16;
inline constexpr int64_t kLayersMax = 4096;

/// One JSON object by field. null counts as absent, as it does for the Transformers library.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string origin)
      : object_(object), origin_(std::move(origin)) {}

  bool Has(const char* name) const { return object_.contains(name) && !object_.at(name).is_null(); }
  const nlohmann::json& operator[](const char* name) const { return object_.at(name); }
  const nlohmann::json& object() const { return object_; }
  const std::string& origin() const { return origin_; }

  /// An integer from 1 to `most`.
  Result<int64_t> Count(const char* name, std::optional<int64_t> fallback = {},
                        int64_t most = kDimMax) const;
  /// An integer from 0 to `most`.
  Result<int64_t> Natural(const char* name, int64_t fallback, int64_t most) const;
  /// A list of integers from 0 to `most`.
  Result<std::vector<int64_t>> Indices(const char* name, std::vector<int64_t> fallback,
                                       int64_t most) const;
  /// A list of as many positive numbers.
  Result<std::vector<double>> Positives(const char* name, size_t count) const;
  Result<std::vector<std::string>> Texts(const char* name) const;
  /// A finite number above 0 that an F32 holds.
  Result<double> Positive(const char* name, std::optional<double> fallback = {}) const;
  Result<bool> Flag(const char* name, bool fallback) const;
  Result<std::string> Text(const char* name, const std::string& fallback) const;
  /// The fields of a nested object, which must be there.
  Result<Fields> Object(const char* name) const;

  Error Missing(const char* name, const std::string& expected) const;
  Error Wrong(const char* name, const std::string& expected) const;

 private:
  const nlohmann::json& object_;
  std::string origin_;
};

/// The element type that `dtype` (or the older `torch_dtype`) names; F32 if neither is there.
Result<at::ScalarType> DtypeFromConfig(const Fields& config);

}  // namespace shardproof
