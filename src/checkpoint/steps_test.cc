#include "src/checkpoint/steps.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "src/checkpoint/manifest.h"
#include "src/comm/sim.h"
#include "src/pipeline/pipeline.h"
#include "src/seam/decorators.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(StepNameTest, IsReadBack) {
  EXPECT_EQ(StepName(2), "step-00000002");
  EXPECT_EQ(StepName(1234567890), "step-1234567890");
  for (const int64_t step :
       {int64_t{0}, int64_t{2}, int64_t{99999999}, int64_t{100000000}, INT64_MAX}) {
    EXPECT_EQ(StepOfName(StepName(step)), step);
  }
  for (const char* name :
       {"", "step-", "step-2", "step-0000002", "step-000000002", "step--0000002", "step-+0000002",
        "step-0000000x", "step-00000002.saving", "step-00000002/", "../step-00000002",
        "step-9223372036854775808", "step-99999999999999999999999", "Step-00000002"}) {
    EXPECT_EQ(StepOfName(name), std::nullopt) << name;
  }
}

class Quiet : public Observer {
 public:
  void Enter(const std::string&) override {}
  void Reached(const std::string&, int64_t, const Model&) override {}
  void Keys(const std::vector<std::string>&, const std::vector<std::string>&) override {}
  void Notice(const std::string& line) override { notices.push_back(line); }

  std::vector<std::string> notices;
};

