#include "verify/evidence/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "verify/case/json_fields.h"

namespace shardproof {

JsonText& JsonText::Begin(char bracket) {
  Separate();
  text_ += bracket;
  return *this;
}

JsonText& JsonText::Add(std::string_view value) {
  Separate();
  AppendQuoted(value);
  return *this;
}

JsonText& JsonText::Add(double value) { return AddRaw(DumpJson(value)); }

JsonText& JsonText::AddRaw(std::string_view json) {
  Separate();
  text_ += json;
  return *this;
}

JsonText& JsonText::Key(std::string_view key) {
  Separate();
  AppendQuoted(key);
  text_ += ':';
  return *this;
}

// What stands last tells whether something stands before: no value ends in one of these.
void JsonText::Separate() {
  if (!text_.empty() && std::string_view("{[:").find(text_.back()) == std::string_view::npos)
    text_ += ',';
}

void JsonText::AppendQuoted(std::string_view value) {
  const bool is_plain = std::all_of(value.begin(), value.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  if (is_plain) {
    text_ += '"';
    text_ += value;
    text_ += '"';
  } else {
    text_ += DumpJson(value);
  }
}

}  // namespace shardproof
