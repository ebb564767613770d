// A damaged save: a file that a job has saved itself is not there, or is another, when it restores.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/seam/decorators.h"
#include "src/stage/stage.h"
#include "verify/fault/fault.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/faults/edit_where.h"
#include "verify/faults/shown_files.h"

namespace shardproof::faults::file_damage_save {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// What is judged must not say where to look for it: the names that a save gives, once more.
constexpr const char* kManifest = "shardproof.seal.json";
constexpr const char* kLatest = "latest";
constexpr std::string_view kStepPrefix = "step-";

/// What is read in the place of a file's bytes; nothing: the file is not there.
using Shown = std::optional<std::string>;

struct Edit {
  const char* name;
  const char* in_words;  ///< after what it is done to
  Shown (*make)(std::string bytes, uint64_t n);
  bool of_latest = false;
};

Shown Gone(std::string, uint64_t) { return std::nullopt; }
Shown Cut(std::string bytes, uint64_t n) {
  bytes.resize(n % bytes.size());
  return bytes;
}
Shown Longer(std::string bytes, uint64_t n) { return bytes.append(1 + n % 8, '\0'); }
Shown Flipped(std::string bytes, uint64_t n) {
  bytes[n / 8 % bytes.size()] ^= static_cast<char>(1 << n % 8);
  return bytes;
}

constexpr Edit kEdits[] = {
    {"gone", "is not there", Gone},
    {"cut", "is cut short", Cut},
    {"tail", "goes on behind its end", Longer},
    {"flip", "has a bit flipped", Flipped},
    {"latest-gone", "is not there", Gone, true},
    {"latest-cut", "is cut short", Cut, true},
    {"latest-flip", "has a bit flipped", Flipped, true},
    {"latest-older", "names an older one", nullptr, true},
};

struct Place {
  const Edit* edit = nullptr;
  uint64_t n = 0;
  int64_t back = 0;  ///< saves before the last
};

Result<Place> Parse(const Case& test_case, const std::string& where) {
  std::vector<std::string> names;
  for (const Edit& edit : kEdits) names.emplace_back(edit.name);
  const size_t at = where.find('@');
  SP_ASSIGN(const EditAndNumber parsed, ParseEdit(where.substr(0, at), names));
  const auto number = std::find(names.begin(), names.end(), parsed.edit) - names.begin();
  Place place{&kEdits[number], parsed.n};
  const int64_t saves =
      test_case.steps > 0 ? static_cast<int64_t>(test_case.SavedSteps().size()) : 1;
  if (at != std::string::npos) {
    SP_ASSIGN(place.back, ParseIndex(where.substr(at + 1), saves, "the number of saves before"));
  }
  if (place.edit->of_latest && test_case.steps == 0) {
    return BadInput("expected a job that takes steps: no other has a file `latest`");
  }
  if (place.edit->of_latest && at != std::string::npos) {
    return BadInput("expected no number of saves: there is one file `latest`");
  }
  return place;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The step that a text names as `latest` does, of those below `root`.
std::optional<int64_t> StepNamed(const std::string& root, std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (!text.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = ParseIndex(text.substr(kStepPrefix.size()), INT64_MAX, "the step");
  std::error_code error;
  const bool is_there = step.ok() && fs::is_directory(root + "/" + text, error);
  return is_there ? std::optional(step.value()) : std::nullopt;
}

/// Names of a directory's files, those in its folders too, sorted.
std::vector<std::string> FilesBelow(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_regular_file(error))
      names.push_back(it->path().string().substr(directory.size() + 1));
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// What a list of a manifest says: a digest is a number, whatever case its digits have.
Json WhatItSays(Json list) {
  if (!list.is_object()) return list;
  for (auto& entry : list) {
    if (!entry.is_object() || !entry.contains("digest") || !entry["digest"].is_string()) continue;
    auto& digits = entry["digest"].get_ref<std::string&>();
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](unsigned char c) { return c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c; });
  }
  return list;
}

/// Whether a manifest says the same, but for the digest's name, which is for people.
bool SaysTheSame(const std::string& sound, const std::string& shown) {
  Json lists = Json::parse(sound, nullptr, false);
  const Json others = Json::parse(shown, nullptr, false);
  if (!lists.is_object() || !others.is_object()) return false;
  lists.erase("digest");
  for (const auto& [name, list] : lists.items()) {
    const auto other = others.find(name);
    if (other == others.end() || WhatItSays(list) != WhatItSays(*other)) return false;
  }
  return true;
}

/// A file that is to be damaged.
struct Target {
  std::string path;
  std::string name;  ///< within its checkpoint
};

/// Whether a restore need not see it: a manifest that says the same, or that a save need not have;
/// a file that no manifest of its folder names.
bool IsHarmless(const Target& target, const std::string& directory, bool is_step,
                const std::string& sound, const Shown& shown) {
  const fs::path name(target.name);
  if (name.filename() == kManifest) {
    if (!shown) return !is_step || name.has_parent_path();
    return SaysTheSame(sound, *shown);
  }
  for (fs::path folder = name.parent_path();; folder = folder.parent_path()) {
    const std::string text = ReadAll((directory / folder / kManifest).string());
    const Json manifest = Json::parse(text, nullptr, false);
    const std::string within = name.lexically_relative(folder.empty() ? "." : folder).string();
    const auto files = manifest.is_object() ? manifest.find("files") : manifest.end();
    if (files != manifest.end() && files->contains(within)) return false;
    if (folder.empty()) return true;
  }
}

class DamagedSave : public FilesDecorator {
 public:
  DamagedSave(std::shared_ptr<FileSystem> inner, const FaultSite& site, const Place& place)
      : FilesDecorator(std::move(inner)),
        root_(site.save_to),
        place_(place),
        stage_(site.stage),
        log_(site.log) {
    if (site.test_case.steps == 0) return;
    const auto steps = site.test_case.SavedSteps();
    step_ = steps[steps.size() - 1 - static_cast<size_t>(place.back)];
  }