class StepsTest : public testing::Test {
 protected:
  StepsTest() {
    std::string pattern = (fs::temp_directory_path() / "shardproof-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    root_ = directory_ + "/root";
    job_ = {
        .model =
            ModelSpec{.tensors = {{.name = "a.weight", .shape = {7, 4}},
                                  {.name = "b.weight", .dtype = at::kBFloat16, .shape = {5, 3}}},
                      .init_scale = 1.0},
        .from_scratch = true,
        .mesh = {{{"dp_shard", 2}}},
        .seed = 1,
        .save_to = root_,
        .training = {.steps = 9},
        .format = SaveFormat::kDcp};
  }
  ~StepsTest() override {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  /// Runs `work` on two simulated ranks. \returns what each came to.
  std::vector<Status> OnRanks(const std::function<Status(World&)>& work) {
    std::vector<Status> ends(2, Ok());
    SimWorld sim(2, 1);
    sim.Run([&](int64_t rank) {
      at::set_num_threads(1);
      World world{.files = MakePosixFileSystem(),
                  .device = MakeHostDevice(),
                  .communicator = sim.CommunicatorOf(rank),
                  .clock = sim.MakeClock(),
                  .observer = rank == 0 ? quiet_ : std::make_shared<Quiet>()};
      ends[rank] = work(world);
    });
    return ends;
  }

  /// Takes steps and saves after each of `saved`.
  void SaveAt(const std::vector<int64_t>& saved) {
    for (const Status& end : OnRanks([&](World& world) -> Status {
           const Stages stages = ReferenceStages(job_.strategy);
           SP_ASSIGN(Model model, Load(job_, stages, world));
           for (const int64_t step : saved) {
             SP_TRY(Train(model, step, "stepped", job_, stages, world));
             SP_TRY(Save(model, job_, stages, world));
           }
           return Ok();
         })) {
      ASSERT_TRUE(end.ok()) << end.error().message;
    }
  }

  /// The step that is restored; -1 and `error_` if none is, the same on both ranks.
  int64_t Restored() {
    quiet_->notices.clear();
    std::vector<int64_t> steps(2, -1);
    const auto ends = OnRanks([&](World& world) -> Status {
      SP_ASSIGN(const Model model, Restore(job_, ReferenceStages(job_.strategy), world));
      steps[world.rank()] = model.step;
      return Ok();
    });
    EXPECT_EQ(steps[0], steps[1]);
    error_ = ends[0].ok() ? "" : ends[0].error().message;
    EXPECT_EQ(error_, ends[1].ok() ? "" : ends[1].error().message);
    EXPECT_EQ(error_.find('\n'), std::string::npos);
    if (!ends[0].ok()) {
      EXPECT_EQ(ends[0].error().code, ErrorCode::kBadInput);
    }
    return steps[0];
  }

  std::vector<std::string> Names() const { return MakePosixFileSystem()->List(root_).value(); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(root_ + "/" + name, std::ios::binary) << text;
  }

  /// Flips a bit of the file's byte `offset`, from its end if that is negative.
  void Flip(const std::string& name, int64_t offset) const {
    std::fstream file(root_ + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file.good()) << name;
    file.seekg(offset, offset < 0 ? std::ios::end : std::ios::beg);
    const int byte = file.get();
    file.seekp(offset, offset < 0 ? std::ios::end : std::ios::beg);
    file.put(static_cast<char>(byte ^ 1));
  }

  std::shared_ptr<Quiet> quiet_ = std::make_shared<Quiet>();
  std::string directory_, root_, error_;
  Job job_;
};

TEST_F(StepsTest, KeepsTheNewestAndRestoresTheLatest) {
  SaveAt({1, 2, 4});
  EXPECT_THAT(Names(), ElementsAre("latest", "step-00000002", "step-00000004"));
  EXPECT_EQ(Restored(), 4);
  EXPECT_THAT(quiet_->notices, IsEmpty());
  // A job may load from the root as well, and from one of its steps.
  for (const auto& [path, step] : {std::pair{root_, 4}, {root_ + "/step-00000002", 2}}) {
    Job job = job_;
    job.from_scratch = false;
    job.checkpoint = path;
    for (const Status& end : OnRanks([&](World& world) -> Status {
           SP_ASSIGN(const Model model, Load(job, ReferenceStages(job.strategy), world));
           EXPECT_EQ(model.step, step);
           return Ok();
         })) {
      EXPECT_TRUE(end.ok()) << end.error().message;
    }
  }
}

TEST_F(StepsTest, WhatIsNoStepIsLeftAlone) {
  job_.training.keep = 1;
  SaveAt({1});
  for (const char* name :
       {"step-2", "step-9223372036854775808", "steps", "best", "notes.txt.saving"}) {
    fs::create_directory(root_ + "/" + name);
  }
  Write("step-00000000x", "a file");
  Write("step-00000001.saving", "of a save that was killed");
  fs::create_directory(root_ + "/step-00000007");  // of another job: later than what this one saves
  SaveAt({1, 2, 3});
  EXPECT_THAT(Names(),
              ElementsAre("best", "latest", "notes.txt.saving", "step-00000000x", "step-00000003",
                          "step-00000007", "step-2", "step-9223372036854775808", "steps"));
  EXPECT_EQ(Restored(), 3);
}

TEST_F(StepsTest, WhatIsNotWholeDoesNotCount) {
  SaveAt({1, 2, 3});
  fs::remove(root_ + "/step-00000003/__0_0.distcp");
  fs::create_directory(root_ + "/step-00000004");
  job_.training.keep = 2;
  const auto at = [&](int64_t step) {
    World world{.files = MakePosixFileSystem()};
    const Status moved = MoveLatest(root_, StepName(step), world);
    EXPECT_TRUE(moved.ok());
    return RetainSteps(root_, 2, world);
  };
  ASSERT_TRUE(at(4).ok());  // 4 and 3 are not whole, so 2 is the only good one
  EXPECT_THAT(Names(), ElementsAre("latest", "step-00000002", "step-00000003", "step-00000004"));
  EXPECT_EQ(Restored(), 2);
  ASSERT_EQ(quiet_->notices.size(), 1u);
  EXPECT_THAT(quiet_->notices[0], AllOf(HasSubstr("loaded step-00000002"),
                                        HasSubstr("step-00000004"), HasSubstr("__0_0.distcp")));
}

TEST_F(StepsTest, ADamagedStepIsSavedAgain) {
  SaveAt({1, 2});
  fs::remove(root_ + "/step-00000002/.metadata");
  EXPECT_EQ(Restored(), 1);
  SaveAt({2});
  EXPECT_EQ(Restored(), 2);
  EXPECT_THAT(quiet_->notices, IsEmpty());
  Write("step-00000002/thesis.tex", "years of work");
  const auto ends = OnRanks([&](World& world) -> Status {
    const Stages stages = ReferenceStages(job_.strategy);
    SP_ASSIGN(Model model, Load(job_, stages, world));
    SP_TRY(Train(model, 2, "stepped", job_, stages, world));
    return Save(model, job_, stages, world);
  });
  ASSERT_FALSE(ends[1].ok());
  EXPECT_THAT(ends[1].error().message, HasSubstr("holds 'thesis.tex'"));
}

TEST_F(StepsTest, RetentionWithoutARightLatestRemovesNothing) {
  SaveAt({1, 2});
  World world{.files = MakePosixFileSystem()};
  for (const char* text : {"", "step-2", "../step-00000001"}) {
    Write("latest", text);
    EXPECT_FALSE(RetainSteps(root_, 1, world).ok());
    EXPECT_EQ(Names().size(), 3u);
  }
}

TEST_F(StepsTest, ADamagedLatestIsPassedOver) {
  SaveAt({1, 2});
  fs::create_directory(directory_ + "/x");
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("../x\n"), directory_ + "/x",
        std::string(1 << 20, 'x'), std::string("step-00000002\nstep-00000001\n"),
        std::string("step-00000002\0", 14), std::string("\xff\xfe")}) {
    Write("latest", text);
    EXPECT_EQ(Restored(), 2) << text.substr(0, 40) << error_;
    ASSERT_EQ(quiet_->notices.size(), 1u);
    EXPECT_THAT(quiet_->notices[0], HasSubstr("latest"));
    EXPECT_LT(quiet_->notices[0].size(), 1000u);
  }
  Write("latest", "step-00000009\n");
  EXPECT_EQ(Restored(), 2);
  EXPECT_THAT(quiet_->notices.at(0), HasSubstr("'step-00000009', which is not there"));
  fs::remove(root_ + "/latest");
  EXPECT_EQ(Restored(), 2);
  EXPECT_THAT(quiet_->notices.at(0), HasSubstr("latest: expected it, found none"));
}

