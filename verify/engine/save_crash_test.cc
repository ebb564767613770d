// What a crash at any moment of a save leaves on disk, under three models of what a disk promises:
// the pipeline's own saves, loaded from each of the states.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "src/checkpoint/dcp.h"
#include "src/checkpoint/steps.h"
#include "src/comm/sim.h"
#include "src/load/dcp_source.h"
#include "src/pipeline/pipeline.h"
#include "src/pipeline/reference_stages.h"
#include "src/seam/decorators.h"
#include "verify/crash_states/judge.h"
#include "verify/crash_states/recorder.h"
#include "verify/decorators/late_tasks.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using crash::CrashReport;
using crash::Loaded;
using crash::LoadOutcome;

class NoObserver : public Observer {
 public:
  void Enter(Stage) override {}
  void Reached(Stage, int64_t, const Model&) override {}
  void Keys(const std::vector<std::string>&, const std::vector<std::string>&) override {}
  void Notice(const std::string& line) override { notice += line; }

  std::string notice;
};

/// A job that trains if it is saved as DCP, from scratch by a seed.
Job JobOf(SaveFormat format, int64_t ranks, uint64_t seed, const std::string& save_to) {
  Job job{
      .model = ModelSpec{.tensors = {{.name = "a.weight", .shape = {37, 40}},
                                     {.name = "b.weight", .dtype = at::kBFloat16, .shape = {5, 3}},
                                     {.name = "counter",
                                      .kind = TensorKind::kBuffer,
                                      .dtype = at::kLong,
                                      .shape = {5}}},
                         .init_scale = 1.0},
      .from_scratch = true,
      .mesh = {{{"dp_shard", ranks}}},
      .seed = seed,
      .save_to = save_to,
      .format = format};
  if (format == SaveFormat::kDcp) job.training.steps = 1;
  return job;
}

using WrapFiles =
    std::function<std::shared_ptr<FileSystem>(std::shared_ptr<FileSystem>, int64_t rank)>;

/// Loads, takes steps if it is to and saves after each, on simulated ranks; those up to
/// `quiet_steps` by a file system of its own. An async save goes on over one more step.
void RunSave(const Job& job, const WrapFiles& wrap, const std::function<void(Stages&)>& plant = {},
             int64_t quiet_steps = 0, const std::function<void()>& begin = {}) {
  SimWorld sim(job.mesh.WorldSize(), job.seed);  // which decides who writes when
  sim.Run([&](int64_t rank) {
    at::set_num_threads(1);
    World world{.files = wrap(MakePosixFileSystem(), rank),
                .device = MakeHostDevice(),
                .communicator = sim.CommunicatorOf(rank),
                .clock = sim.MakeClock(),
                .observer = std::make_shared<NoObserver>(),
                .background = DelayTasks()};
    Stages stages = ReferenceStages(job.strategy);
    if (plant) plant(stages);
    auto model = Load(job, stages, world);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto save = [&](const Stages& with) {
      const Status saved = Save(model.value(), job, with, world);
      ASSERT_TRUE(saved.ok()) << saved.error().message;
    };
    const Stages sound = ReferenceStages(job.strategy);
    for (int64_t step = 1; step <= job.training.steps; ++step) {
      const Status trained = Train(model.value(), step, Stage::kStepped, job, stages, world);
      ASSERT_TRUE(trained.ok()) << trained.error().message;
      if (step <= quiet_steps) save(sound);
      if (step != quiet_steps) continue;
      ASSERT_TRUE(world.communicator->Max(0, "saved").ok());
      if (begin && rank == 0) begin();
      ASSERT_TRUE(world.communicator->Max(0, "begun").ok());
      world.files = wrap(MakePosixFileSystem(), rank);
    }
    if (!job.training.async) return save(stages);
    const auto under_way = StartSave(model.value(), job, stages, world);
    ASSERT_TRUE(under_way.ok()) << under_way.error().message;
    const Status gone_on =
        Train(model.value(), job.training.steps + 1, Stage::kStepped, job, stages, world);
    ASSERT_TRUE(gone_on.ok()) << gone_on.error().message;
    const Status saved = under_way.value()->Finish();
    ASSERT_TRUE(saved.ok()) << saved.error().message;
  });
}

