// A thousand bad states of one cause are one line.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "verify/crashtest/run.h"

namespace shardproof::crashtest {
namespace {

using crash::BadState;
using crash::CrashModel;
using crash::FileOperation;
using crash::Loaded;
using crash::OperationKind;
using crash::Wrong;

std::string WhatOf(const BadState& bad) {
  if (bad.outcome.loaded != Loaded::kWrong) return "not durable";
  switch (bad.outcome.wrong) {
    case Wrong::kLost:
      return "lost";
    case Wrong::kDied:
      return "died";
    case Wrong::kElse:
      return "wrong";
  }
  return "";
}

std::string LineOf(const BadState& bad) {
  if (bad.outcome.loaded == Loaded::kWrong) return bad.outcome.line;
  const std::string seen =
      bad.outcome.loaded == Loaded::kOld ? "the previous checkpoint is loaded"
      : bad.outcome.loaded == Loaded::kNew
          ? "the new checkpoint is loaded"
          : "the load fails" +
                (bad.outcome.line.empty() ? " without a word" : ": " + bad.outcome.line);
  const bool has_ended = bad.allowed == std::vector{Loaded::kNew};
  return fmt::format("{}, expected {}{}", seen, bad.Expected(),
                     has_ended ? ", since the command had ended" : "");
}

/// "the bytes of a", "the name b".
std::string Subject(const FileOperation& operation) {
  const std::string path = operation.path.empty() ? "." : operation.path;
  switch (operation.kind) {
    case OperationKind::kWrite:
    case OperationKind::kTruncate:
      return "the bytes of " + path;
    case OperationKind::kRename:
    case OperationKind::kExchange:
    case OperationKind::kLink:
    case OperationKind::kSymlink:
      return "the " + Describe(operation);
    default:
      return "the name " + path;
  }
}

bool ChangesNothing(const FileOperation& operation) {
  return operation.kind == OperationKind::kSyncFile ||
         operation.kind == OperationKind::kSyncDirectory;
}

/// What explains bad states of one model.
class Causes {
 public:
  Causes(const std::vector<BadState>& bad, const std::vector<FileOperation>& operations)
      : operations_(operations) {
    for (const BadState& one : bad) {
      if (one.lacks < 0) whole_[one.model].insert(Settled(one.after));
    }
  }

  /// What the state lacks that was done first. If it lacks nothing: from which operation on states
  /// are bad, since that is the one that should have waited.
  std::string Of(const BadState& bad) const {
    if (bad.lacks >= 0 && !bad.in_flight) return "without " + Subject(At(bad.lacks));
    const int64_t begin = BeginOfRun(bad);
    if (begin > 0) return "from the " + Describe(At(begin - 1)) + " on";
    if (bad.in_flight) return "during a change of " + Subject(At(bad.after));
    return "before anything is done";
  }

 private:
  /// After so many operations the first of the states was bad that lead up to this one, all of them
  /// bad; 0: the one before it is none, or nothing was done.
  int64_t BeginOfRun(const BadState& bad) const {
    const auto whole = whole_.find(bad.model);
    if (whole == whole_.end() || !whole->second.contains(Settled(bad.after))) return 0;
    int64_t begin = Settled(bad.after);
    while (begin > 0 && whole->second.contains(Settled(begin - 1))) begin = Settled(begin - 1);
    return begin;
  }

  /// Without syncs behind it: they leave the same disk, which is judged once.
  int64_t Settled(int64_t after) const {
    while (after > 0 && ChangesNothing(At(after - 1))) --after;
    return after;
  }

  const FileOperation& At(int64_t index) const { return operations_[static_cast<size_t>(index)]; }

  const std::vector<FileOperation>& operations_;
  /// By model, after how many operations states are bad that lack nothing.
  std::map<CrashModel, std::set<int64_t>> whole_;
};

/// What a reader understands first: little lost, and early.
auto Size(const BadState& bad) { return std::make_tuple(bad.lost.size(), bad.after); }

}  // namespace

std::vector<BadGroup> GroupsOf(const crash::CrashReport& report,
                               const std::vector<FileOperation>& operations) {
  const Causes causes(report.bad, operations);
  std::vector<BadGroup> groups;
  std::map<std::tuple<CrashModel, std::string, std::string>, size_t> known;
  // The same disk under a stronger model is no news: models are judged from the weakest on.
  std::map<std::pair<uint64_t, std::vector<Loaded>>, CrashModel> weakest;
  for (size_t i = 0; i < report.bad.size(); ++i) {
    const BadState& bad = report.bad[i];
    const auto first = weakest.try_emplace({bad.disk.Hash(), bad.allowed}, bad.model).first;
    if (first->second != bad.model) continue;
    const std::string what = WhatOf(bad);
    const std::string cause = causes.Of(bad);
    const auto [at, is_new] = known.try_emplace({bad.model, what, cause}, groups.size());
    if (is_new) groups.push_back({bad.model, what, cause, "", {}});
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
