#include "src/checkpoint/save.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "src/checkpoint/dcp.h"
#include "src/checkpoint/manifest.h"
#include "src/checkpoint/paths.h"
#include "src/checkpoint/steps.h"
#include "src/checkpoint/write_whole.h"
#include "src/model/host_bytes.h"
#include "src/pickle/pickle.h"

namespace shardproof {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr std::array kCopied = {"config.json", "generation_config.json"};
constexpr uint64_t kSideFileBytesMax = 64u << 20;
constexpr uint64_t kStagedBytesMax = 4u << 20;  // at a time, out of memory that no file takes

/// Whether a save could have written a file of this name.
bool IsOfACheckpoint(const std::string& name) {
  return name == kIndexName || name == kDcpMetadataName || name == kAdapterFolder ||
         name == kManifestName ||
         std::find(kCopied.begin(), kCopied.end(), name) != kCopied.end() ||
         (name.starts_with("model-") && name.ends_with(".safetensors")) ||
         (name.starts_with("__") && name.ends_with(".distcp"));
}

/// What makes the adapter loadable by others.
Status WriteAdapterConfig(const Job& job, const std::string& directory, FileSystem& files) {
  std::string text;
  if (job.lora) {
    text = LoraToConfig(*job.lora);
  } else {
    SP_ASSIGN(text, files.ReadText(job.adapter + "/" + kAdapterConfigName, kSideFileBytesMax));
  }
  return WriteWhole(files, directory + "/" + kAdapterConfigName, text);
}

/// What makes the directory loadable by those who build the model from it.
Status CopyConfigs(const Job& job, const std::string& directory, FileSystem& files) {
  const std::string source = NewestStepOf(files, job.checkpoint);
  for (const char* name : kCopied) {
    const std::string from = source + "/" + name;
    if (!files.Exists(from)) continue;
    SP_ASSIGN(const std::string text, files.ReadText(from, kSideFileBytesMax));
    SP_TRY(WriteWhole(files, directory + "/" + name, text));
  }
  return Ok();
}

/// The index, and the configs.
Status WriteSideFiles(const std::vector<SavedFile>& plan, const Job& job,
                      const std::string& directory, FileSystem& files) {
  nlohmann::ordered_json index;
  uint64_t total = 0;
  index["metadata"]["total_size"] = 0;
  index["weight_map"] = nlohmann::ordered_json::object();
  for (const SavedFile& file : plan) {
    if (file.IsAdapter()) continue;
    total += file.size - file.header.size();
    for (const SavedTensor& tensor : file.tensors) {
      index["weight_map"][tensor.key] = file.name;
    }
  }
  index["metadata"]["total_size"] = total;
  SP_TRY(WriteWhole(files, directory + "/" + kIndexName, index.dump(2) + "\n"));
  SP_TRY(CopyConfigs(job, directory, files));
  if (!plan.back().IsAdapter()) return Ok();
  return WriteAdapterConfig(job, directory + "/" + kAdapterFolder, files);
}

/// Rank 0 makes the directory and its files, at full size and with headers.
Status MakeFiles(const std::vector<SavedFile>& plan, const std::string& staging,
                 FileSystem& files) {
  SP_TRY(files.MakeDirectory(staging));
  if (plan.back().IsAdapter()) SP_TRY(files.MakeDirectory(staging + "/" + kAdapterFolder));
  for (const SavedFile& file : plan) SP_TRY(files.Create(staging + "/" + file.name, file.size));
  return Ok();
}

Status WriteTensor(const SavedTensor& tensor, OutputFile& file) {
  const Slot& slot = *tensor.slot;
  const uint64_t element = slot.ElementBytes();
  const auto* data = reinterpret_cast<const char*>(HostBytes(slot));
  std::string staged;
  uint64_t local = 0;
  for (const ElementRun& run : slot.shard.runs) {
    for (uint64_t i = 0; i < run.count; ++i, local += run.length * element) {
      const uint64_t begin = (run.start + i * run.stride) * element;
      const uint64_t from = std::max(begin, tensor.start);
      const uint64_t to = std::min(begin + run.length * element, tensor.start + tensor.length);
      if (from >= to) continue;
      if (data != nullptr) {
        SP_TRY(file.WriteAt(tensor.offset + (from - tensor.start),
                            {data + local + (from - begin), to - from}));
        continue;
      }
      for (uint64_t done = from; done < to; done += staged.size()) {
        staged.resize(std::min(to - done, kStagedBytesMax));
        slot.CopyOut(local + (done - begin), staged.data(), staged.size());
        SP_TRY(file.WriteAt(tensor.offset + (done - tensor.start), staged));
      }
    }
  }
  return Ok();
}

}  // namespace

