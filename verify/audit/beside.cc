#include "verify/audit/beside.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>

#include "verify/audit/reading.h"
#include "verify/formats/archive.h"
#include "verify/formats/stored.h"
#include "verify/oracle/header.h"
#include "verify/oracle/json.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

using formats::StoredCheckpoint;

constexpr size_t kNameBytesMax = 255;
constexpr uint64_t kJsonBytesMax = 256u << 20;

/// A bare pickle: torch.save before 1.6, or pickle.dump. It may well be sound, and is not read.
bool IsPickle(const std::string& path) {
  const auto file = oracle::InputFile::Open(path);
  char first = 0;
  return file.ok() && file.value()->size() > 0 && file.value()->ReadAt(0, 1, &first).ok() &&
         first == '\x80';
}

bool IsZip(const std::string& path) {
  const auto file = oracle::InputFile::Open(path);
  char magic[4] = {};
  return file.ok() && file.value()->size() >= sizeof magic &&
         file.value()->ReadAt(0, sizeof magic, magic).ok() &&
         std::string_view(magic, 4) == "PK\3\4";
}

/// Reads one file; what is wrong with it goes to `damage`.
FileBeside ReadOne(const std::string& name, const StoredCheckpoint& stored, AuditSums sums,
                   std::vector<std::string>& damage) {
  AuditResult read;
  Describe(stored, read);
  ReadAll(stored, sums, read);
  std::move(read.damage.begin(), read.damage.end(), std::back_inserter(damage));
  return {name, std::move(read.tensors), std::move(read.values)};
}

/// A file or folder that was opened, or why it could not be.
void TakeBeside(const std::string& name, const Result<StoredCheckpoint>& stored, AuditSums sums,
                std::vector<std::string> damage, AuditResult& result) {
  if (stored.ok()) {
    result.beside.push_back(ReadOne(name, stored.value(), sums, damage));
    for (const auto& [opaque, count] : stored.value().opaque) result.opaque[opaque] += count;
    for (const std::string& line : stored.value().unjudged)
      result.remarks.push_back("not judged, no part of the model: " + line);
  } else {
    // Of another kind: TorchScript, or what would run programs.
    if (stored.error().code != ErrorCode::kUnsupported) damage.push_back(stored.error().message);
    result.unread.push_back(name);
  }
  std::move(damage.begin(), damage.end(), std::back_inserter(result.damage));
}

/// trainer_state.json and config.json are cut short as easily as any other file.
void CheckJson(AuditResult& result) {
  for (const char* name : {"trainer_state.json", "config.json"}) {
    const std::string path = result.path + "/" + name;
    if (!oracle::IsFile(path)) continue;
    const auto text = oracle::ReadWholeFile(path, kJsonBytesMax);
    simdjson::dom::parser parser;
    const Status read = text.ok() ? Status(Ok()) : Status(text.error());
    if (!read.ok()) {
      result.damage.push_back(read.error().message);
      continue;
    }
    const auto object = oracle::ParseObject(parser, path, text.value());
    if (!object.ok()) result.damage.push_back(object.error().message);
  }
}

}  // namespace

bool IsResumedFrom(const std::string& name) {
  static const std::regex kRoles(
      "(^|.*[/"
      "_.-])(optim|optimizer|sched|scheduler|lr_scheduler|rng|rng_state|random_states|scaler|"
      "sampler|common|dataloader|trainer_state|train_state|training_state|extra_state)"
      "([_.-].*|[0-9]*\\..*)?",
      std::regex::icase);
  return name.size() <= kNameBytesMax && std::regex_match(name, kRoles);
}

void ReadBeside(const formats::Beside& beside, AuditSums sums, AuditResult& result) {
  for (const std::string& name : beside.files) {
    const std::string path = result.path + "/" + name;
    const bool is_damaged =
        std::any_of(result.damage.begin(), result.damage.end(),
                    [&](const std::string& line) { return line.find(path) != std::string::npos; });
    if (is_damaged) continue;  // a part of the model, and told already
    if (formats::IsNamedAsArchive(name)) {
      result.unread.push_back(name);
      continue;
    }
    const bool is_safetensors = name.ends_with(".safetensors");
    if (!is_safetensors && !IsZip(path)) {
      const bool is_link_to_nothing = !oracle::Exists(path);
      if (IsResumedFrom(name) && !is_link_to_nothing && !IsPickle(path)) {
        result.damage.push_back(
            fmt::format("{}: expected a ZIP archive of torch.save, found a file of another kind",
                        oracle::Printable(path)));
      }
      result.unread.push_back(name);
      continue;
    }
    std::vector<std::string> damage;
    const auto stored = is_safetensors ? formats::OpenSafetensors(path, &damage)
                                       : formats::OpenTorchSave(path, &damage);
    TakeBeside(name, stored, sums, std::move(damage), result);
  }
  for (const std::string& folder : beside.folders) {
    std::vector<std::string> damage;
    const auto stored = formats::OpenStored(result.path + "/" + folder, &damage);
    TakeBeside(folder + "/", stored, sums, std::move(damage), result);
  }
  if (!beside.others.empty()) {
    result.remarks.push_back("not read, checkpoints of their own: " +
                             oracle::Printable(fmt::format("{}", fmt::join(beside.others, ", "))));
  }
  CheckJson(result);
}

}  // namespace shardproof