/// What a restore of a root gives: which step, and every tensor of the model, on one rank.
struct RestoredRoot {
  int64_t step = 0;
  std::map<std::string, std::string> tensors;
  std::string notice;
};

Result<RestoredRoot> RestoreRoot(Job job, const std::string& root) {
  job.mesh = {{{"dp_shard", 1}}};
  job.save_to = root;
  Result<RestoredRoot> restored = Failed("no rank ran");
  SimWorld sim(1, 0);
  sim.Run([&](int64_t rank) {
    at::set_num_threads(1);
    const auto observer = std::make_shared<NoObserver>();
    World world{.files = MakePosixFileSystem(),
                .device = MakeHostDevice(),
                .communicator = sim.CommunicatorOf(rank),
                .clock = sim.MakeClock(),
                .observer = observer};
    const auto model = Restore(job, ReferenceStages(job.strategy), world);
    if (!model.ok()) {
      restored = model.error();
      return;
    }
    RestoredRoot found{.step = model.value().step, .notice = observer->notice};
    for (const auto& slot : model.value().Slots()) {
      std::string& bytes = found.tensors[slot->spec.name];
      bytes.resize(slot->value.nbytes());
      slot->CopyOut(0, bytes.data(), bytes.size());
    }
    restored = std::move(found);
  });
  return restored;
}

/// Every tensor of a checkpoint, whole, by its name.
Result<std::map<std::string, std::string>> ContentOf(const std::string& path) {
  const auto files = MakePosixFileSystem();
  const std::string directory = NewestStepOf(*files, path);
  SP_ASSIGN(const Source source, HoldsDcp(*files, directory) ? OpenDcpSource(*files, directory)
                                                             : OpenSource(*files, directory));
  std::map<std::string, std::string> content;
  for (const auto* tensors : {&source.tensors, &source.state}) {
    for (const auto& [name, tensor] : *tensors) {
      std::string& bytes = content[name];
      bytes.resize(tensor.length);
      tensor.VisitStretches(
          0, tensor.length, [&](uint64_t start, int64_t file, uint64_t offset, uint64_t length) {
            std::memcpy(bytes.data() + start, source.BytesAt(file, offset), length);
          });
    }
  }
  return content;
}

class SaveCrash : public ::testing::Test {
 protected:
  static std::string Base() {
    return fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
  }

  SaveCrash() : root_(fmt::format("{}/shardproof-crash-{}", Base(), ::getpid())) {
    fs::create_directories(root_ + "/disk");
    fs::create_directories(root_ + "/scratch");
  }
  ~SaveCrash() override { fs::remove_all(root_); }

  /// The states of a second save over a first one, or of a first.
  CrashReport Crash(SaveFormat format, int64_t ranks, bool had_previous,
                    const std::function<void(Stages&)>& plant = {}, uint64_t seed = 2) {
    const std::string disk = root_ + "/disk";
    const std::string target = disk + "/saved";
    fs::remove_all(disk);
    fs::create_directories(disk);
    const WrapFiles plain = [](std::shared_ptr<FileSystem> inner, int64_t) { return inner; };
    if (had_previous) RunSave(JobOf(format, ranks, 1, target), plain);
    const auto before = crash::Disk::Read(disk);
    EXPECT_TRUE(before.ok());
    const auto old =
        had_previous ? ContentOf(target) : Result<std::map<std::string, std::string>>(BadInput(""));
    const auto recording = std::make_shared<crash::Recording>(disk);
    RunSave(
        JobOf(format, ranks, seed, target),
        [&](std::shared_ptr<FileSystem> inner, int64_t rank) {
          return crash::RecordFiles(std::move(inner), rank, recording);
        },
        plant);
    const auto saved = ContentOf(target);
    EXPECT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_FALSE(old.ok() && old.value() == saved.value());
    const auto judge = [&](const std::string& directory) -> Result<LoadOutcome> {
      const auto loaded = ContentOf(directory + "/saved");
      if (!loaded.ok()) {
        // Over a previous checkpoint of the same name, what cannot be loaded has replaced it.
        return LoadOutcome{had_previous ? Loaded::kWrong : Loaded::kRefused,
                           loaded.error().message};
      }
      if (loaded.value() == saved.value()) return LoadOutcome{Loaded::kNew, ""};
      if (old.ok() && loaded.value() == old.value()) return LoadOutcome{Loaded::kOld, ""};
      return LoadOutcome{Loaded::kWrong, "the content is neither the one nor the other"};
    };
    const auto operations = recording->Operations();
    EXPECT_TRUE(operations.ok());
    const auto report =
        crash::RunStates(before.value(), operations.value(), {.block_bytes = 512, .tears_max = 32},
                         root_ + "/scratch", judge, {.had_previous = had_previous});
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report.value();
  }