  Result<std::shared_ptr<const MappedFile>> Map(const std::string& path) override {
    if (!IsStruck(path)) return inner_->Map(path);
    if (auto shown = Strike()) return MapText(*std::move(shown));
    return NoFile(path);
  }
  Result<std::string> ReadText(const std::string& path, uint64_t bytes_max) override {
    if (!IsStruck(path)) return inner_->ReadText(path, bytes_max);
    auto shown = Strike();
    if (!shown) return NoFile(path);
    if (shown->size() <= bytes_max) return *std::move(shown);
    return BadInput(
        fmt::format("{}: expected at most {} bytes, found {}", path, bytes_max, shown->size()));
  }
  bool Exists(const std::string& path) override {
    return (!IsStruck(path) || !IsGone() || Strike()) && inner_->Exists(path);
  }
  Result<std::vector<std::string>> List(const std::string& directory) override {
    auto names = inner_->List(directory);
    if (!names.ok() || !IsGone()) return names;
    std::erase_if(names.value(), [&](const std::string& name) {
      return IsStruck(directory + "/" + name) && !Strike();
    });
    return names;
  }

 private:
  static Error NoFile(const std::string& path) {
    return BadInput(path + ": cannot be read: No such file or directory");
  }

  bool IsGone() const { return place_.edit->make == Gone; }

  std::string Directory() const {
    return step_ ? fmt::format("{}/{}{:08}", root_, kStepPrefix, *step_) : root_;
  }

  /// While a job restores; what is gone of an older save, as soon as there is a newer one.
  bool IsTime() const {
    if (stage_() == NameOf(Stage::kRestored)) return true;
    if (!IsGone() || place_.back == 0) return false;
    const auto latest = StepNamed(root_, ReadAll(root_ + "/" + kLatest));
    return latest && *latest > *step_;
  }

  bool IsStruck(const std::string& path) const {
    if (!path.starts_with(root_ + "/") || !IsTime()) return false;
    const auto target = FindTarget();
    return target && target->path == path;
  }

