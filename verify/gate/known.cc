#include "verify/gate/known.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>

#include "src/text/quote.h"
#include "verify/case/json_fields.h"

namespace shardproof::gate {
namespace {

constexpr size_t kFingerprintDigits = 16;
constexpr size_t kFileBytesMax = 16 << 20;

bool IsFingerprint(const std::string& text) {
  return text.size() == kFingerprintDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Whether it is a day of the calendar, written YYYY-MM-DD.
bool IsDate(const std::string& text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i != 4 && i != 7 && (text[i] < '0' || text[i] > '9')) return false;
  }
  const std::chrono::year_month_day day{
      std::chrono::year(std::stoi(text.substr(0, 4))),
      std::chrono::month(static_cast<unsigned>(std::stoi(text.substr(5, 2)))),
      std::chrono::day(static_cast<unsigned>(std::stoi(text.substr(8, 2))))};
  return day.ok();
}

/// A text that `is_right`.
template <typename Right>
void ReadText(FieldReader& fields, const char* name, const char* expected, Right is_right,
              std::string& target) {
  const std::optional<JsonValue> value = fields.Take(name);
  if (!value) return;
  std::string_view text;
  if (value->get(text) || !is_right(std::string(text))) {
    return fields.complaint().Expected(fields.PointerTo(name), expected, *value);
  }
  target = std::string(text);
}

void ReadWords(FieldReader& fields, const char* name, std::string& target) {
  const auto says_something = [](const std::string& text) {
    return text.find_first_not_of(" \t\n") != std::string::npos;
  };
  ReadText(fields, name, "a text that is not empty", says_something, target);
}

/// An entry names one finding or several, never both ways.
void ReadWhich(FieldReader& fields, KnownFailure& entry) {
  const bool is_one = fields.Known("fingerprint");
  bool is_several = false;
  for (const char* name : {"property", "kind", "tensor"}) {
    is_several = fields.Known(name) || is_several;
  }
  if (is_one == is_several) {
    return fields.complaint().Say(
        fields.pointer(), fmt::format("expected a fingerprint, or property, kind and tensor, "
                                      "found {}",
                                      is_one ? "both" : "neither"));
  }
  if (is_one) {
    return ReadText(fields, "fingerprint",
                    "16 hexadecimal digits in lower case, as a finding shows them", IsFingerprint,
                    entry.fingerprint);
  }
  ReadWords(fields, "property", entry.property);
  ReadWords(fields, "kind", entry.kind);
  fields.Required("tensor", entry.tensor);
}

KnownFailure ReadEntry(const JsonValue& value, const std::string& pointer, Complaint& complaint,
                       const std::string& today) {
  KnownFailure entry;
  FieldReader fields(value, pointer, complaint);
  if (!complaint.ok()) return entry;
  ReadWhich(fields, entry);
  ReadWords(fields, "owner", entry.as.owner);
  ReadWords(fields, "issue", entry.as.issue);
  if (fields.Known("why")) ReadWords(fields, "why", entry.as.why);
  ReadText(fields, "expires", "a date such as 2026-12-31", IsDate, entry.as.expires);
  fields.Finish();
  entry.as.is_expired = entry.as.expires < today;
  return entry;
}

std::string WhatItNames(const KnownFailure& entry) {
  return entry.fingerprint + "|" + entry.property + "|" + entry.kind + "|" + entry.tensor;
}

}  // namespace

std::string KnownFailure::Name() const {
  if (!fingerprint.empty()) return fingerprint;
  const std::string of = tensor.empty() ? "" : " of " + text::Quote(tensor);
  return text::Printable(property) + " " + text::Printable(kind) + of;
}

std::string Today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

Result<std::vector<KnownFailure>> ReadKnown(const std::string& path, const std::string& today) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax + 1, '\0');
  if (!file || !file.read(text.data(), static_cast<std::streamsize>(text.size())).eof()) {
    return BadInput(
        fmt::format("--known {}: {}", path, file ? "is longer than 16 MiB" : "cannot be read"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  simdjson::dom::parser parser;
  const auto root = ParseJson(parser, text);
  if (!root.ok()) return root.error().While("--known " + path);
  Complaint complaint;
  FieldReader fields(root.value(), "", complaint);
  uint64_t schema = 0;
  fields.Required("schema", schema, uint64_t{1}, uint64_t{1});
  std::vector<KnownFailure> known;
  std::set<std::string> seen;
  if (complaint.ok()) {
    ForEach(fields, "known", [&](const JsonValue& value, const std::string& pointer) {
      known.push_back(ReadEntry(value, pointer, complaint, today));
      if (!complaint.ok() || seen.insert(WhatItNames(known.back())).second) return;
      complaint.Say(pointer, "names the same findings as an earlier entry: " + known.back().Name());
    });
  }
  fields.Finish();
  if (!complaint.ok()) return BadInput(fmt::format("--known {}: {}", path, complaint.text()));
  return known;
}

bool MatchesPattern(const std::string& text, const std::string& pattern) {
  std::string literal;  // but for * and ?: names have brackets
  for (const char c : pattern) {
    if (c == '[' || c == '\\') literal += '\\';
    literal += c;
  }
  return ::fnmatch(literal.c_str(), text.c_str(), 0) == 0;
}

}  // namespace shardproof::gate
