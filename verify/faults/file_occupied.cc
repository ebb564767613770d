// What is in the way of a save: where it goes lies what no save has written.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "src/seam/decorators.h"
#include "verify/fault/fault.h"
#include "verify/faults/edit_where.h"

namespace shardproof::faults::file_occupied {
namespace {

// What is judged must not say what it may replace: the names that a save gives, once more.
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kMetadata = ".metadata";

using Names = std::vector<std::string>;
/// What lies in a folder, and in the folders within it: names, by the folder ("" is itself).
using Content = std::map<std::string, Names>;

/// Names that no save gives, some of which look as if.
const std::string& Foreign(uint64_t n) {
  static const Names names = {"notes.txt",
                              "model.safetensors",
                              "model-00001-of-00002.bin",
                              "my-model-00001.safetensors",
                              "__0_0.distcp.part",
                              "0_0.distcp",
                              "config.json~",
                              "adapter_model.safetensors",
                              "state-00001-of-00001.safetensors",
                              "values.json",
                              "optimizer"};
  return names[n % names.size()];
}

/// The same of the folders of a save.
const std::string& ForeignInFolder(uint64_t n) {
  static const Names names = {"notes.txt", "model-00001-of-00001.safetensors", "config.json",
                              "state-00001.bin", "old-state-00001.safetensors"};
  return names[n % names.size()];
}

const char* Folder(uint64_t n) { return n % 2 == 0 ? "adapter" : "training"; }

/// What a save may leave but for what says that it is one.
Names Shards() { return {"__0_0.distcp", "config.json", "model-00001-of-00001.safetensors"}; }

enum class Of { kFile, kFolder, kRoot };

struct Form {
  const char* name;
  const char* in_words;  ///< after "it saves to"
  Content (*content)(uint64_t n);
  Of of = Of::kFolder;
  bool is_own = false;  ///< whether a save may have left each name
};

constexpr Form kForms[] = {
    {"file", "what is a file", [](uint64_t) { return Content(); }, Of::kFile},
    {"foreign", "a folder of somebody's files",
     [](uint64_t n) {
       return Content{{"", {Foreign(n)}}};
     }},
    {"beside-index", "a checkpoint with a file that no save writes",
     [](uint64_t n) {
       return Content{{"", {kIndex, Foreign(n)}}};
     }},
    {"beside-metadata", "a checkpoint of DCP with a file that no save writes",
     [](uint64_t n) {
       return Content{{"", {kMetadata, Foreign(n)}}};
     }},
    {"in-folder", "a checkpoint with a file in its folders that no save writes",
     [](uint64_t n) {
       return Content{{"", {kIndex, Folder(n)}}, {Folder(n), {ForeignInFolder(n / 2)}}};
     }},
    {"shards", "what is left of a checkpoint",
     [](uint64_t) {
       return Content{{"", Shards()}};
     },
     Of::kFolder, true},
    {"empty", "an empty folder",
     [](uint64_t) {
       return Content{{"", {}}};
     },
     Of::kFolder, true},
    {"root", "a folder without steps, but of somebody's files",
     [](uint64_t n) {
       return Content{{"", {Foreign(n)}}};
     },
     Of::kRoot},
};

struct Place {
  const Form* form = nullptr;
  uint64_t n = 0;
};

Result<Place> Parse(const Case& test_case, const std::string& where) {
  Names names;
  for (const Form& form : kForms) names.emplace_back(form.name);
  SP_ASSIGN(const EditAndNumber parsed, ParseEdit(where, names));
  const auto number = std::find(names.begin(), names.end(), parsed.edit) - names.begin();
  const Place place{&kForms[number], parsed.n};
  if (place.form->of == Of::kRoot && test_case.steps == 0) {
    return BadInput("expected a job that takes steps: no other saves them below a root");
  }
  return place;
}

bool IsIn(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Shows it where the job saves, in the place of what an earlier job has left there, until the job
/// takes the place.
class OccupiedFiles : public FilesDecorator {
 public:
  OccupiedFiles(std::shared_ptr<FileSystem> inner, const FaultSite& site, const Place& place)
      : FilesDecorator(std::move(inner)),
        form_(*place.form),
        content_(form_.content(place.n)),
        is_step_(site.test_case.steps > 0 && form_.of != Of::kRoot),
        target_(site.save_to),
        log_(site.log) {
    if (is_step_) target_ += fmt::format("/step-{:08}", site.test_case.SavedSteps().back());
  }

  bool Exists(const std::string& path) override {
    const auto within = Within(path);
    if (!within) return inner_->Exists(path);
    Meet();
    return IsShown(*within);
  }
  Result<Names> List(const std::string& directory) override {
    const auto within = Within(directory);
    if (!within) return inner_->List(directory);
    Meet();
    const auto names = content_.find(*within);
    if (names != content_.end()) return names->second;
    return BadInput(directory + ": cannot be listed: Not a directory");
  }
  Status Create(const std::string& path, uint64_t size) override {
    Take(path);
    return inner_->Create(path, size);
  }
  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    Take(path);
    return inner_->OpenForWrite(path);
  }
  Status MakeDirectory(const std::string& path) override {
    if (IsTarget(path)) return Failed(fmt::format("making directory {}: File exists", path));
    Take(path);
    return inner_->MakeDirectory(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    if (IsTarget(to)) return Failed(fmt::format("renaming {} to {}: File exists", from, to));
    Take(from);
    return inner_->Rename(from, to);
  }
  Status Replace(const std::string& from, const std::string& to) override {
    Take(to);
    return inner_->Replace(from, to);
  }
  Status Exchange(const std::string& a, const std::string& b) override {
    const bool is_a = IsTarget(a), is_b = IsTarget(b);
    Take(is_a ? a : b);
    if ((is_a || is_b) && !inner_->Exists(target_)) return inner_->Rename(is_a ? b : a, target_);
    return inner_->Exchange(a, b);
  }
  Status RemoveTree(const std::string& path) override {
    Take(path);
    return inner_->RemoveTree(path);
  }

 private:
  /// The path from the target on, while it is shown; "" is the target.
  std::optional<std::string> Within(const std::string& path) const {
    if (is_there_ && path == target_) return "";
    if (!is_there_ || !path.starts_with(target_ + "/")) return std::nullopt;
    return path.substr(target_.size() + 1);
  }

  bool IsShown(const std::string& within) const {
    const size_t slash = within.rfind('/');
    const auto folder = content_.find(slash == std::string::npos ? "" : within.substr(0, slash));
    return within.empty() ||
           (folder != content_.end() && IsIn(folder->second, within.substr(slash + 1)));
  }

  bool IsTarget(const std::string& path) {
    if (Within(path) != "") return false;
    Meet();
    return true;
  }

  /// Whether a save may replace it: whatever there is of a step; else nothing.
  bool IsReplaceable() const { return form_.is_own && (is_step_ || content_.at("").empty()); }

  FaultRecord Record() const {
    return {.detail = fmt::format("{} is {}", target_, form_.in_words), .file = target_};
  }

  /// Logged before it is seen for the first time.
  void Meet() {
    if (is_met_.exchange(true)) return;
    FaultRecord record = Record();
    record.harmless = IsReplaceable();
    log_(record);
  }

  /// The job changes what is there, which is then no longer as it was.
  void Take(const std::string& path) {
    if (!Within(path)) return;
    Meet();
    is_there_ = false;
    if (IsReplaceable()) return;
    FaultRecord record = Record();
    record.absent = true;
    log_(record);
  }

  const Form& form_;
  const Content content_;
  const bool is_step_;
  std::string target_;
  const FaultLog log_;
  std::atomic<bool> is_there_ = true;
  std::atomic<bool> is_met_ = false;
};

Names OneOfEach() {
  Names places;
  for (const Form& form : kForms) {
    if (form.of == Of::kRoot) continue;
    const uint64_t count = form.content(0) == form.content(1) ? 1 : 4;
    for (uint64_t n = 0; n < count; ++n) places.push_back(fmt::format("{}:{}", form.name, n));
  }
  return places;
}

const FaultRegistration kRegistration{{
    .id = "file/occupied",
    .what = "where the job saves lies what no save has written, or nothing but an empty folder or "
            "what a save may replace",
    .where = "EDIT:N: what it is (file, foreign, beside-index, beside-metadata, in-folder, shards, "
             "empty; of a job that takes steps, root), with the N-th name, wrapping around: "
             "beside-index:3",
    .example = {"beside-index:3",
                "where the job saves lies what no save has written, or nothing but an empty folder "
                "or what a save may replace (beside-index:3)"},
    .model = FaultModel::kMustSpare,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>&,
                const std::string& where) -> Status {
      SP_TRY(Parse(test_case, where));
      return Ok();
    },
    // Rank 0 is who looks, and who commits.
    .arm =
        [](FaultSite site, const std::string& where) {
          if (site.world.rank() != 0) return;
          const Place place = Parse(site.test_case, where).value();
          site.world.files = std::make_shared<OccupiedFiles>(site.world.files, site, place);
        },
    .on_any_device = true,
    .tried_at = OneOfEach(),
}};

}  // namespace
}  // namespace shardproof::faults::file_occupied
