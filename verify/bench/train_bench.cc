// Speed of saving, restoring and stepping a training job's state by the reference pipeline, beside
// a plain write and read of as many bytes by the same ranks.
//   train_bench CHECKPOINT DIRECTORY [--world N] [--bucket-bytes N]
// The state is that of CHECKPOINT's model after one step. Rounds, see ranks.h:
//   save          saves it as DCP into DIRECTORY/pipeline
//   rank0-broadcast, rank0-scatter, each-reads-own, plain: loads that by the strategy
//   write, read   each rank a file of its own with the bytes of its shards, DIRECTORY/plain-<rank>,
//                 4 MiB at a time
//   step, offload a step of all parameters, from the same initial values: on the device; by the
//   host gradients     of all parameters, as a step computes them, from values in the cache
//   arithmetic    what is left of a step: AdamW alone, with gradients that are ready in memory
// What is loaded or read is compared with what was saved, after the clock has stopped; so are the
// parameters of the two kinds of steps.
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <map>
#include <optional>

#include "src/optim/elements.h"
#include "src/optim/gradient.h"
#include "src/pipeline/reference_stages.h"
#include "verify/bench/ranks.h"

namespace shardproof {
namespace {

constexpr uint64_t kPieceBytes = 4u << 20;  // of a plain write or read

struct Options {
  std::string checkpoint;
  std::string directory;
  int64_t world_size = 4;
  uint64_t bucket_bytes = Job{}.bucket_bytes;
};

/// Everything that a rank has of a job, by name.
std::map<std::string, std::shared_ptr<Slot>> StateByName(const Model& model) {
  std::map<std::string, std::shared_ptr<Slot>> all;
  for (const auto& slot : model.Slots()) all[slot->spec.name] = slot;
  for (const auto& [name, state] : model.optimizer->state) {
    for (const auto& [key, part] : state.Parts()) all[name + "." + key] = part;
  }
  return all;
}

Status CheckSame(const Model& found, const Model& expected) {
  const auto found_slots = StateByName(found);
  const auto expected_slots = StateByName(expected);
  if (found_slots.size() != expected_slots.size()) return Failed("other tensors than expected");
  for (const auto& [name, slot] : expected_slots) {
    const auto other = found_slots.find(name);
    if (other == found_slots.end()) return Failed("'" + name + "' is missing");
    const at::Tensor& value = other->second->value;
    if (value.nbytes() != slot->value.nbytes() ||
        std::memcmp(value.const_data_ptr(), slot->value.const_data_ptr(), value.nbytes()) != 0) {
      return Failed("'" + name + "' has other bytes than expected");
    }
  }
  return found.step == expected.step ? Ok() : Failed("another step than expected");
}

/// A descriptor that closes itself.
class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Has `call` move the bytes [data, data + bytes) piece by piece.
template <typename Call>
Status MovePieces(std::byte* data, uint64_t bytes, Call call) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t moved = call(data + done, std::min(kPieceBytes, bytes - done));
    if (moved <= 0) return Failed("a plain write or read fell short");
    done += moved;
  }
  return Ok();
}

class Rank {
 public:
  Rank(const Options& options, Connected connected) : options_(options), world_(connected.world) {}

  Result<double> Round(const std::string& what) {
    if (what == "save") return SaveState();
    if (what == "write") return Write();
    if (what == "read") return Read();
    if (what == "step") return StepModel(on_device_, 0);
    if (what == "offload") return StepModel(offloaded_, 1);
    if (what == "gradients") return MakeGradients();
    if (what == "arithmetic") return StepReady();
    return LoadState(*StrategyFromName(what));
  }

 private:
  Job MakeJob() const {
    Job job;
    job.checkpoint = options_.checkpoint;
    job.mesh.axes = {{"dp_shard", options_.world_size}};
    job.bucket_bytes = options_.bucket_bytes;
    job.format = SaveFormat::kDcp;
    job.save_to = options_.directory + "/pipeline";
    job.strategy = Strategy::kEachReadsOwn;
    job.training.steps = 1;
    job.training.clip_norm = 0;
    return job;
  }

