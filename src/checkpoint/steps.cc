#include "src/checkpoint/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "src/checkpoint/dcp.h"
#include "src/checkpoint/paths.h"
#include "src/format/file_names.h"
#include "src/manifest/manifest.h"
#include "src/storage/write_whole.h"
#include "src/text/quote.h"

namespace shardproof {
namespace {

using text::Printable;
using text::Quote;

constexpr std::string_view kPrefix = "step-";
constexpr size_t kDigitsMin = 8;
constexpr uint64_t kLatestBytesMax = 4096;

/// The step directories below a root, by their steps.
Result<std::map<int64_t, std::string>> StepsBelow(FileSystem& files, const std::string& root) {
  SP_ASSIGN(const auto names, files.List(root));
  std::map<int64_t, std::string> steps;
  for (const std::string& name : names) {
    if (const auto step = StepOfName(name)) steps.emplace(*step, name);
  }
  return steps;
}

/// Whether it is what a save of a step that was killed leaves.
bool IsDraftOfStep(std::string_view name) {
  if (!name.ends_with(kDraftSuffix)) return false;
  name.remove_suffix(std::string_view(kDraftSuffix).size());
  return StepOfName(name).has_value();
}

/// What "latest" names.
Result<std::string> ReadLatest(FileSystem& files, const std::string& root) {
  const std::string path = root + "/" + kLatestName;
  if (!files.Exists(path)) return BadInput(Printable(path) + ": expected it, found none");
  SP_ASSIGN(std::string name, files.ReadText(path, kLatestBytesMax));
  if (name.ends_with('\n')) name.pop_back();
  if (StepOfName(name)) return name;
  return BadInput(fmt::format("{}: expected the name of a step's directory, as {}, found {}",
                              Printable(path), StepName(1), Quote(name)));
}

/// Whether a step was committed in full and is all there, as far as names tell.
bool IsWhole(FileSystem& files, const std::string& directory) {
  const auto manifest = ReadManifest(files, directory);
  if (!manifest.ok() || manifest.value().files.empty()) return false;
  return std::all_of(manifest.value().files.begin(), manifest.value().files.end(),
                     [&](const auto& file) { return files.Exists(directory + "/" + file.first); });
}

}  // namespace

std::string StepName(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<int64_t> StepOfName(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  if (digits.size() < kDigitsMin || (digits.size() > kDigitsMin && digits[0] == '0')) {
    return std::nullopt;
  }
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || digits[0] == '-') {
    return std::nullopt;
  }
  return step;
}

bool IsStepRoot(FileSystem& files, const std::string& directory) {
  if (directory.empty()) return false;
  for (const char* of_a_checkpoint :
       {kDcpMetadataName, "model.safetensors", "model.safetensors.index.json", "config.json"}) {
    if (files.Exists(directory + "/" + of_a_checkpoint)) return false;
  }
  // Others have a file "latest", too.
  const auto steps = StepsBelow(files, directory);
  return (steps.ok() && !steps.value().empty()) || ReadLatest(files, directory).ok();
}

std::string NewestStepOf(FileSystem& files, const std::string& directory) {
  if (!IsStepRoot(files, directory)) return directory;
  const auto latest = ReadLatest(files, directory);
  return latest.ok() ? directory + "/" + latest.value() : directory;
}

Status CheckStepRoot(FileSystem& files, const std::string& root) {
  if (!files.Exists(root)) return Ok();
  SP_ASSIGN(const auto names, files.List(root));
  const bool has_draft = std::any_of(names.begin(), names.end(), IsDraftOfStep);
  if (files.List(root + "/" + kLatestName).ok()) {
    return BadInput(fmt::format("{}/{}: expected a file that names a step, found a directory",
                                Printable(root), kLatestName));
  }
  if (names.empty() || has_draft || IsStepRoot(files, root)) return Ok();
  return BadInput(fmt::format(
      "{}: exists and holds neither {} nor directories of steps, as {}: a training job saves its "
      "steps below such a directory, or an empty one",
      Printable(root), kLatestName, StepName(1)));
}

namespace {

/// That there is a root, to save the step that the job is at below it; and the job that does.
Result<Job> PrepareStep(const Model& model, const Job& job, World& world) {
  FileSystem& files = *world.files;
  Job step = job;
  const std::string root = WithoutSlashAtEnd(job.save_to);
  step.save_to = root + "/" + StepName(model.step);
  const auto prepare = [&]() -> Status {
    SP_TRY(CheckStepRoot(files, root));
    if (files.Exists(root)) return Ok();
    SP_TRY(files.MakeDirectory(root));
    return files.SyncDirectory(ParentOf(root));
  };
  SP_TRY(Agree(*world.communicator, world.rank() == 0 ? prepare() : Ok(),
               "preparing the root of saved steps"));
  return step;
}

/// What comes after the commit of a step.
Status MakeLatest(int64_t step, const Stages& stages, const Job& job, World& world) {
  const std::string root = WithoutSlashAtEnd(job.save_to);
  const auto finish = [&]() -> Status {
    SP_TRY(stages.move_latest(root, StepName(step), world));
    return stages.retain(root, job.training.keep, world);
  };
  return Agree(*world.communicator, world.rank() == 0 ? finish() : Ok(),
               "making the saved step the latest");
}

class StepSave : public SaveUnderWay {
 public:
  StepSave(std::unique_ptr<SaveUnderWay> save, int64_t step, const Stages& stages, const Job& job,
           World& world)
      : save_(std::move(save)), step_(step), stages_(stages), job_(job), world_(world) {}
  Status Write() override { return save_->Write(); }
  Status Finish(const Status& written) override {
    SP_TRY(save_->Finish(written));
    return MakeLatest(step_, stages_, job_, world_);
  }

