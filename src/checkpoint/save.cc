#include "src/checkpoint/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/checkpoint/dcp.h"
#include "src/checkpoint/paths.h"
#include "src/checkpoint/steps.h"
#include "src/format/file_names.h"
#include "src/format/values_file.h"
#include "src/model/host_bytes.h"
#include "src/pickle/pickle.h"
#include "src/storage/write_whole.h"
#include "src/text/quote.h"

namespace shardproof {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr std::array kCopied = {"config.json", "generation_config.json"};
constexpr std::array kFolders = {kAdapterFolder, kTrainingFolder};
constexpr uint64_t kSideFileBytesMax = 64u << 20;

template <typename Names>
bool IsOneOf(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether a save could have written a file of this name.
bool IsOfACheckpoint(const std::string& name) {
  return name == kIndexName || name == kDcpMetadataName || name == kManifestName ||
         IsOneOf(kFolders, name) || IsOneOf(kCopied, name) ||
         (name.starts_with("model-") && name.ends_with(".safetensors")) ||
         (name.starts_with("__") && name.ends_with(".distcp"));
}

/// The same of a file in one of its folders.
bool IsOfAFolder(const std::string& name) {
  return name == kAdapterConfigName || name == kAdapterFileName || name == kManifestName ||
         name == kStateIndexName || name == kValuesName ||
         (name.starts_with("state-") && name.ends_with(".safetensors"));
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

/// Which of the planned files of a folder holds which tensor.
std::string IndexText(const std::vector<SavedFile>& plan, const std::string& folder) {
  nlohmann::ordered_json index;
  uint64_t total = 0;
  index["metadata"]["total_size"] = 0;
  index["weight_map"] = nlohmann::ordered_json::object();
  for (const SavedFile& file : plan) {
    if (file.folder != folder) continue;
    total += file.size - file.header.size();
    for (const SavedTensor& tensor : file.tensors) index["weight_map"][tensor.key] = file.name;
  }
  index["metadata"]["total_size"] = total;
  return index.dump(2) + "\n";
}

bool HasFolder(const std::vector<SavedFile>& plan, const std::string& folder) {
  return std::any_of(plan.begin(), plan.end(),
                     [&](const SavedFile& file) { return file.folder == folder; });
}

/// Rank 0 makes the directory and its files, at full size and with headers.
Status MakeFiles(const std::vector<SavedFile>& plan, const std::string& staging,
                 FileSystem& files) {
  SP_TRY(files.MakeDirectory(staging));
  for (const char* folder : kFolders) {
    if (HasFolder(plan, folder)) SP_TRY(files.MakeDirectory(staging + "/" + folder));
  }
  for (const SavedFile& file : plan) SP_TRY(files.Create(staging + "/" + file.Path(), file.size));
  return Ok();
}

Status CheckOnce(const std::string& key, std::set<std::string>& keys) {
  if (keys.insert(key).second) return Ok();
  return BadInput(text::Quote(key) + ": more than one thing would be saved under that key");
}

/// That nothing else has the key of a tensor where it is read.
Status CheckKeys(const std::vector<SavedFile>& plan) {
  std::set<std::string> keys;
  for (const SavedFile& file : plan) {
    if (file.folder == kAdapterFolder) continue;
    for (const SavedTensor& tensor : file.tensors) SP_TRY(CheckOnce(tensor.key, keys));
  }
  return Ok();
}
Status CheckKeys(const StateDict& state) {
  std::set<std::string> keys;
  for (const StateTensor& tensor : state.tensors) {
    for (const StatePath& path : tensor.paths) SP_TRY(CheckOnce(FlatKey(path), keys));
  }
  for (const StateValue& value : state.values) SP_TRY(CheckOnce(FlatKey(value.path), keys));
  return Ok();
}

Status WriteTensor(const SavedTensor& tensor, OutputFile& file) {
  const Slot& slot = *tensor.state.slot;
  const ByteSpan image = tensor.state.image();
  const uint64_t element = slot.ElementBytes();
  const auto* data = reinterpret_cast<const char*>(HostBytes(slot));
  std::string staged;
  uint64_t local = 0;
  for (const ElementRun& run : slot.shard.runs) {
    for (uint64_t i = 0; i < run.count; ++i, local += run.length * element) {
      const uint64_t begin = (run.start + i * run.stride) * element;
      const uint64_t from = std::max(begin, image.begin);
      const uint64_t to = std::min(begin + run.length * element, image.end);
      if (from >= to) continue;
      if (data != nullptr) {
        SP_TRY(file.WriteAt(tensor.offset + (from - image.begin),
                            {data + local + (from - begin), to - from}));
        continue;
      }
      for (uint64_t done = from; done < to; done += staged.size()) {
        staged.resize(std::min(to - done, kStagedBytesMax));
        slot.CopyOut(local + (done - begin), staged.data(), staged.size());
        SP_TRY(file.WriteAt(tensor.offset + (done - image.begin), staged));
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
  for (const std::string folder : kFolders) {
    if (!files.Exists(directory + "/" + folder)) continue;
    SP_ASSIGN(const auto inside, files.List(directory + "/" + folder));
    for (const std::string& name : inside) {
      if (!IsOfAFolder(name)) return complain(folder + "/" + name);
    }
  }
  return Ok();
}

Result<SaveDigests> WriteShards(const std::vector<SavedFile>& plan, const Job& job,
                                const Stages& stages, const std::string& directory, World& world) {
  SaveDigests digests;
  for (const SavedFile& planned : plan) {
    const std::string path = directory + "/" + planned.Path();
    SP_ASSIGN(const auto file, world.files->OpenForWrite(path));
    if (world.rank() == 0) {
      SP_TRY(file->WriteAt(0, planned.header));
      digests.AddFrame(path, 0, planned.header);
      digests.files[path].bytes = planned.size;
    }
    for (const SavedTensor& tensor : planned.tensors) {
      if (!tensor.state.IsWrittenBy(world.rank(), job.mesh)) continue;
      if (auto written = WriteTensor(tensor, *file); !written.ok()) {
        return written.error().While("saving tensor '" + tensor.key + "'");
      }
      const Slot& slot = *tensor.state.slot;
      const ByteSpan image = tensor.state.image();
      digests.tensors[{&slot, image}] = stages.digest(slot, image, {});
    }
    SP_TRY(file->Sync());
  }
  return digests;
}

Status CommitByRename(const std::string& staging, const std::string& target, World& world) {
  FileSystem& files = *world.files;
  const std::string parent = ParentOf(target);
  for (const std::string folder : kFolders) {
    const std::string path = staging + "/" + folder;
    if (files.Exists(path)) SP_TRY(files.SyncDirectory(path));
  }
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

/// What a manifest says of one key.
SealedTensor SealedAs(const std::string& key, const StateTensor& tensor) {
  return {key, tensor.slot.get(), tensor.shape(), tensor.image()};
}

Status SealValues(const StateDict& state, Sealing& sealing) {
  for (const StateValue& value : state.values) {
    SP_ASSIGN(const pickle::Pickle read, pickle::ReadPickle(value.pickle, FlatKey(value.path)));
    SP_ASSIGN(const std::string text, pickle::TextOf(read.root()));
    sealing.values[FlatKey(value.path)] = DigestOfText(text);
  }
  return Ok();
}

/// What the manifests of planned files say: an adapter, which is loaded by itself, has one of its
/// own.
Result<std::vector<Sealing>> SealingsOf(const StateDict& state,
                                        const std::vector<SavedFile>& plan) {
  std::vector<Sealing> sealings(1);
  SP_TRY(SealValues(state, sealings[0]));
  sealings[0].files.push_back(kIndexName);
  if (HasFolder(plan, kTrainingFolder)) {
    for (const char* name : {kStateIndexName, kValuesName}) {
      sealings[0].files.push_back(fmt::format("{}/{}", kTrainingFolder, name));
    }
  }
  for (const SavedFile& file : plan) {
    const bool is_adapter = file.folder == kAdapterFolder;
    if (is_adapter) sealings.push_back({.folder = file.folder});
    Sealing& sealing = sealings.back();
    sealing.files.push_back(is_adapter ? file.name : file.Path());
    for (const SavedTensor& tensor : file.tensors) {
      sealing.tensors.push_back(SealedAs(tensor.key, tensor.state));
    }
  }
  return sealings;
}

/// The same of a directory of torch.distributed.checkpoint.
Result<Sealing> SealingOf(const StateDict& state, int64_t world_size) {
  Sealing sealing;
  sealing.files.push_back(kDcpMetadataName);
  for (int64_t rank = 0; rank < world_size; ++rank) {
    sealing.files.push_back(DcpFileName(rank));
  }
  for (const StateTensor& tensor : state.tensors) {
    for (const StatePath& path : tensor.paths) {
      sealing.tensors.push_back(SealedAs(FlatKey(path), tensor));
    }
  }
  SP_TRY(SealValues(state, sealing));
  return sealing;
}

/// A save in a format: what is common to them.
class Saver : public SaveUnderWay {
 public:
  Saver(const Model& model, const Stages& stages, const Job& job, World& world)
      : model_(model),
        stages_(stages),
        job_(job),
        world_(world),
        target_(WithoutSlashAtEnd(job.save_to)),
        staging_(target_ + kDraftSuffix) {}  // beside it, not in it

  Status Begin() {
    SP_TRY(Plan());
    const auto prepare = [&]() -> Status {
      SP_TRY(CheckReplaceable(Files(), target_));
      SP_TRY(Files().RemoveTree(staging_));  // what a killed save left behind
      const Status prepared = Prepare();
      if (!prepared.ok()) (void)Files().RemoveTree(staging_);  // the first error is the one to tell
      return prepared;
    };
    return Agree(*world_.communicator, Leads() ? prepare() : Ok(), "preparing the save");
  }

  Status Write() override {
    // First, while the other ranks write: after them they would wait for it.
    if (Leads()) SP_TRY(WriteSide());
    SP_ASSIGN(SaveDigests own, WriteOwn());
    written_.tensors.merge(own.tensors);
    written_.files.merge(own.files);
    return Ok();
  }

  Status Finish(const Status& written) override {
    // Nothing is committed unless every rank's bytes are durable.
    const auto sums = SumOverRanks(sealings_, staging_, written_, written.ok(), world_);
    if (sums.ok() && sums.value().failed_ranks > 0) {
      SP_TRY(AgreeOrCleanUp(written, "writing the checkpoint"));
      return Failed("writing the checkpoint: a rank failed, and none says why");
    }
    Status sealed = sums.ok() ? Ok() : sums.error();
    if (sealed.ok() && Leads()) {
      sealed = WriteManifests(sealings_, staging_, sums.value(), Files());
    }
    SP_TRY(AgreeOrCleanUp(sealed, "writing the manifest"));
    const Status committed = Leads() ? stages_.commit(staging_, target_, world_) : Ok();
    return Agree(*world_.communicator, committed, "committing the checkpoint");
  }

 protected:
  /// What is to be written, and what the manifests are to say of it: alike on every rank, but for
  /// where the bytes are. Collective, as State() is.
  virtual Status Plan() = 0;
  /// On rank 0: the directory.
  virtual Status Prepare() = 0;
  /// On every rank: its own bytes.
  virtual Result<SaveDigests> WriteOwn() = 0;
  /// On rank 0: what says what they are.
  virtual Status WriteSide() = 0;

  FileSystem& Files() { return *world_.files; }

  /// What is saved, where it is written from. Collective, if rank 0 writes it alone.
  Result<StateDict> State() {
    StateDict state = stages_.state_of(model_, world_);
    if (job_.training.steps == 0 || !job_.training.gathered) return state;
    return stages_.gather(std::move(state), job_, stages_, world_);
  }

  /// Writes a file that the manifest tells of.
  Status WriteSealed(const std::string& name, const std::string& text) {
    const std::string path = staging_ + "/" + name;
    SP_TRY(WriteWhole(Files(), path, text));
    written_.files[path] = {text.size(), DigestOfText(text)};
    return Ok();
  }

  const Model& model_;
  const Stages& stages_;
  const Job job_;
  World world_;
  const std::string target_;
  const std::string staging_;
  std::vector<Sealing> sealings_;
  SaveDigests written_;

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
    SP_ASSIGN(StateDict whole, State());
    const StateDict state = stages_.split_fused(std::move(whole));
    plan_ = PlanFiles(state, job_.max_file_bytes, world_.communicator->world_size());
    SP_TRY(CheckKeys(plan_));
    std::map<std::string, std::string> values;
    for (const StateValue& value : state.values) values[FlatKey(value.path)] = value.pickle;
    SP_ASSIGN(values_, ValuesText(values));
    SP_ASSIGN(sealings_, SealingsOf(state, plan_));
    return Ok();
  }
  Status Prepare() override { return MakeFiles(plan_, staging_, Files()); }
  Result<SaveDigests> WriteOwn() override {
    return stages_.write_shards(plan_, job_, stages_, staging_, world_);
  }

  /// The indices, what is no tensor, and the configs.
  Status WriteSide() override {
    SP_TRY(WriteSealed(kIndexName, IndexText(plan_, "")));
    SP_TRY(CopyConfigs(job_, staging_, Files()));
    if (HasFolder(plan_, kTrainingFolder)) {
      const std::string folder = std::string(kTrainingFolder) + "/";
      SP_TRY(WriteSealed(folder + kStateIndexName, IndexText(plan_, kTrainingFolder)));
      SP_TRY(WriteSealed(folder + kValuesName, values_));
    }
    if (!HasFolder(plan_, kAdapterFolder)) return Ok();
    return WriteAdapterConfig(job_, staging_ + "/" + kAdapterFolder, Files());
  }

  std::vector<SavedFile> plan_;
  std::string values_;  ///< the content of their file
};

class DcpSaver : public Saver {
 public:
  using Saver::Saver;

 private:
  Status Plan() override {
    SP_ASSIGN(state_, State());
    if (job_.training.split_fused) state_ = stages_.split_fused(std::move(state_));
    SP_TRY(CheckKeys(state_));
    SP_ASSIGN(Sealing sealing, SealingOf(state_, world_.communicator->world_size()));
    sealings_.push_back(std::move(sealing));
    own_plan_ = stages_.plan_dcp(state_, job_, stages_, world_.rank());
    return Ok();
  }
  Status Prepare() override {
    SP_TRY(Files().MakeDirectory(staging_));
    return job_.HasAdapter() ? Files().MakeDirectory(staging_ + "/" + kAdapterFolder) : Ok();
  }
  Result<SaveDigests> WriteOwn() override {
    return stages_.write_dcp(state_, own_plan_, stages_, staging_, world_);
  }
  Status WriteSide() override {
    std::vector<DcpFile> plan = {own_plan_};
    for (int64_t rank = 1; rank < world_.communicator->world_size(); ++rank) {
      plan.push_back(stages_.plan_dcp(state_, job_, stages_, rank));
    }
    SP_TRY(WriteSealed(kDcpMetadataName, DcpMetadata(state_, plan)));
    SP_TRY(CopyConfigs(job_, staging_, Files()));
    if (!job_.HasAdapter()) return Ok();
    return WriteAdapterConfig(job_, staging_ + "/" + kAdapterFolder, Files());
  }

  StateDict state_;
  DcpFile own_plan_;
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
