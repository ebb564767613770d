#include "src/checkpoint/steps.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "src/checkpoint/state_dict.h"
#include "src/comm/sim.h"
#include "src/load/dcp_source.h"
#include "src/load/training_source.h"
#include "src/manifest/manifest.h"
#include "src/model/rng.h"
#include "src/optim/optimizer.h"
#include "src/pickle/pickle_writer.h"
#include "src/pipeline/pipeline.h"
#include "src/pipeline/reference_stages.h"
#include "src/seam/decorators.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
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
  fs::remove(root_ + "/latest");
  fs::create_directories(root_ + "/latest");
  const Status refused = CheckStepRoot(*files, root_);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("/latest: expected a file that names a step"));
  fs::remove(root_ + "/latest");
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
  EXPECT_THAT(refused([](Manifest& m) { m.files["more"] = {}; }),
              HasSubstr("file 'more': expected what was saved, found none"));
  EXPECT_THAT(refused([](Manifest& m) { m.files["../latest"] = {}; }),
              HasSubstr("below the directory"));
  EXPECT_THAT(refused([](Manifest& m) { m.files.erase("__1_0.distcp"); }),
              HasSubstr("file '__1_0.distcp': expected none, found one"));
  EXPECT_THAT(refused([](Manifest& m) { ++m.files["__1_0.distcp"].bytes; }),
              HasSubstr("file '__1_0.distcp': expected "));
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

/// All that a job has on a rank, by name.
std::map<std::string, std::string> ImageOf(const Model& model) {
  std::map<std::string, std::string> image;
  const auto add = [&](const std::string& name, const Slot& slot) {
    std::string& bytes = image[name];
    bytes.resize(slot.value.nbytes());
    slot.CopyOut(0, bytes.data(), bytes.size());
  };
  for (const auto& slot : model.Slots()) add(slot->spec.name, *slot);
  for (const auto& [name, state] : model.optimizer->state) {
    for (const auto& [key, part] : state.Parts()) add(name + "." + key, *part);
  }
  for (const ParameterGroup& group : model.optimizer->groups) {
    std::string& options = image["group " + std::to_string(image.size())];
    for (const auto& [option, value] : OptionsOf(group)) options += option + "=" + value + " ";
    for (const auto& slot : group.slots) options += slot->spec.name + " ";
  }
  add("rng", *StateOfRng(*model.rng));
  return image;
}

TEST_F(StepsTest, AJobGoesOnFromTheOtherFormatAndFromFusedTensorsInParts) {
  std::vector<std::map<std::string, std::string>> expected(2);
  const auto run = [&](bool restores, int64_t last, bool saves, auto& images) {
    for (const Status& end : OnRanks([&](World& world) -> Status {
           const Stages stages = ReferenceStages(job_.strategy);
           SP_ASSIGN(Model model,
                     restores ? Restore(job_, stages, world) : Load(job_, stages, world));
           SP_TRY(Train(model, last, "stepped", job_, stages, world));
           images[world.rank()] = ImageOf(model);
           return saves ? Save(model, job_, stages, world) : Ok();
         })) {
      ASSERT_TRUE(end.ok()) << end.error().message;
    }
  };
  // Made of parts of another dtype than its state has, one of them without elements; one renamed.
  job_.model->tensors.push_back(
      {.name = "fused.weight",
       .dtype = at::kBFloat16,
       .shape = {7, 3},
       .stored = {{{"gate.weight", {4, 3}}, {"none.weight", {0, 3}}, {"up.weight", {3, 3}}}}});
  job_.model->tensors.push_back(
      {.name = "here.scale", .shape = {5}, .stored = {{{"there.scale", {5}}}}});
  run(false, 6, false, expected);
  const auto formats = {std::pair(SaveFormat::kDcp, false), std::pair(SaveFormat::kDcp, true),
                        std::pair(SaveFormat::kSafetensors, false)};
  for (const auto& [first, first_is_split] : formats) {
    for (const auto& [second, second_is_split] : formats) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(first) << first_is_split << " "
                                        << static_cast<int>(second) << second_is_split);
      fs::remove_all(root_);
      std::vector<std::map<std::string, std::string>> images(2);
      job_.format = first;
      job_.training.split_fused = first_is_split;
      run(false, 2, true, images);
      job_.format = second;
      job_.training.split_fused = second_is_split;
      run(true, 4, true, images);
      EXPECT_THAT(Names(), ElementsAre("latest", "step-00000002", "step-00000004"));
      run(true, 6, false, images);
      EXPECT_TRUE(images == expected);
    }
  }
}