  std::optional<Target> FindTarget() const {
    if (place_.edit->of_latest) return Target{root_ + "/" + kLatest, kLatest};
    const auto names = FilesBelow(Directory());
    if (names.empty()) return std::nullopt;
    const std::string& name = names[place_.n % names.size()];
    return Target{Directory() + "/" + name, name};
  }

  /// \pre IsStruck
  Shown Strike() {
    const Target target = *FindTarget();
    const std::string sound = ReadAll(target.path);
    const uint64_t n =
        place_.edit->of_latest ? place_.n : place_.n / FilesBelow(Directory()).size();
    const Shown shown = place_.edit->make == nullptr ? Older() : place_.edit->make(sound, n);
    if (is_logged_.exchange(true)) return shown;
    FaultRecord record{.file = target.name, .step = step_, .absent = !shown};
    if (place_.edit->of_latest) {
      record.step = StepNamed(root_, shown.value_or(""));
      record.harmless = record.step == StepNamed(root_, sound);
    } else {
      record.harmless = IsHarmless(target, Directory(), step_.has_value(), sound, shown);
    }
    const bool is_of_step = step_ && !place_.edit->of_latest;
    record.detail =
        fmt::format("{}{} {}", target.name, is_of_step ? fmt::format(" of step {}", *step_) : "",
                    place_.edit->in_words);
    log_(record);
    return shown;
  }

  /// A text that names the n-th step before the last.
  Shown Older() const {
    std::vector<std::string> steps;
    std::error_code error;
    for (fs::directory_iterator it(root_, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (StepNamed(root_, name).value_or(INT64_MAX) < *step_) steps.push_back(name);
    }
    if (steps.empty()) return ReadAll(root_ + "/" + kLatest);
    std::sort(steps.rbegin(), steps.rend());
    return steps[place_.n % steps.size()] + "\n";
  }

  const std::string root_;
  const Place place_;
  const std::function<std::string()> stage_;
  const FaultLog log_;
  std::optional<int64_t> step_;  ///< whose save it is, if the job takes steps
  std::atomic<bool> is_logged_ = false;
};

std::string InWords(const Case& test_case, const std::string& where) {
  const auto parsed = Parse(test_case, where);
  if (!parsed.ok()) return "";
  const Place& place = parsed.value();
  if (place.edit->of_latest) {
    return fmt::format("where a job is restored, the file that names the newest save {} ({})",
                       place.edit->in_words, place.n);
  }
  const std::string which =
      place.back == 0 ? "of the newest save"
                      : fmt::format("of the {} save before the newest", Ordinal(place.back));
  return fmt::format("{}, the {} file, by their names, {} when it is restored", which,
                     Ordinal(static_cast<int64_t>(place.n) + 1), place.edit->in_words);
}

const FaultRegistration kRegistration{{
    .id = "file/damage-save",
    .what = "a file of what a job has saved itself is damaged when the job restores it",
    .where = "EDIT:N or EDIT:N@K: what is done (gone, cut, tail, flip) to the N-th file, wrapping "
             "around, of the last save or the K-th before it; or to the file that names the newest "
             "step (latest-gone, latest-cut, latest-flip, latest-older): cut:3, gone:0@1",
    .example = {"cut:3",
                "of the newest save, the fourth file, by their names, is cut short when it is "
                "restored"},
    .model = FaultModel::kMustRecover,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>&,
                const std::string& where) -> Status {
      SP_TRY(Parse(test_case, where));
      return Ok();
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          const Place place = Parse(site.test_case, where).value();
          site.world.files = std::make_shared<DamagedSave>(site.world.files, site, place);
        },
    .in_words = InWords,
    .tried_at = {"gone:0",    "gone:1",     "gone:2",     "gone:3",     "cut:0",
                 "cut:1",     "cut:402",    "cut:4003",   "tail:0",     "tail:1",
                 "tail:2",    "tail:3",     "flip:0",     "flip:1",     "flip:402",
                 "flip:4003", "flip:40004", "flip:77777", "flip:88888", "flip:99999"},
}};

}  // namespace
}  // namespace shardproof::faults::file_damage_save