Status CheckReplaceable(FileSystem& files, const std::string& directory) {
  if (!files.Exists(directory)) return Ok();
  SP_ASSIGN(const auto names, files.List(directory));
  if (names.empty()) return Ok();
  // A step that is damaged is saved again when its job has gone back to an older one.
  const bool is_step = StepOfName(directory.substr(directory.find_last_of('/') + 1)).has_value();
  if (!is_step && !files.Exists(directory + "/" + kIndexName) &&
      !files.Exists(directory + "/" + kDcpMetadataName)) {
    return BadInput(directory + ": exists and holds neither " + kIndexName + " nor " +
                    kDcpMetadataName +
                    ": a save replaces only a checkpoint with one of them, or an empty directory");
  }
  const auto complain = [&](const std::string& name) {
    return BadInput(directory + ": holds '" + name +
                    "', which no save writes and replacing the directory would delete");
  };
  for (const std::string& name : names) {
    if (!IsOfACheckpoint(name)) return complain(name);
  }
  const std::string adapter = directory + "/" + kAdapterFolder;
  if (!files.Exists(adapter)) return Ok();
  SP_ASSIGN(const auto of_adapter, files.List(adapter));
  for (const std::string& name : of_adapter) {
    if (name == kAdapterConfigName || name == kAdapterFileName || name == kManifestName) continue;
    return complain(std::string(kAdapterFolder) + "/" + name);
  }
  return Ok();
}

Status WriteShards(const Model& model, const Job& job, const std::string& directory, World& world) {
  const std::vector<int64_t> coordinates = job.mesh.CoordinatesOf(world.rank());
  for (const SavedFile& planned :
       PlanFiles(model, job.max_file_bytes, world.communicator->world_size())) {
    SP_ASSIGN(const auto file, world.files->OpenForWrite(directory + "/" + planned.name));
    if (world.rank() == 0) SP_TRY(file->WriteAt(0, planned.header));
    for (const SavedTensor& tensor : planned.tensors) {
      if (!IsFirstReplica(tensor.slot->placements, coordinates)) continue;
      if (auto written = WriteTensor(tensor, *file); !written.ok()) {
        return written.error().While("saving tensor '" + tensor.key + "'");
      }
    }
    SP_TRY(file->Sync());
  }
  return Ok();
}

Status CommitByRename(const std::string& staging, const std::string& target, World& world) {
  FileSystem& files = *world.files;
  const std::string parent = ParentOf(target);
  const std::string adapter = staging + "/" + kAdapterFolder;
  if (files.Exists(adapter)) SP_TRY(files.SyncDirectory(adapter));
  SP_TRY(files.SyncDirectory(staging));
  if (!files.Exists(target)) {
    SP_TRY(files.Rename(staging, target));
    return files.SyncDirectory(parent);
  }
  SP_TRY(files.Exchange(staging, target));
  SP_TRY(files.SyncDirectory(parent));
  return files.RemoveTree(staging);  // now the previous checkpoint
}

namespace {

/// What the manifests of planned files say: an adapter, which is loaded by itself, has one of its
/// own.
std::vector<Sealing> SealingsOf(const std::vector<SavedFile>& plan, const Job& job,
                                const World& world) {
  const std::vector<int64_t> coordinates = job.mesh.CoordinatesOf(world.rank());
  std::vector<Sealing> sealings(1);
  sealings[0].files.push_back(kIndexName);
  for (const SavedFile& file : plan) {
    if (file.IsAdapter()) sealings.push_back({.folder = kAdapterFolder});
    Sealing& sealing = sealings.back();
    sealing.files.push_back(file.IsAdapter() ? kAdapterFileName : file.name);
    for (const SavedTensor& tensor : file.tensors) {
      sealing.tensors.push_back({tensor.key, tensor.slot.get(), tensor.shape, tensor.start,
                                 tensor.length,
                                 IsFirstReplica(tensor.slot->placements, coordinates)});
    }
  }
  return sealings;
}

/// The same of a directory of torch.distributed.checkpoint.
Result<Sealing> SealingOf(const StateDict& state, const Job& job, const World& world) {
  const std::vector<int64_t> coordinates = job.mesh.CoordinatesOf(world.rank());
  Sealing sealing;
  sealing.files.push_back(kDcpMetadataName);
  for (int64_t rank = 0; rank < world.communicator->world_size(); ++rank) {
    sealing.files.push_back(DcpFileName(rank));
  }
  for (const StateTensor& tensor : state.tensors) {
    const Slot& slot = *tensor.slot;
    const bool is_own = tensor.only_rank >= 0 ? tensor.only_rank == world.rank()
                                              : IsFirstReplica(slot.placements, coordinates);
    uint64_t length = slot.ElementBytes();
    for (const int64_t size : slot.spec.shape) length *= static_cast<uint64_t>(size);
    for (const StatePath& path : tensor.paths) {
      sealing.tensors.push_back({FlatKey(path), &slot, slot.spec.shape, 0, length, is_own});
    }
  }
  for (const StateValue& value : state.values) {
    SP_ASSIGN(const pickle::Pickle read, pickle::ReadPickle(value.pickle, FlatKey(value.path)));
    SP_ASSIGN(const std::string text, pickle::TextOf(read.root()));
    sealing.values[FlatKey(value.path)] = DigestOfText(text);
  }
  return sealing;
}

/// A save in a format: what is common to them.
class Saver : public SaveUnderWay {
 public:
  Saver(const Model& model, const Stages& stages, const Job& job, World& world)
      : model_(model),
        stages_(stages),
        job_(job),
        written_(std::make_shared<DigestedFiles>(world.files)),
        world_(world),
        target_(WithoutSlashAtEnd(job.save_to)),
        staging_(target_ + kDraftSuffix) {  // beside it, not in it
    world_.files = written_;
  }

