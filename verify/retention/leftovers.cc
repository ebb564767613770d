#include "verify/retention/leftovers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "verify/case/phase.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kDepthMax = 8;
constexpr uintmax_t kJsonBytesMax = 256 << 20;

/// What a file or directory is itself, links not followed.
struct Self {
  explicit Self(const fs::path& path) { is_there = ::lstat(path.c_str(), &status) == 0; }
  bool IsDirectory() const { return is_there && S_ISDIR(status.st_mode); }
  bool IsFile() const { return is_there && S_ISREG(status.st_mode); }
  bool is_there = false;
  struct stat status {};
};

json ReadJson(const fs::path& path) {
  const Self self(path);
  if (!self.IsFile() || static_cast<uintmax_t>(self.status.st_size) > kJsonBytesMax) return {};
  std::ifstream file(path, std::ios::binary);
  return json::parse(file, nullptr, false);
}

bool HasAll(const json& document, std::initializer_list<const char*> names) {
  return document.is_object() && std::all_of(names.begin(), names.end(), [&](const char* name) {
           return document.contains(name);
         });
}

bool IsEvidence(const fs::path& folder) {
  return HasAll(ReadJson(folder / "run.json"), {"schema", "case", "phases"});
}

bool IsReport(const fs::path& folder) {
  return HasAll(ReadJson(folder / "result.json"),
                {"schema", "verdict", "properties", "findings", "compared", "evidence"});
}

bool IsReproducers(const fs::path& folder) {
  return HasAll(ReadJson(folder / "reproducers.json"), {"schema", "left_out", "findings"});
}

/// What a verification writes into the folder of its evidence.
bool IsOfEvidence(const std::string& name) {
  if (name == "run.json" || name == "oracle.json" || name == "twin" || name == "twin_steps" ||
      name == "values_of_steps" || name == "source") {
    return true;
  }
  const std::string saved = "saved_";
  return (name.starts_with(saved) && ParsePhase(name.substr(saved.size())).ok()) ||
         name.starts_with("source_of_others") || ParsePhase(name).ok();
}

/// What --summary writes, and the smallest case of those that were generated.
bool IsSummary(const fs::path& path) {
  const std::string begin = "### Shardproof";
  std::string found(begin.size(), '\0');
  if (!Self(path).IsFile()) return false;
  std::ifstream(path, std::ios::binary).read(found.data(), static_cast<int>(found.size()));
  return found == begin;
}

bool IsOfReport(const fs::path& folder, const std::string& name) {
  if (name == "summary.md") return IsSummary(folder / name);
  if (name == "case.json") return HasAll(ReadJson(folder / name), {"schema", "mesh", "model"});
  if (name == "result.json" || name == "report.html" || name == "junit.xml") return true;
  if (name == "evidence") return IsEvidence(folder / name);
  return name == "reproducers" && IsReproducers(folder / name);
}

std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Adds size and age of a file or of all below a directory.
void Measure(const fs::path& path, Leftover& leftover, int depth = 0) {
  const Self self(path);
  if (!self.is_there || depth > 64) return;
  leftover.changed_s = std::max<int64_t>(leftover.changed_s, self.status.st_mtime);
  if (!self.IsDirectory()) {
    ++leftover.files;
    leftover.bytes += static_cast<uint64_t>(self.status.st_size);
    return;
  }
  for (const std::string& name : NamesIn(path)) Measure(path / name, leftover, depth + 1);
}

template <typename IsOwn>
Leftover Recognised(Leftover::Kind kind, const fs::path& folder, IsOwn is_own) {
  Leftover leftover;
  leftover.kind = kind;
  leftover.path = folder.string();
  for (const std::string& name : NamesIn(folder)) {
    (is_own(name) ? leftover.own : leftover.others).push_back(name);
    if (is_own(name)) Measure(folder / name, leftover);
  }
  return leftover;
}

class Finder {
 public:
  explicit Finder(dev_t device) : device_(device) {}

  void Look(const fs::path& folder, int depth) {
    const Self self(folder);
    // A mount is somebody else's decision.
    if (!self.IsDirectory() || self.status.st_dev != device_ || depth > kDepthMax) return;
    if (IsReport(folder)) {
      found.push_back(Recognised(Leftover::Kind::kReport, folder, [&](const std::string& name) {
        return IsOfReport(folder, name);
      }));
      return;
    }
    if (IsEvidence(folder)) {
      found.push_back(Recognised(Leftover::Kind::kEvidence, folder, IsOfEvidence));
      return;
    }
    for (const std::string& name : NamesIn(folder)) {
      if (name != ".git") Look(folder / name, depth + 1);
    }
  }

  std::vector<Leftover> found;

 private:
  dev_t device_;
};

/// The process id in "shardproof-earlier-123", or empty.
std::string ProcessIn(const std::string& name) {
  for (const char* begin : {"shardproof-earlier-", "shardproof-crash-"}) {
    if (!name.starts_with(begin)) continue;
    const std::string rest = name.substr(std::string(begin).size());
    return rest.find_first_not_of("0123456789") == std::string::npos ? rest : "";
  }
  return "";
}

/// "shardproof-" and what mkdtemp put behind it.
bool IsMadeName(const std::string& name) {
  const std::string begin = "shardproof-";
  if (!name.starts_with(begin) || name.size() != begin.size() + 6) return false;
  const std::string drawn = name.substr(begin.size());
  const auto all = [&](int (*is_such)(int)) {
    return std::all_of(drawn.begin(), drawn.end(),
                       [&](unsigned char c) { return is_such(c) != 0; });
  };
  // Words and dates are names that people give.
  return all(std::isalnum) && !all(std::islower) && !all(std::isdigit);
}