  /// The job after one step, the first time; and its bytes in one piece of memory, for plain
  /// writes.
  Result<const Model*> State() {
    if (state_) return &*state_;
    const Job job = MakeJob();
    const Stages stages = ReferenceStages(job.strategy);
    SP_ASSIGN(Model model, Load(job, stages, world_));
    SP_TRY(Train(model, 1, Stage::kStepped, job, stages, world_));
    const auto slots = StateByName(model);
    int64_t bytes = 0;
    for (const auto& [name, slot] : slots) bytes += slot->value.nbytes();
    SP_ASSIGN(payload_, world_.device->Allocate({bytes}, at::kByte, "payload"));
    auto* at = static_cast<std::byte*>(payload_.mutable_data_ptr());
    for (const auto& [name, slot] : slots) {
      std::memcpy(at, slot->value.const_data_ptr(), slot->value.nbytes());
      at += slot->value.nbytes();
    }
    state_ = std::move(model);
    return &*state_;
  }

  Result<double> SaveState() {
    SP_ASSIGN(const Model* model, State());
    const Job job = MakeJob();
    const Stages stages = ReferenceStages(job.strategy);
    return TimeTogether(world_, [&] { return Save(*model, job, stages, world_); });
  }

  Result<double> LoadState(Strategy strategy) {
    SP_ASSIGN(const Model* saved, State());
    Job job = MakeJob();
    job.strategy = strategy;
    const Stages stages = ReferenceStages(strategy);
    std::optional<Model> model;  // given back only after the clock has stopped
    SP_ASSIGN(const double seconds, TimeTogether(world_, [&]() -> Status {
                SP_ASSIGN(model, Restore(job, stages, world_));
                return Ok();
              }));
    SP_TRY(CheckSame(*model, *saved));
    return seconds;
  }

  std::string PlainPath() const {
    return fmt::format("{}/plain-{}", options_.directory, world_.rank());
  }

  Result<double> Write() {
    SP_TRY(State());
    return TimeTogether(world_, [&]() -> Status {
      {
        const File file(PlainPath(), O_WRONLY | O_CREAT | O_TRUNC);
        SP_TRY(MovePieces(static_cast<std::byte*>(payload_.mutable_data_ptr()), payload_.nbytes(),
                          [&](const std::byte* from, uint64_t bytes) {
                            return ::write(file.get(), from, bytes);
                          }));
        if (::fsync(file.get()) != 0) return Failed("fsync");
      }
      SP_TRY(world_.communicator->Max(0, "written"));
      if (world_.rank() != 0) return Ok();
      const File directory(options_.directory, O_RDONLY | O_DIRECTORY);
      return ::fsync(directory.get()) == 0 ? Ok() : Failed("fsync of the directory");
    });
  }

  Result<double> Read() {
    SP_TRY(State());
    at::Tensor fresh;
    SP_ASSIGN(const double seconds, TimeTogether(world_, [&]() -> Status {
                const auto bytes = static_cast<int64_t>(payload_.nbytes());
                SP_ASSIGN(fresh, world_.device->Allocate({bytes}, at::kByte, "what is read"));
                const File file(PlainPath(), O_RDONLY);
                return MovePieces(
                    static_cast<std::byte*>(fresh.mutable_data_ptr()), bytes,
                    [&](std::byte* to, uint64_t count) { return ::read(file.get(), to, count); });
              }));
    const bool same =
        std::memcmp(fresh.const_data_ptr(), payload_.const_data_ptr(), fresh.nbytes()) == 0;
    if (!same) return Failed("the plain read found other bytes than were written");
    return seconds;
  }

  /// Job and model of one kind of steps.
  struct Stepped {
    Job job;
    std::optional<Model> model;
  };

  Status StartSteps(Stepped& stepped, double offload) {
    if (stepped.model) return Ok();
    stepped.job = MakeJob();
    stepped.job.training.offload = offload;
    SP_ASSIGN(stepped.model, Load(stepped.job, ReferenceStages(stepped.job.strategy), world_));
    return Ok();
  }

