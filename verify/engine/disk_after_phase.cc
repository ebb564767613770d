#include "verify/engine/disk_after_phase.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "src/checkpoint/paths.h"
#include "src/checkpoint/steps.h"
#include "verify/audit/audit.h"
#include "verify/audit/reading.h"
#include "verify/evidence/line_file.h"
#include "verify/oracle/oracle.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;

/// The model that an earlier job has saved.
Case EarlierJob() {
  Case earlier;
  earlier.model.files = 2;
  for (const char* name : {"an_earlier.weight", "an_earlier.bias"}) {
    TensorCase& tensor = earlier.model.tensors.emplace_back();
    tensor.name = name;
    tensor.shape = {3};
  }
  return earlier;
}

/// What of the earlier job's checkpoint is not as it was.
void HoldAgainstEarlier(const AuditResult& found, std::vector<std::string>& damage) {
  const fs::path twin =
      fs::temp_directory_path() / fmt::format("shardproof-earlier-{}", ::getpid());
  std::error_code error;
  fs::remove_all(twin, error);
  fs::create_directory(twin, error);
  const Status written = oracle::WriteSynthetic(EarlierJob(), twin.string());
  const auto expected = written.ok() ? Audit(twin.string()) : Result<AuditResult>(written.error());
  fs::remove_all(twin, error);
  if (!expected.ok()) {
    damage.push_back(expected.error().message);
    return;
  }
  for (const AuditedTensor& tensor : expected.value().tensors) {
    const auto same = std::find_if(
        found.tensors.begin(), found.tensors.end(),
        [&](const auto& one) { return one.name == tensor.name && one.digest == tensor.digest; });
    if (same != found.tensors.end()) continue;
    damage.push_back(fmt::format("tensor '{}' is not what the earlier job had saved", tensor.name));
  }
}

/// A digest of what an audit found by its names.
std::string ContentOf(const AuditResult& found) {
  std::string text;
  for (const AuditedTensor& tensor : found.tensors)
    text += tensor.name + '\0' + tensor.digest.Hex() + '\n';
  for (const AuditedValue& value : found.values)
    text += value.name + '\0' + value.digest.Hex() + '\n';
  return DigestOf(text).Hex();
}

/// Nothing, if nothing of a checkpoint is there.
std::optional<LeftCheckpoint> InspectOne(const std::string& directory, const std::string& name) {
  std::error_code error;
  if (!fs::exists(directory, error) || fs::is_empty(directory, error)) return std::nullopt;
  LeftCheckpoint left{.name = name};
  auto audited = Audit(directory);
  if (!audited.ok()) {
    left.damage.push_back(audited.error().message);
    return left;
  }
  AuditResult& found = audited.value();
  left.is_previous =
      std::any_of(found.tensors.begin(), found.tensors.end(),
                  [](const auto& tensor) { return tensor.name == "an_earlier.weight"; });
  if (left.is_previous) {
    HoldAgainstEarlier(found, found.damage);
  } else if (!fs::exists(SealPath(directory), error)) {
    found.damage.push_back("it has no manifest");
  } else if (const Status held = HoldAgainstSeal(SealPath(directory), found); !held.ok()) {
    found.damage.push_back(held.error().message);
  }
  left.content = ContentOf(found);
  left.damage = std::move(found.damage);
  return left;
}

}  // namespace

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status LeaveAsAnEarlierJob(const std::string& directory) {
  const Case earlier = EarlierJob();
  const std::string killed = directory + kDraftSuffix;
  std::error_code error;
  fs::remove_all(killed, error);
  for (const std::string& made : {directory, killed}) {
    if (!fs::create_directory(made, error)) {
      return BadInput(fmt::format("{}: cannot be made: {}", made, error.message()));
    }
    SP_TRY(oracle::WriteSynthetic(earlier, made));
  }
  fs::remove(killed + "/model.safetensors.index.json", error);  // what a save writes last
  return Ok();
}

Status LeaveStepsAsAnEarlierJob(const std::string& root, int64_t step) {
  std::error_code error;
  if (!fs::create_directory(root, error)) {
    return BadInput(fmt::format("{}: cannot be made: {}", root, error.message()));
  }
  const std::string name = StepName(step);
  SP_TRY(LeaveAsAnEarlierJob(root + "/" + name));
  SP_TRY(WriteFileAtomically(root + "/latest", name + "\n"));
  return WriteFileAtomically(root + "/latest.saving", "ste");
}

LeftRecord InspectLeft(const std::string& directory, bool trains, bool had_previous) {
  LeftRecord left{.had_previous = had_previous};
  const fs::path path(directory);
  const std::string own = path.filename().string();
  for (const std::string& name : NamesIn(path.parent_path().string())) {
    if (name == own + kDraftSuffix) left.drafts.push_back(name);
  }
  if (!trains) {
    if (auto one = InspectOne(directory, "")) left.checkpoints.push_back(std::move(*one));
    return left;
  }
  for (const std::string& name : NamesIn(directory)) {
    if (name.ends_with(kDraftSuffix)) {
      left.drafts.push_back(name);
    } else if (name == "latest") {
      std::ifstream file(path / name);
      std::getline(file, left.latest.emplace());
    } else if (auto one = InspectOne(directory + "/" + name, name)) {
      left.checkpoints.push_back(std::move(*one));
    }
  }
  return left;
}

LeftRecord InspectLeftBySubject(const std::string& directory, bool may_be_cut_short) {
  LeftRecord left;
  std::error_code error;
  if (!fs::exists(directory, error) || fs::is_empty(directory, error)) return left;
  auto audited = Audit(directory);
  if (!audited.ok() && may_be_cut_short) return left;
  LeftCheckpoint& one = left.checkpoints.emplace_back();
  if (!audited.ok()) {
    one.damage.push_back(audited.error().message);
    return left;
  }
  one.content = ContentOf(audited.value());
  one.damage = std::move(audited.value().damage);
  return left;
}

}  // namespace shardproof