  /// The states of the save after step 3 of a job that has saved steps 1 and 2, of which `keep`
  /// stay.
  CrashReport CrashSteps(int64_t ranks, int64_t keep,
                         const std::function<void(Stages&)>& plant = {}, uint64_t seed = 2,
                         bool async = false, SaveFormat format = SaveFormat::kDcp) {
    const std::string disk = root_ + "/disk";
    const std::string target = disk + "/saved";
    fs::remove_all(disk);
    fs::create_directories(disk);
    Job job = JobOf(format, ranks, seed, target);
    job.training.steps = 3;
    job.training.keep = keep;
    job.training.async = async;
    std::shared_ptr<crash::Recording> recording;
    std::optional<crash::Disk> before;
    std::optional<RestoredRoot> old;
    RunSave(
        job,
        [&](std::shared_ptr<FileSystem> inner, int64_t rank) -> std::shared_ptr<FileSystem> {
          if (!recording) return inner;
          return crash::RecordFiles(std::move(inner), rank, recording);
        },
        plant, 2,
        [&] {
          recording = std::make_shared<crash::Recording>(disk);
          before = crash::Disk::Read(disk).value();
        });
    EXPECT_TRUE(before.has_value());
    fs::create_directories(root_ + "/before");
    EXPECT_TRUE(before->WriteTo(root_ + "/before").ok());
    old = RestoreRoot(job, root_ + "/before/saved").value();
    fs::remove_all(root_ + "/before");
    const auto saved = RestoreRoot(job, target);
    EXPECT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(old->step, 2);
    EXPECT_EQ(saved.value().step, 3);
    const auto judge = [&](const std::string& directory) -> Result<LoadOutcome> {
      const auto loaded = RestoreRoot(job, directory + "/saved");
      if (!loaded.ok()) return LoadOutcome{Loaded::kWrong, loaded.error().message};
      // A save that is killed leaves "latest" right: falling back is for what is damaged later.
      if (!loaded.value().notice.empty()) return LoadOutcome{Loaded::kWrong, loaded.value().notice};
      const bool is_new = loaded.value().step == 3;
      if (loaded.value().tensors == (is_new ? saved.value() : *old).tensors) {
        return LoadOutcome{is_new ? Loaded::kNew : Loaded::kOld, ""};
      }
      return LoadOutcome{Loaded::kWrong, "the content is neither the one nor the other"};
    };
    const auto operations = recording->Operations();
    EXPECT_TRUE(operations.ok());
    const auto run = [&](const std::vector<crash::FileOperation>& done) {
      const auto report = crash::RunStates(*before, done, {.block_bytes = 512, .tears_max = 16},
                                           root_ + "/scratch", judge, {.had_previous = true});
      EXPECT_TRUE(report.ok()) << report.error().message;
      return report.value();
    };
    if (!plant) {
      // Once "latest" has moved durably, it is the new one, whatever else is under way.
      const CrashReport moved = run(UpToLatest(operations.value()));
      EXPECT_EQ(moved.bad_count, 0) << (moved.bad.empty() ? "" : moved.bad.front().Text());
    }
    return run(operations.value());
  }