  Result<double> StepModel(Stepped& stepped, double offload) {
    SP_TRY(StartSteps(stepped, offload));
    const Stages stages = ReferenceStages(stepped.job.strategy);
    Model& model = *stepped.model;
    SP_ASSIGN(const double seconds, TimeTogether(world_, [&] {
                return Train(model, model.step + 1, Stage::kStepped, stepped.job, stages, world_);
              }));
    const bool both = on_device_.model && offloaded_.model;
    if (both && on_device_.model->step == offloaded_.model->step) {
      SP_TRY(CheckSame(*offloaded_.model, *on_device_.model));
    }
    return seconds;
  }

  Result<double> MakeGradients() {
    SP_TRY(StartSteps(on_device_, 0));
    const std::vector<float> values(Gradients::kElementsMax, 0.5f);
    std::vector<float> gradients(Gradients::kElementsMax);
    return TimeTogether(world_, [&]() -> Status {
      for (const auto& slot : on_device_.model->Slots()) {
        const uint64_t elements = slot->shard.ElementCount();
        for (uint64_t begin = 0; begin < elements; begin += Gradients::kElementsMax) {
          FillGradient(slot->spec.name, slot->shard, 1, begin,
                       std::min(Gradients::kElementsMax, elements - begin), values.data(),
                       gradients.data());
        }
      }
      return Ok();
    });
  }

  /// Steps one tensor of as many elements as all parameters have.
  Result<double> StepReady() {
    SP_TRY(StartSteps(on_device_, 0));
    if (ready_.empty()) {
      int64_t elements = 0;
      for (const auto& slot : on_device_.model->Slots()) elements += slot->shard.ElementCount();
      for (size_t i = 0; i < 4; ++i) {
        SP_ASSIGN(at::Tensor made, world_.device->Allocate({elements}, at::kFloat, "ready"));
        std::fill_n(made.mutable_data_ptr<float>(), elements, i < 2 ? 0.01f : 0.0f);
        ready_.push_back(std::move(made));
      }
    }
    const AdamWScalars scalars =
        ScalarsOf({.learning_rate = 1e-3, .weight_decay = 0.1}, ++ready_step_, 1);
    return TimeTogether(world_, [&]() -> Status {
      StepAdamW(scalars, {.parameter = {ready_[0].mutable_data_ptr(), false},
                          .gradient = ready_[1].const_data_ptr<float>(),
                          .first = {ready_[2].mutable_data_ptr(), false},
                          .second = {ready_[3].mutable_data_ptr(), false},
                          .count = static_cast<uint64_t>(ready_[0].numel())});
      return Ok();
    });
  }

  Options options_;
  World world_;
  std::optional<Model> state_;
  at::Tensor payload_;
  Stepped on_device_;
  Stepped offloaded_;
  std::vector<at::Tensor> ready_;  ///< parameters, gradients, moments
  int64_t ready_step_ = 0;
};

}  // namespace
}  // namespace shardproof

int main(int argc, char** argv) {
  using namespace shardproof;
  Options options;
  CLI::App app("Saves, restores or steps a training job's state once per line of input.");
  app.add_option("checkpoint", options.checkpoint, "Hugging Face directory")->required();
  app.add_option("directory", options.directory, "Where to save")->required();
  app.add_option("--world", options.world_size, "Ranks")->check(CLI::Range(1, 1024));
  app.add_option("--bucket-bytes", options.bucket_bytes, "Staging bytes a rank may hold")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  CLI11_PARSE(app, argc, argv);
  const auto start = [&](const std::string& store_path, int64_t rank) -> Result<ServeRound> {
    SP_ASSIGN(Connected connected, ConnectRank(store_path, rank, options.world_size));
    const auto made = std::make_shared<Rank>(options, std::move(connected));
    return ServeRound([made](const std::string& round) { return made->Round(round); });
  };
  return RunRanks({.name = "train_bench",
                   .world_size = options.world_size,
                   .rounds = {"save", "rank0-broadcast", "rank0-scatter", "each-reads-own", "plain",
                              "write", "read", "step", "offload", "gradients", "arithmetic"},
                   .start = start});
}