/// A directory that mkdtemp made is open to nobody else.
bool IsPrivate(const Self& self) { return (self.status.st_mode & 0777) == 0700; }

/// Whether a process has the path among its words, as the guard of a run does, works in it, or has
/// a file in it open.
bool IsInUse(const std::string& path) {
  for (const std::string& process : NamesIn("/proc")) {
    if (process.find_first_not_of("0123456789") != std::string::npos) continue;
    const fs::path folder = fs::path("/proc") / process;
    std::ostringstream words;
    words << std::ifstream(folder / "cmdline", std::ios::binary).rdbuf();
    if (words.str().find(path) != std::string::npos) return true;
    std::error_code error;
    if (fs::read_symlink(folder / "cwd", error).string().starts_with(path)) return true;
    for (const std::string& descriptor : NamesIn(folder / "fd")) {
      const std::string target = fs::read_symlink(folder / "fd" / descriptor, error).string();
      if (target.starts_with(path + "/")) return true;
    }
  }
  return false;
}

void FindScratch(const std::vector<std::string>& places, std::vector<Leftover>& found) {
  for (const std::string& place : places) {
    for (const std::string& name : NamesIn(place)) {
      const fs::path path = fs::path(place) / name;
      const Self self(path);
      const std::string process = ProcessIn(name);
      const bool is_ours = self.IsDirectory() && self.status.st_uid == ::getuid();
      if (!is_ours || (process.empty() && !(IsMadeName(name) && IsPrivate(self)))) continue;
      Leftover leftover =
          Recognised(Leftover::Kind::kScratch, path, [](const std::string&) { return true; });
      leftover.changed_s = std::max<int64_t>(leftover.changed_s, self.status.st_mtime);
      const bool is_alive = !process.empty() && fs::exists("/proc/" + process);
      if (is_alive || IsInUse(path.string())) leftover.why_kept = "a process uses it";
      found.push_back(std::move(leftover));
    }
  }
}

void Choose(const CleanOptions& options, int64_t now_s, std::vector<Leftover>& found) {
  const int64_t older_s = options.older_s.value_or(kMayRunSeconds);
  uint64_t newer = 0;
  for (Leftover& leftover : found) {
    const bool is_scratch = leftover.kind == Leftover::Kind::kScratch;
    if (!is_scratch && options.keep && newer++ < *options.keep) {
      leftover.why_kept = "one of the newest";
    } else if (leftover.why_kept.empty() && now_s - leftover.changed_s < older_s) {
      leftover.why_kept = options.older_s ? "younger than --older" : "changed in the last hour";
    }
  }
}

}  // namespace

Result<std::vector<Leftover>> FindLeftovers(const std::string& root, const CleanOptions& options,
                                            const std::vector<std::string>& scratch_places,
                                            int64_t now_s) {
  std::error_code error;
  // The directory that is named may be reached by a link; nothing below it is.
  const fs::path real = fs::canonical(root, error);
  if (error) return BadInput(fmt::format("{}: {}", root, error.message()));
  const Self self(real);
  if (!self.IsDirectory()) {
    return BadInput(fmt::format("{}: expected a directory, found a file", root));
  }
  if (::access(real.c_str(), R_OK | X_OK) != 0) {
    return BadInput(fmt::format("{}: cannot be listed", root));
  }
  Finder finder(self.status.st_dev);
  finder.Look(real, 0);
  std::vector<Leftover> found = std::move(finder.found);
  std::stable_sort(found.begin(), found.end(),
                   [](const Leftover& a, const Leftover& b) { return a.changed_s > b.changed_s; });
  if (options.with_scratch) FindScratch(scratch_places, found);
  Choose(options, now_s, found);
  return found;
}

Status Remove(const Leftover& leftover) {
  std::error_code error;
  const fs::path folder = leftover.path;
  // What says what the rest is goes last: a removal that was cut short can be gone on with.
  std::vector<std::string> names = leftover.own;
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) {
    return name != "result.json" && name != "run.json";
  });
  for (const std::string& name : names) {
    fs::remove_all(folder / name, error);
    if (error) {
      return Failed(fmt::format("{}: {}", (folder / name).string(), error.message()));
    }
  }
  if (leftover.others.empty()) fs::remove(folder, error);
  return error ? Status(Failed(fmt::format("{}: {}", folder.string(), error.message()))) : Ok();
}

Result<int64_t> ParseAge(const std::string& text) {
  constexpr std::pair<char, int64_t> kUnits[] = {
      {'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
  const std::string digits = text.empty() ? "" : text.substr(0, text.size() - 1);
  const bool is_number = !digits.empty() && digits.size() <= 9 &&
                         digits.find_first_not_of("0123456789") == std::string::npos;
  for (const auto& [unit, seconds] : kUnits) {
    if (is_number && text.back() == unit) return std::stoll(digits) * seconds;
  }
  return BadInput(
      fmt::format("--older: expected a number and s, m, h, d or w, such as 14d, found '{}'", text));
}

std::vector<std::string> ScratchPlaces() {
  const char* chosen = std::getenv("TMPDIR");
  return {chosen == nullptr || *chosen == '\0' ? "/tmp" : chosen, "/dev/shm"};
}

}  // namespace shardproof
