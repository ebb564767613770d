// JSON written as it goes, without a tree of values: most of what a simulated case costs would go
// into such trees of its evidence.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace shardproof {

/// The text of one JSON value on one line. Members stand in the order they are added in; that a key
/// is added once, and every bracket closed, is the caller's matter.
class JsonText {
 public:
  JsonText& Begin(char bracket);
  JsonText& Begin(std::string_view key, char bracket) { return Key(key).Begin(bracket); }
  JsonText& End(char bracket) {
    text_ += bracket;
    return *this;
  }

  JsonText& Key(std::string_view key);  ///< of the value that comes next
  template <typename T>
  JsonText& Add(std::string_view key, const T& value) {
    return Key(key).Add(value);
  }

  /// Bytes that are not UTF-8 become U+FFFD.
  JsonText& Add(std::string_view value);
  JsonText& Add(const std::string& value) { return Add(std::string_view(value)); }
  JsonText& Add(const char* value) { return Add(std::string_view(value)); }
  template <std::same_as<bool> T>
  JsonText& Add(T value) {
    return AddRaw(value ? "true" : "false");
  }
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonText& Add(T value) {
    const fmt::format_int digits(value);
    return AddRaw({digits.data(), digits.size()});
  }
  JsonText& Add(double value);  ///< \pre it is finite
  template <typename T>
  JsonText& Add(const std::vector<T>& values) {
    Begin('[');
    for (const T& value : values) Add(value);
    return End(']');
  }
  JsonText& Add(const std::map<std::string, std::string>& members) {
    Begin('{');
    for (const auto& [key, value] : members) Add(key, value);
    return End('}');
  }
  JsonText& AddRaw(std::string_view json);  ///< a value that is JSON already

  const std::string& text() const { return text_; }

 private:
  void Separate();
  void AppendQuoted(std::string_view value);

  std::string text_;
};

}  // namespace shardproof