TEST_F(StepsTest, AStepWithoutAManifestIsNotTakenAsWhole) {
  SaveAt({1, 2});
  fs::remove(root_ + "/step-00000002/shardproof.seal.json");
  Flip("step-00000002/__0_0.distcp", 700);
  EXPECT_EQ(Restored(), 1);
  EXPECT_THAT(quiet_->notices.at(0),
              HasSubstr("step-00000002: expected shardproof.seal.json, found none"));
}

TEST_F(StepsTest, ALatestThatNamesAStepBeforeAllIsNotRight) {
  SaveAt({2, 3});
  Write("latest", "step-00000001\n");
  EXPECT_EQ(Restored(), 3);
  EXPECT_THAT(quiet_->notices.at(0), HasSubstr("'step-00000001', which is not there"));
}

TEST_F(StepsTest, ALatestOfOthersMakesNoRoot) {
  const auto files = MakePosixFileSystem();
  fs::create_directories(root_ + "/global_step500");
  Write("latest", "global_step500");
  EXPECT_FALSE(IsStepRoot(*files, root_));
  EXPECT_FALSE(CheckStepRoot(*files, root_).ok());
  Write("latest", "step-00000002\n");
  EXPECT_TRUE(IsStepRoot(*files, root_));
  Write("model.safetensors", "");  // a checkpoint, whatever else is there
  EXPECT_FALSE(IsStepRoot(*files, root_));
}

TEST_F(StepsTest, IfNoneLoadsEachIsNamedAndWhy) {
  SaveAt({1, 2});
  fs::remove(root_ + "/step-00000002/.metadata");
  Write("step-00000001/shardproof.seal.json", "{\"schema\": 1");
  EXPECT_EQ(Restored(), -1);
  EXPECT_THAT(error_, AllOf(HasSubstr("no saved step can be loaded"), HasSubstr("step-00000002"),
                            HasSubstr("shardproof.seal.json: is not valid JSON")));
  for (const auto& name : Names()) fs::remove_all(root_ + "/" + name);
  EXPECT_EQ(Restored(), -1);
}

