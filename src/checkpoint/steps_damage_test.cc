// Which step is restored when some are damaged, and what is said of those that are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "src/checkpoint/fixture_steps.h"
#include "src/manifest/manifest.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

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
  for (const SaveFormat format : {SaveFormat::kDcp, SaveFormat::kSafetensors}) {
    job_.format = format;
    fs::remove_all(root_);
    SaveAt({1, 2});
    const std::string step = root_ + "/step-00000002/";
    for (const auto& entry : fs::recursive_directory_iterator(step)) {
      const std::string name = fs::relative(entry.path(), root_).string();
      if (!entry.is_regular_file() || entry.path().filename() == kManifestName) continue;
      for (int64_t offset = 3; offset < static_cast<int64_t>(entry.file_size()); offset += 197) {
        Flip(name, offset);
        EXPECT_EQ(Restored(), 1) << name << " " << offset << ": " << error_;
        ASSERT_EQ(quiet_->notices.size(), 1u);
        EXPECT_THAT(quiet_->notices[0], HasSubstr(entry.path().filename().string()));
        Flip(name, offset);
      }
    }
    EXPECT_EQ(Restored(), 2) << error_;
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

}  // namespace
}  // namespace shardproof