  Status Begin() {
    SP_TRY(Plan());
    Status status = Leads() ? CheckReplaceable(Files(), target_) : Ok();
    SP_TRY(Agree(*world_.communicator, status, "looking at what is to be replaced"));
    if (Leads()) status = Files().RemoveTree(staging_);  // what a killed save left behind
    if (Leads() && status.ok()) status = Prepare();
    return AgreeOrCleanUp(status, "preparing the save");
  }

  Status Write() override {
    SP_TRY(WriteOwn());
    return Leads() ? WriteSide() : Ok();
  }

  Status Finish(const Status& written) override {
    // Nothing is committed unless every rank's bytes are durable.
    SP_TRY(AgreeOrCleanUp(written, "writing the checkpoint"));
    SP_TRY(AgreeOrCleanUp(WriteManifests(sealings_, staging_, *written_, stages_, world_),
                          "writing the manifest"));
    const Status committed = Leads() ? stages_.commit(staging_, target_, world_) : Ok();
    return Agree(*world_.communicator, committed, "committing the checkpoint");
  }

 protected:
  /// What is to be written, and what the manifests are to say of it: alike on every rank.
  virtual Status Plan() = 0;
  /// On rank 0: the directory.
  virtual Status Prepare() = 0;
  /// On every rank: its own bytes.
  virtual Status WriteOwn() = 0;
  /// On rank 0: what says what they are.
  virtual Status WriteSide() = 0;

  FileSystem& Files() { return *world_.files; }

  const Model& model_;
  const Stages& stages_;
  const Job job_;
  const std::shared_ptr<DigestedFiles> written_;
  World world_;
  const std::string target_;
  const std::string staging_;
  std::vector<Sealing> sealings_;

 private:
  bool Leads() const { return world_.rank() == 0; }

  Status AgreeOrCleanUp(const Status& own, const std::string& what) {
    Status agreed = Agree(*world_.communicator, own, what);
    if (!agreed.ok() && Leads())
      (void)Files().RemoveTree(staging_);  // the first error is the one to tell
    return agreed;
  }
};

class SafetensorsSaver : public Saver {
 public:
  using Saver::Saver;

 private:
  Status Plan() override {
    plan_ = PlanFiles(model_, job_.max_file_bytes, world_.communicator->world_size());
    sealings_ = SealingsOf(plan_, job_, world_);
    return Ok();
  }
  Status Prepare() override { return MakeFiles(plan_, staging_, Files()); }
  Status WriteOwn() override { return stages_.write_shards(model_, job_, staging_, world_); }
  Status WriteSide() override { return WriteSideFiles(plan_, job_, staging_, Files()); }

  std::vector<SavedFile> plan_;
};

class DcpSaver : public Saver {
 public:
  using Saver::Saver;

 private:
  Status Plan() override {
    state_ = stages_.state_of(model_, world_);
    SP_ASSIGN(Sealing sealing, SealingOf(state_, job_, world_));
    sealings_.push_back(std::move(sealing));
    return Ok();
  }
  Status Prepare() override {
    SP_TRY(Files().MakeDirectory(staging_));
    return job_.HasAdapter() ? Files().MakeDirectory(staging_ + "/" + kAdapterFolder) : Ok();
  }
  Status WriteOwn() override {
    return stages_.write_dcp(state_, stages_.plan_dcp(state_, job_, stages_, world_.rank()),
                             staging_, world_);
  }
  Status WriteSide() override {
    std::vector<DcpFile> plan;
    for (int64_t rank = 0; rank < world_.communicator->world_size(); ++rank) {
      plan.push_back(stages_.plan_dcp(state_, job_, stages_, rank));
    }
    SP_TRY(WriteWhole(Files(), staging_ + "/" + kDcpMetadataName, DcpMetadata(state_, plan)));
    SP_TRY(CopyConfigs(job_, staging_, Files()));
    if (!job_.HasAdapter()) return Ok();
    return WriteAdapterConfig(job_, staging_ + "/" + kAdapterFolder, Files());
  }

  StateDict state_;
};

}  // namespace

Result<std::unique_ptr<SaveUnderWay>> BeginSave(const Model& model, const Stages& stages,
                                                const Job& job, World& world) {
  std::unique_ptr<Saver> saver;
  if (job.format == SaveFormat::kDcp)
    saver = std::make_unique<DcpSaver>(model, stages, job, world);
  else
    saver = std::make_unique<SafetensorsSaver>(model, stages, job, world);
  SP_TRY(saver->Begin());
  return std::unique_ptr<SaveUnderWay>(std::move(saver));
}

Status SaveModel(const Model& model, const Stages& stages, const Job& job, World& world) {
  SP_ASSIGN(const auto save, BeginSave(model, stages, job, world));
  return save->Finish(save->Write());
}

}  // namespace shardproof
