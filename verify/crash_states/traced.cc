#include "verify/crash_states/traced.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "verify/trace/call_names.h"

namespace shardproof::crash {
namespace {

namespace fs = std::filesystem;
using trace::Call;
using trace::Decision;

struct Difference {
  std::string path;
  std::string expected;
  std::string found;
};

/// The first of two disks that are not equal.
Difference FirstDifference(const Disk& expected, const Disk& found) {
  const auto ours = expected.Lines();
  const auto theirs = found.Lines();
  size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  const Disk::Line a = i < ours.size() ? ours[i] : Disk::Line();
  const Disk::Line b = i < theirs.size() ? theirs[i] : Disk::Line();
  if (a.path == b.path) return {a.path, a.text, b.text};
  // Lines are sorted, so the smaller path is what the other has not got.
  if (b.path.empty() || (!a.path.empty() && a.path < b.path)) return {a.path, a.text, "nothing"};
  return {b.path, "nothing", b.text};
}

}  // namespace

Result<TracedSave> TracedSave::Make(const std::string& root, int64_t bytes_max) {
  std::error_code error;
  TracedSave made;
  made.root_ = fs::canonical(root, error).string();
  if (error) return BadInput(fmt::format("{}: {}", root, error.message()));
  if (!fs::is_directory(made.root_, error)) {
    return BadInput(root + ": expected a directory, found something else");
  }
  if (made.root_ == "/") return BadInput("/: expected a directory below it");
  made.bytes_max_ = bytes_max;
  return made;
}

std::optional<std::string> TracedSave::Below(const std::string& path) const {
  if (path == root_) return "";
  if (!path.starts_with(root_ + "/")) return std::nullopt;
  return path.substr(root_.size() + 1);
}

Decision TracedSave::Enter(const Call& call) {
  if (error_) return Decision::KillAll();
  Plan plan = PlanOf(call);
  if (error_) return Decision::KillAll();
  if (!plan) return Decision::Unwatched();
  if (!*plan) {
    notices_.insert(fmt::format("{} was denied to the command", trace::NameOf(call.number)));
    return Decision::Fail(call.number == SYS_ioctl ? EOPNOTSUPP : ENOSYS);
  }
  if (in_flight_) return Decision::Wait();
  in_flight_ = call.thread;
  finish_ = std::move(*plan);
  return Decision::GoOn();
}

void TracedSave::Leave(const Call& call) {
  if (in_flight_ != call.thread) return;
  in_flight_.reset();
  const Finish finish = std::exchange(finish_, nullptr);
  finish(call);
}

void TracedSave::Gone(pid_t thread) {
  // What a call did in which it was killed is seen at the end, if it did anything.
  if (in_flight_ == thread) in_flight_.reset();
}

void TracedSave::Note(const Call& call, FileOperation operation) {
  operation.rank =
      ranks_.try_emplace(call.process, static_cast<int64_t>(ranks_.size())).first->second;
  operation.sequence = static_cast<int64_t>(operations_.size());
  operations_.push_back(std::move(operation));
}

void TracedSave::Refuse(const Call& call, const std::string& path, const std::string& expected) {
  if (error_) return;
  error_ = Unsupported(fmt::format("{}: {} of process {}: {}", path, trace::NameOf(call.number),
                                   call.process, expected));
}

Result<std::vector<FileOperation>> TracedSave::Operations(const Disk& before) const {
  if (error_) return *error_;
  Disk recorded = before;
  for (const FileOperation& operation : operations_) {
    const Status applied = recorded.Apply(operation);
    if (!applied.ok()) {
      return Unsupported("what was recorded cannot have been done: " + applied.error().message);
    }
  }
  SP_ASSIGN(const Disk found, Disk::Read(root_));
  if (recorded == found) return operations_;
  const Difference difference = FirstDifference(recorded, found);
  const std::string path = root_ + "/" + difference.path;
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) == 0 && mapped_.contains({facts.st_dev, facts.st_ino})) {
    return Unsupported(path +
                       ": was changed through a shared mapping, whose stores are no calls: "
                       "expected writes");
  }
  return Unsupported(
      fmt::format("{}: was changed by something that is not known here: expected {} "
                  "after the calls of the command, found {}",
                  path, difference.expected, difference.found));
}

}  // namespace shardproof::crash