TEST_F(StepsTest, SafetensorsWithDamagedTrainingStateIsPassedOver) {
  job_.format = SaveFormat::kSafetensors;
  job_.max_file_bytes = 1 << 20;
  const std::string folder = root_ + "/step-00000004/training/";
  const std::vector<std::pair<std::string, std::function<void()>>> damage = {
      {"values.json", [&] { fs::remove(folder + "values.json"); }},
      {"state.safetensors.index.json",
       [&] { fs::remove(folder + "state.safetensors.index.json"); }},
      {"state-00001-of-00001.safetensors",
       [&] { fs::resize_file(folder + "state-00001-of-00001.safetensors", 200); }},
      {"expected the bytes of digest",
       [&] { Flip("step-00000004/training/state-00001-of-00001.safetensors", -1); }},
      {"expected the text of digest",
       [&] {
         const auto files = MakePosixFileSystem();
         std::string text = files->ReadText(folder + "values.json", 1 << 20).value();
         text.replace(text.find("0.1"), 3, "0.2");
         Write("step-00000004/training/values.json", text);
       }},
      {"none", [&] { fs::remove_all(folder); }},
  };
  for (const auto& [told, act] : damage) {
    SCOPED_TRACE(told);
    fs::remove_all(root_);
    SaveAt({2, 4});
    EXPECT_EQ(Restored(), 4) << error_;
    act();
    EXPECT_EQ(Restored(), 2) << error_;
    ASSERT_EQ(quiet_->notices.size(), 1u);
    EXPECT_THAT(quiet_->notices[0], HasSubstr(told));
  }
}

TEST_F(StepsTest, TrainingStateBesideAModelIsReadWithSuspicion) {
  job_.format = SaveFormat::kSafetensors;
  SaveAt({2});
  const std::string step = root_ + "/step-00000002";
  fs::remove(step + "/shardproof.seal.json");  // which would say it first
  const auto files = MakePosixFileSystem();
  const std::string values = files->ReadText(step + "/training/values.json", 1 << 20).value();
  const std::string index =
      files->ReadText(step + "/training/state.safetensors.index.json", 1 << 20).value();
  const auto refused = [&](const std::string& told) {
    Job job = job_;
    job.checkpoint = step;
    job.from_scratch = false;
    for (const Status& end : OnRanks([&](World& world) -> Status {
           SP_ASSIGN(const Model model, Load(job, ReferenceStages(job.strategy), world));
           return Ok();
         })) {
      if (told.empty()) {
        EXPECT_TRUE(end.ok()) << end.error().message;
        continue;
      }
      ASSERT_FALSE(end.ok()) << told;
      EXPECT_THAT(end.error().code, AnyOf(ErrorCode::kBadInput, ErrorCode::kUnsupported));
      EXPECT_THAT(end.error().message, HasSubstr(told));
      EXPECT_EQ(end.error().message.find('\n'), std::string::npos);
    }
  };
  refused("");
  const std::vector<std::pair<std::string, std::string>> of_values = {
      {"", "is not valid JSON"},
      {"[]", "values.json"},
      {"{}", "expected schema 1 and an object values"},
      {R"({"schema": 2, "values": {}})", "expected schema 1"},
      {R"({"schema": 1, "values": []})", "an object values"},
      {R"({"schema": 1, "values": {"step": {"set": [1]}}})", "'step': expected null"},
      {R"({"schema": 1, "values": {"step": -1}})",
       "value 'step': expected an integer of at least 0"},
      {R"({"schema": 1, "values": {"step": 2}})", "no value 'optimizer.param_groups.0.params'"},
  };
  for (const auto& [text, told] : of_values) {
    SCOPED_TRACE(text);
    Write("step-00000002/training/values.json", text);
    refused(told);
  }
  Write("step-00000002/training/values.json", values);
  std::string changed = index;
  changed.replace(changed.find("rng_1"), 5, "rng_7");
  for (const auto& [text, told] :
       {std::pair<std::string, std::string>{"{}", "weight_map"}, {changed, "rng_7"}}) {
    SCOPED_TRACE(told);
    Write("step-00000002/training/state.safetensors.index.json", text);
    refused(told);
  }
  Write("step-00000002/training/state.safetensors.index.json", index);
  refused("");
}

/// A pickle of a class that is known to the reader and has no form in JSON.
std::string PickledDtype() {
  pickle::PickleWriter out;
  out.Name("torch", "float32");
  return out.Finish();
}

std::string PickledEpochs() {
  pickle::PickleWriter out;
  out.EmptyDict();
  out.Mark();
  out.Text("last_epoch");
  out.Integer(3);
  out.SetItems();
  return out.Finish();
}