  /// The operations up to the sync after which the file "latest" names the new step.
  static std::vector<crash::FileOperation> UpToLatest(
      const std::vector<crash::FileOperation>& all) {
    size_t end = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].kind == crash::OperationKind::kRename && all[i].other == "saved/latest") end = i;
    }
    EXPECT_GT(end, 0u);
    while (end < all.size() && all[end].kind != crash::OperationKind::kSyncDirectory) ++end;
    EXPECT_LT(end, all.size());
    return {all.begin(), all.begin() + static_cast<ptrdiff_t>(std::min(end + 1, all.size()))};
  }

  const std::string root_;
};

std::string Bad(const CrashReport& report) {
  std::string text;
  for (const auto& bad : report.bad) text += bad.Text() + "\n";
  return text;
}

TEST_F(SaveCrash, LeavesTheNewCheckpointOrThePreviousOne) {
  int64_t distinct = 0;
  for (const SaveFormat format : {SaveFormat::kSafetensors, SaveFormat::kDcp}) {
    for (const uint64_t seed : {2, 3, 4, 5, 6, 7}) {
      for (const int64_t ranks : {1, 2, 3, 4}) {
        const bool had_previous = seed % 2 == 0;
        const CrashReport report = Crash(format, ranks, had_previous, {}, seed);
        EXPECT_EQ(report.bad_count, 0) << Bad(report);
        EXPECT_GT(report.states.distinct, 50);
        distinct += report.states.distinct;
      }
    }
  }
  EXPECT_GE(distinct, 10000);
  RecordProperty("states", static_cast<int>(distinct));
  std::printf("%ld distinct states\n", static_cast<long>(distinct));
}

TEST_F(SaveCrash, ARootOfSafetensorsIsRestoredAsTheNewStepOrTheOneBefore) {
  // Every rank writes into every file, so that states are many: two ranks have them all.
  for (const int64_t ranks : {1, 2}) {
    const CrashReport report = CrashSteps(ranks, 1, {}, 3, ranks == 2, SaveFormat::kSafetensors);
    EXPECT_EQ(report.bad_count, 0) << Bad(report);
    EXPECT_GT(report.states.distinct, 500);
    std::printf("%ld distinct states\n", static_cast<long>(report.states.distinct));
  }
}

TEST_F(SaveCrash, ACommitBeforeTheNamesAreDurableIsFound) {
  for (const SaveFormat format : {SaveFormat::kSafetensors, SaveFormat::kDcp}) {
    const CrashReport report = Crash(format, 2, true, [](Stages& stages) {
      stages.commit = [](const std::string& staging, const std::string& target, World& world) {
        return world.files->Exchange(staging, target);
      };
    });
    EXPECT_GT(report.bad_count, 0);
    EXPECT_GT(report.outcomes.at(crash::CrashModel::kPosix).at(Loaded::kWrong), 0);
  }
}

TEST_F(SaveCrash, ARootIsRestoredAsTheNewStepOrTheOneBefore) {
  int64_t distinct = 0;
  for (const uint64_t seed : {2, 3, 4, 5, 6, 7}) {
    for (const int64_t ranks : {1, 2, 3, 4}) {
      const int64_t keep = 1 + static_cast<int64_t>(seed % 2);
      const CrashReport report = CrashSteps(ranks, keep, {}, seed);
      EXPECT_EQ(report.bad_count, 0) << Bad(report);
      EXPECT_GT(report.states.distinct, 50);
      distinct += report.states.distinct;
    }
  }
  EXPECT_GE(distinct, 10000);
  RecordProperty("states", static_cast<int>(distinct));
  std::printf("%ld distinct states of roots\n", static_cast<long>(distinct));
}