TEST_F(StepsTest, AnEditedManifestIsRefusedWithNames) {
  job_.training.keep = 1;
  SaveAt({1});
  const std::string path = root_ + "/step-00000001/shardproof.seal.json";
  const auto files = MakePosixFileSystem();
  const Manifest sound = ReadManifest(*files, root_ + "/step-00000001").value();
  const auto refused = [&](const std::function<void(Manifest&)>& change) {
    Manifest manifest = sound;
    change(manifest);
    std::ofstream(path, std::ios::binary) << ManifestText(manifest);
    EXPECT_EQ(Restored(), -1);
    return error_;
  };
  EXPECT_THAT(refused([](Manifest& m) { m.tensors["model.b.weight"].digest += Digest(1, 0); }),
              AllOf(HasSubstr("tensor 'model.b.weight' in '__0_0.distcp' and '__1_0.distcp'"),
                    HasSubstr("expected the bytes of digest"), HasSubstr("step-00000001")));
  EXPECT_THAT(
      refused([](Manifest& m) { m.tensors["optimizer.state.a.weight.exp_avg"].digest = Digest(); }),
      HasSubstr("'optimizer.state.a.weight.exp_avg'"));
  EXPECT_THAT(refused([](Manifest& m) { m.tensors["rng_1"].digest = Digest(); }),
              HasSubstr("'rng_1'"));
  EXPECT_THAT(refused([](Manifest& m) { m.tensors["model.a.weight"].dtype = "F16"; }),
              HasSubstr("expected F16 [7, 4], found F32 [7, 4]"));
  EXPECT_THAT(refused([](Manifest& m) { m.tensors.erase("model.a.weight"); }),
              HasSubstr("expected none, found F32 [7, 4]"));
  EXPECT_THAT(refused([](Manifest& m) {
                m.tensors["model.c"] = {"F32", {1}, Digest()};
              }),
              HasSubstr("tensor 'model.c': expected F32 [1], found none"));
  EXPECT_THAT(refused([](Manifest& m) { m.values["step"] = Digest(); }),
              AllOf(HasSubstr("value 'step'"), HasSubstr("'1' of digest")));
  EXPECT_THAT(refused([](Manifest& m) { m.values.erase("step"); }),
              HasSubstr("value 'step': expected none"));
  EXPECT_THAT(refused([](Manifest& m) { m.values["more"] = Digest(); }),
              HasSubstr("value 'more': expected what was saved, found none"));
  EXPECT_THAT(refused([](Manifest& m) { m.files["more"] = Digest(); }),
              HasSubstr("file 'more': expected what was saved, found none"));
  EXPECT_THAT(refused([](Manifest& m) { m.files["../latest"] = Digest(); }),
              HasSubstr("below the directory"));
  EXPECT_THAT(refused([](Manifest& m) { m.files.erase("__1_0.distcp"); }),
              HasSubstr("file '__1_0.distcp': expected none, found one"));
  fs::remove(path);
  EXPECT_EQ(Restored(), -1);
  EXPECT_THAT(error_, HasSubstr("step-00000001: expected shardproof.seal.json, found none"));
}

TEST_F(StepsTest, ABitThatIsFlippedAnywhereIsNotRestored) {
  SaveAt({1, 2});
  const std::string name = "step-00000002/__1_0.distcp";
  const auto size = static_cast<int64_t>(fs::file_size(root_ + "/" + name));
  int64_t older = 0, same = 0;
  for (int64_t offset = 3; offset < size; offset += 97) {
    Flip(name, offset);
    const int64_t restored = Restored();
    // What belongs to no tensor and no value may be anything.
    if (restored == 2)
      ++same;
    else
      EXPECT_EQ(restored, 1) << offset << ": " << error_;
    older += restored == 1 ? 1 : 0;
    Flip(name, offset);
  }
  EXPECT_GT(older, same);
  EXPECT_EQ(Restored(), 2);
}

TEST_F(StepsTest, ARootThatIsSomethingElseIsRefused) {
  fs::create_directory(root_);
  Write("thesis.tex", "years of work");
  for (const Status& end : OnRanks([&](World& world) -> Status {
         const Stages stages = ReferenceStages(job_.strategy);
         SP_ASSIGN(Model model, Load(job_, stages, world));
         SP_TRY(Train(model, 1, "stepped", job_, stages, world));
         return Save(model, job_, stages, world);
       })) {
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(end.error().message, HasSubstr("holds neither latest nor directories of steps"));
  }
  EXPECT_THAT(Names(), ElementsAre("thesis.tex"));
}

}  // namespace
}  // namespace shardproof