TEST_F(StepsTest, WhatAJobIsRestoredWithIsSavedAgainWhateverItIs) {
  const StatePath epochs = {"schedulers", int64_t{0}, "state"};
  const StatePath rate = {"optimizer", "param_groups", int64_t{1}, "initial_lr"};
  const StatePath average = {"ema", "a.weight"};
  const auto save = [&](bool with_class) {
    for (const Status& end : OnRanks([&](World& world) -> Status {
           Stages stages = ReferenceStages(job_.strategy);
           stages.state_of = [&](const Model& model, const World& at) {
             StateDict state = StateOf(model, at);
             state.values.push_back({epochs, PickledEpochs()});
             state.values.push_back({rate, PickledEpochs()});
             if (with_class) state.values.push_back({{"model", "a._extra_state"}, PickledDtype()});
             auto slot = std::make_shared<Slot>(*model.Slots()[0]);
             slot->spec.name = "ema.a.weight";
             state.tensors.push_back({{average}, slot});
             return state;
           };
           SP_ASSIGN(Model model, Load(job_, stages, world));
           SP_TRY(Train(model, 1, "stepped", job_, stages, world));
           return Save(model, job_, stages, world);
         })) {
      ASSERT_TRUE(end.ok()) << end.error().message;
    }
  };
  const auto go_on = [&](int64_t step) {
    return OnRanks([&](World& world) -> Status {
      const Stages stages = ReferenceStages(job_.strategy);
      SP_ASSIGN(Model model, Restore(job_, stages, world));
      SP_TRY(Train(model, step, "stepped", job_, stages, world));
      return Save(model, job_, stages, world);
    });
  };
  const auto ok = [](const std::vector<Status>& ends) { return ends[0].ok() && ends[1].ok(); };
  save(false);
  ASSERT_TRUE(ok(go_on(2)));
  const auto files = MakePosixFileSystem();
  const auto first = OpenDcpSource(*files, root_ + "/step-00000001");
  const auto second = OpenDcpSource(*files, root_ + "/step-00000002");
  ASSERT_TRUE(first.ok() && second.ok());
  for (const auto& path : {epochs, rate}) {
    EXPECT_EQ(second.value().values.at(FlatKey(path)), first.value().values.at(FlatKey(path)));
  }
  EXPECT_EQ(second.value().values.size(), first.value().values.size());
  EXPECT_EQ(second.value().paths_of_state.at("schedulers.0.state"), epochs);
  EXPECT_EQ(second.value().paths_of_state.at("ema.a.weight"), average);
  const auto average_of = [](const Source& source) {
    const SourceTensor& tensor = source.state.at("ema.a.weight");
    std::string bytes(tensor.length, '?');
    tensor.VisitStretches(0, tensor.length,
                          [&](uint64_t start, int64_t file, uint64_t offset, uint64_t length) {
                            std::memcpy(bytes.data() + start, source.BytesAt(file, offset), length);
                          });
    return bytes;
  };
  EXPECT_EQ(average_of(second.value()), average_of(first.value()));

  // The other format has them too, under their flat keys.
  job_.format = SaveFormat::kSafetensors;
  ASSERT_TRUE(ok(go_on(3)));
  Source third;
  ASSERT_TRUE(AddTrainingState(*files, root_ + "/step-00000003", third).ok());
  EXPECT_EQ(third.values.at("schedulers.0.state"), PickledEpochs());
  EXPECT_EQ(average_of(third), average_of(first.value()));

  // But what has no form there.
  fs::remove_all(root_);
  job_.format = SaveFormat::kDcp;
  save(true);
  ASSERT_TRUE(ok(go_on(2)));
  job_.format = SaveFormat::kSafetensors;
  const auto refused = go_on(3);
  ASSERT_FALSE(refused[0].ok());
  EXPECT_THAT(refused[0].error().message,
              AllOf(HasSubstr("value 'model.a._extra_state'"), HasSubstr("has no form in JSON")));
  EXPECT_THAT(Names(), ElementsAre("latest", "step-00000001", "step-00000002"));
}

TEST_F(StepsTest, TwoThingsUnderOneKeyAreNotSaved) {
  job_.model->tensors.push_back({.name = "rng_1", .shape = {3}});
  job_.format = SaveFormat::kSafetensors;
  const auto save = [&] {
    return OnRanks([&](World& world) -> Status {
      const Stages stages = ReferenceStages(job_.strategy);
      SP_ASSIGN(Model model, Load(job_, stages, world));
      SP_TRY(Train(model, 1, "stepped", job_, stages, world));
      return Save(model, job_, stages, world);
    });
  };
  for (const Status& end : save()) {
    ASSERT_FALSE(end.ok());
    EXPECT_THAT(end.error().message, HasSubstr("'rng_1': more than one thing"));
  }
  EXPECT_THAT(Names(), IsEmpty());
  job_.format = SaveFormat::kDcp;  // where a model's tensors have keys of their own
  for (const Status& end : save()) EXPECT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(Restored(), 1);
}

}  // namespace
}  // namespace shardproof