TEST_F(SaveCrash, AnAsyncSaveIsRestoredAsTheNewStepOrTheOneBefore) {
  int64_t distinct = 0;
  for (const uint64_t seed : {2, 3}) {
    for (const int64_t ranks : {1, 2, 3, 4}) {
      const CrashReport report = CrashSteps(ranks, 2, {}, seed, true);
      EXPECT_EQ(report.bad_count, 0) << Bad(report);
      distinct += report.states.distinct;
    }
  }
  EXPECT_GE(distinct, 1000);
  RecordProperty("states", static_cast<int>(distinct));
  std::printf("%ld distinct states of async saves\n", static_cast<long>(distinct));
}

TEST_F(SaveCrash, AnAsyncSaveHoldsTheStepThatItWasBegunAt) {
  const WrapFiles plain = [](std::shared_ptr<FileSystem> inner, int64_t) { return inner; };
  std::vector<RestoredRoot> roots;
  for (const bool async : {false, true}) {
    Job job = JobOf(SaveFormat::kDcp, 2, 5, fmt::format("{}/disk/{}", root_, async));
    job.training.async = async;
    RunSave(job, plain);
    roots.push_back(RestoreRoot(job, job.save_to).value());
  }
  EXPECT_EQ(roots[0].step, roots[1].step);
  EXPECT_EQ(roots[0].tensors, roots[1].tensors);
}

TEST_F(SaveCrash, ALatestThatIsMovedBeforeTheDataIsFound) {
  const CrashReport report = CrashSteps(2, 2, [](Stages& stages) {
    stages.save = [save = stages.save](const Model& model, const Stages& table, const Job& job,
                                       World& world) -> Status {
      const size_t slash = job.save_to.find_last_of('/');
      if (world.rank() == 0) {
        SP_TRY(
            table.move_latest(job.save_to.substr(0, slash), job.save_to.substr(slash + 1), world));
      }
      return save(model, table, job, world);
    };
  });
  EXPECT_GT(report.bad_count, 0);
}

TEST_F(SaveCrash, ARetentionBeforeTheCommitIsFound) {
  const CrashReport report = CrashSteps(2, 1, [](Stages& stages) {
    stages.save = [save = stages.save](const Model& model, const Stages& table, const Job& job,
                                       World& world) -> Status {
      const std::string root = job.save_to.substr(0, job.save_to.find_last_of('/'));
      if (world.rank() == 0) SP_TRY(world.files->RemoveTree(root + "/" + StepName(model.step - 1)));
      return save(model, table, job, world);
    };
  });
  EXPECT_GT(report.bad_count, 0);
}

TEST_F(SaveCrash, DataThatAreNotSyncedAreFound) {
  const CrashReport report = Crash(SaveFormat::kDcp, 2, true, [](Stages& stages) {
    stages.write_dcp = [write = stages.write_dcp](const StateDict& state, const DcpFile& planned,
                                                  const Stages& table, const std::string& directory,
                                                  World& world) {
      class Unsynced : public OutputFile {
       public:
        explicit Unsynced(std::unique_ptr<OutputFile> inner) : inner_(std::move(inner)) {}
        Status WriteAt(uint64_t offset, std::string_view bytes) override {
          return inner_->WriteAt(offset, bytes);
        }
        Status Sync() override { return Ok(); }

       private:
        std::unique_ptr<OutputFile> inner_;
      };
      class Files : public FilesDecorator {
       public:
        using FilesDecorator::FilesDecorator;
        Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
          SP_ASSIGN(auto file, inner_->OpenForWrite(path));
          return std::unique_ptr<OutputFile>(std::make_unique<Unsynced>(std::move(file)));
        }
      };
      World lazy = world;
      lazy.files = std::make_shared<Files>(world.files);
      return write(state, planned, table, directory, lazy);
    };
  });
  EXPECT_GT(report.bad_count, 0);
  EXPECT_GT(report.outcomes.at(crash::CrashModel::kExt4Ordered).at(Loaded::kWrong), 0);
}

}  // namespace
}  // namespace shardproof
