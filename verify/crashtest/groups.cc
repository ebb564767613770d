// A thousand bad states of one cause are one line.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <tuple>

#include "verify/crashtest/run.h"

namespace shardproof::crashtest {
namespace {

using crash::BadState;
using crash::CrashModel;
using crash::Loaded;

/// Without numbers, which differ from state to state.
std::string Alike(const std::string& line) {
  std::string alike;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(line[i])) != 0;
    if (!is_digit) {
      alike += line[i];
    } else if (alike.empty() || alike.back() != '#') {
      alike += '#';
    }
  }
  return alike;
}

std::string WhatOf(const BadState& bad) {
  if (bad.outcome.loaded != Loaded::kWrong) return "not durable";
  if (bad.outcome.line.starts_with("the load died")) return "died";
  return bad.outcome.line.starts_with("loads") ? "wrong" : "lost";
}

std::string LineOf(const BadState& bad) {
  if (bad.outcome.loaded == Loaded::kWrong) return bad.outcome.line;
  const std::string seen = bad.outcome.loaded == Loaded::kOld ? "the previous checkpoint is loaded"
                           : bad.outcome.loaded == Loaded::kNew
                               ? "the new checkpoint is loaded"
                               : "the load fails: " + bad.outcome.line;
  return fmt::format("{}, expected {}{}", seen, bad.expected,
                     bad.expected == "new" ? ", since the command had ended" : "");
}

/// What a reader understands first: little lost, and early.
auto Size(const BadState& bad) { return std::make_tuple(bad.lost.size(), bad.after); }

}  // namespace

std::vector<BadGroup> GroupsOf(const crash::CrashReport& report) {
  std::vector<BadGroup> groups;
  std::map<std::tuple<CrashModel, std::string, std::string>, size_t> known;
  // The same disk under a stronger model is no news: models are judged from the weakest on.
  std::map<std::pair<uint64_t, std::string>, CrashModel> weakest;
  for (size_t i = 0; i < report.bad.size(); ++i) {
    const BadState& bad = report.bad[i];
    const auto first = weakest.try_emplace({bad.disk.Hash(), bad.expected}, bad.model).first;
    if (first->second != bad.model) continue;
    const std::string what = WhatOf(bad);
    const auto [at, is_new] =
        known.try_emplace({bad.model, what, Alike(LineOf(bad))}, groups.size());
    if (is_new) groups.push_back({bad.model, what, LineOf(bad), {}});
    groups[at->second].members.push_back(i);
  }
  for (BadGroup& group : groups) {
    std::stable_sort(group.members.begin(), group.members.end(),
                     [&](size_t a, size_t b) { return Size(report.bad[a]) < Size(report.bad[b]); });
    group.line = LineOf(report.bad[group.members.front()]);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const BadGroup& a, const BadGroup& b) {
    return std::make_tuple(a.model, -static_cast<int64_t>(a.members.size())) <
           std::make_tuple(b.model, -static_cast<int64_t>(b.members.size()));
  });
  return groups;
}

}  // namespace shardproof::crashtest
