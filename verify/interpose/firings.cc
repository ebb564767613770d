#include "verify/interpose/firings.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "verify/interpose/rule_words.h"

namespace shardproof::interpose {
namespace {

using nlohmann::json;

/// Without exceptions: what is not there, or is something else, is nothing.
template <typename T>
std::optional<T> Get(const json& line, const char* key) {
  const auto it = line.find(key);
  if (it == line.end()) return std::nullopt;
  if constexpr (std::is_same_v<T, std::string>) {
    if (it->is_string()) return it->get<std::string>();
  } else {
    if (it->is_number_unsigned()) return it->get<T>();
  }
  return std::nullopt;
}

std::optional<Firing> FiringOf(const json& line) {
  const auto rule = Get<std::string>(line, "fault");
  const auto function = Get<std::string>(line, "function");
  const auto call = Get<int64_t>(line, "call");
  const auto bytes = Get<uint64_t>(line, "bytes");
  const auto detail = Get<std::string>(line, "detail");
  if (!rule || !function || !call || !bytes || !detail) return std::nullopt;
  return Firing{*rule, *function, *call, Get<int64_t>(line, "rank"), *bytes, *detail};
}

/// The latest firing of the rule is no more.
void TakeBack(const std::string& rule, std::vector<Firing>& firings) {
  const auto it = std::find_if(firings.rbegin(), firings.rend(),
                               [&](const Firing& firing) { return firing.rule == rule; });
  if (it != firings.rend()) firings.erase(std::next(it).base());
}

}  // namespace

Result<std::vector<Firing>> ReadFirings(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Unsupported(Shown(path) +
                       " is not there: the interposer was not loaded into the program");
  }
  std::vector<Firing> firings;
  std::string text;
  for (int64_t number = 1; std::getline(file, text) && !file.eof(); ++number) {
    const json line = json::parse(text, nullptr, false);
    if (line.is_object() && line.contains("undone") && Get<std::string>(line, "fault")) {
      TakeBack(*Get<std::string>(line, "fault"), firings);
      continue;
    }
    std::optional<Firing> firing = line.is_object() ? FiringOf(line) : std::nullopt;
    if (!firing) {
      return BadInput(Shown(path) + ", line " + std::to_string(number) +
                      ": expected a firing, found " + Shown(text));
    }
    firings.push_back(std::move(*firing));
  }
  return firings;
}

}  // namespace shardproof::interpose