 private:
  std::unique_ptr<SaveUnderWay> save_;
  const int64_t step_;
  const Stages& stages_;
  const Job job_;
  World world_;
};

}  // namespace

Status SaveStep(const Model& model, const Stages& stages, const Job& job, World& world) {
  SP_ASSIGN(const Job step, PrepareStep(model, job, world));
  SP_TRY(stages.save(model, stages, step, world));
  return MakeLatest(model.step, stages, job, world);
}

Result<std::unique_ptr<SaveUnderWay>> BeginStepSave(const Model& model, const Stages& stages,
                                                    const Job& job, World& world) {
  SP_ASSIGN(const Job step, PrepareStep(model, job, world));
  SP_ASSIGN(auto save, BeginSave(model, stages, step, world));
  return std::unique_ptr<SaveUnderWay>(
      std::make_unique<StepSave>(std::move(save), model.step, stages, job, world));
}

Status MoveLatest(const std::string& root, const std::string& step, World& world) {
  FileSystem& files = *world.files;
  const std::string path = root + "/" + kLatestName;
  const std::string draft = path + kDraftSuffix;
  SP_TRY(files.RemoveTree(draft));  // of a save that was killed
  SP_TRY(WriteWhole(files, draft, step + "\n"));
  SP_TRY(files.Replace(draft, path));
  return files.SyncDirectory(root);
}

Status RetainSteps(const std::string& root, int64_t keep, World& world) {
  FileSystem& files = *world.files;
  SP_ASSIGN(const std::string latest, ReadLatest(files, root));
  SP_ASSIGN(const auto steps, StepsBelow(files, root));
  int64_t kept = 0;
  // From the newest on; later ones than "latest" are not this job's.
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (step->first > *StepOfName(latest)) continue;
    const std::string directory = root + "/" + step->second;
    if (kept >= std::max<int64_t>(keep, 1) && step->second != latest) {
      SP_TRY(files.RemoveTree(directory));
      continue;
    }
    if (IsWhole(files, directory)) ++kept;
  }
  SP_ASSIGN(const auto names, files.List(root));
  for (const std::string& name : names) {
    if (IsDraftOfStep(name)) SP_TRY(files.RemoveTree(root + "/" + name));
  }
  return Ok();
}

Result<StepsToTry> FindSteps(FileSystem& files, const std::string& root) {
  SP_ASSIGN(const auto steps, StepsBelow(files, root));
  StepsToTry found;
  int64_t newest = INT64_MAX;
  const auto latest = ReadLatest(files, root);
  if (!latest.ok()) {
    found.complaint = latest.error().message;
  } else {
    newest = *StepOfName(latest.value());
    if (!steps.contains(newest)) {
      newest = INT64_MAX;
      found.complaint = fmt::format("{}/{}: names {}, which is not there", Printable(root),
                                    kLatestName, Quote(latest.value()));
    }
  }
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (step->first > newest) continue;
    // It is written before a step gets its name. What is older than a whole step may be on its way
    // out.
    if (files.Exists(root + "/" + step->second + "/" + kManifestName)) {
      found.names.push_back(step->second);
    } else if (found.names.empty()) {
      found.complaint +=
          fmt::format("{}{}/{}: expected {}, found none", found.complaint.empty() ? "" : "; ",
                      Printable(root), step->second, kManifestName);
    }
  }
  if (!found.names.empty()) return found;
  return BadInput(fmt::format("{}: expected directories of whole steps, as {}, found none{}{}",
                              Printable(root), StepName(1), found.complaint.empty() ? "" : "; ",
                              found.complaint));
}

}  // namespace shardproof
