// The fields of a config.json, each read with its type and range; what is wrong is named in one
// line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/oracle/json.h"

namespace shardproof::oracle {

/// The most bytes of a config file.
inline constexpr uint64_t kConfigBytesMax = 10'000'000;

/// A JSON object by field. null counts as absent, as it does for Transformers.
/// \error of every reader: kBadInput naming the file, the field, what was expected and what was
///   found; a reader without `if_absent` refuses an absent field.
class Fields {
 public:
  /// \param where  the file and the way to the object in it, for messages. `object`'s parser must
  ///   outlive what is made.
  static Result<Fields> Of(const std::string& where, const simdjson::dom::object& object);

  std::optional<JsonElement> Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name).has_value(); }
  /// Whether it is there and null, where Transformers tells that from absent.
  bool IsNull(std::string_view name) const;

  /// From `low` to `high`; the short form from 1.
  Result<int64_t> Integer(const std::string& name, int64_t low, int64_t high) const;
  Result<int64_t> Integer(const std::string& name, int64_t high) const {
    return Integer(name, 1, high);
  }
  Result<int64_t> IntegerOr(int64_t if_absent, const std::string& name, int64_t low,
                            int64_t high) const;
  Result<int64_t> IntegerOr(int64_t if_absent, const std::string& name, int64_t high) const {
    return IntegerOr(if_absent, name, 1, high);
  }

  Result<bool> Bool(const std::string& name, bool if_absent) const;
  Result<std::string> Text(const std::string& name, const std::string& if_absent) const;

  /// A finite number above zero that an F32 can hold.
  Result<double> Positive(const std::string& name) const;
  Result<double> Positive(const std::string& name, double if_absent) const;

  /// A number from 0 to 1.
  Result<double> Fraction(const std::string& name, double if_absent) const;

  /// At most `count_max` of them, each as above; none if absent.
  Result<std::vector<int64_t>> Integers(const std::string& name, int64_t low, int64_t high,
                                        size_t count_max) const;
  Result<std::vector<double>> Positives(const std::string& name, size_t count_max) const;
  Result<std::vector<std::string>> Texts(const std::string& name, size_t count_max) const;

  /// The object at `name`; no fields if it is absent.
  Result<Fields> Object(const std::string& name) const;

  /// The same without some of them.
  Fields Without(const std::vector<std::string_view>& names) const;

  Error Wrong(const std::string& name, const std::string& expected, const JsonElement& found) const;
  Error Missing(const std::string& name, const std::string& expected) const;
  /// For values that are well of themselves and do not fit the others.
  Error Wrong(const std::string& name, const std::string& expected, int64_t found) const;

  bool empty() const { return members_.empty(); }
  const std::string& where() const { return where_; }
  const std::vector<JsonMember>& members() const { return members_; }

 private:
  Fields(std::string where, std::vector<JsonMember> members)
      : where_(std::move(where)), members_(std::move(members)) {}

  Result<double> AsPositive(const std::string& name, const JsonElement& value) const;
  Result<std::vector<JsonElement>> Elements(const std::string& name, const std::string& of,
                                            size_t count_max) const;

  std::string where_;
  std::vector<JsonMember> members_;
};

}  // namespace shardproof::oracle
