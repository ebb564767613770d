// That a job goes on with all that it had, from either format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>

#include "src/checkpoint/fixture_steps.h"
#include "src/checkpoint/state_dict.h"
#include "src/load/dcp_source.h"
#include "src/load/training_source.h"
#include "src/model/rng.h"
#include "src/optim/optimizer.h"
#include "src/pickle/pickle_writer.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
           SP_TRY(Train(model, last, Stage::kStepped, job_, stages, world));
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
  out.Text("history");
  out.Text(std::string(100'000, '-'));  // more than DCP's writer gathers for one write
  out.SetItems();
  return out.Finish();
}

/// The bytes of the tensor "ema.a.weight".
std::string AverageOf(const Source& source) {
  const SourceTensor& tensor = source.state.at("ema.a.weight");
  std::string bytes(tensor.length, '?');
  tensor.VisitStretches(0, tensor.length,
                        [&](uint64_t start, int64_t file, uint64_t offset, uint64_t length) {
                          std::memcpy(bytes.data() + start, source.BytesAt(file, offset), length);
                        });
  return bytes;
}

TEST_F(StepsTest, WhatAJobIsRestoredWithIsSavedAgainWhateverItIs) {
  const StatePath epochs = {"schedulers", int64_t{0}, "state"};
  const StatePath rate = {"optimizer", "param_groups", int64_t{1}, "initial_lr"};
  const StatePath average = {"ema", "a.weight"};
  const auto save = [&](bool with_class) {
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
    return OnRanks([&](World& world) -> Status {
      SP_ASSIGN(Model model, Load(job_, stages, world));
      SP_TRY(Train(model, 1, Stage::kStepped, job_, stages, world));
      return Save(model, job_, stages, world);
    });
  };
  const auto go_on = [&](int64_t step) {
    return OnRanks([&](World& world) -> Status {
      const Stages stages = ReferenceStages(job_.strategy);
      SP_ASSIGN(Model model, Restore(job_, stages, world));
      SP_TRY(Train(model, step, Stage::kStepped, job_, stages, world));
      return Save(model, job_, stages, world);
    });
  };
  const auto ok = [](const std::vector<Status>& ends) { return ends[0].ok() && ends[1].ok(); };
  ASSERT_TRUE(ok(save(false)));
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
  EXPECT_EQ(AverageOf(second.value()), AverageOf(first.value()));

  // The other format has them too, under their flat keys.
  job_.format = SaveFormat::kSafetensors;
  ASSERT_TRUE(ok(go_on(3)));
  Source third;
  ASSERT_TRUE(AddTrainingState(*files, root_ + "/step-00000003", third).ok());
  EXPECT_EQ(third.values.at("schedulers.0.state"), PickledEpochs());
  EXPECT_EQ(AverageOf(third), AverageOf(first.value()));

  // But what has no form there.
  fs::remove_all(root_);
  job_.format = SaveFormat::kDcp;
  ASSERT_TRUE(ok(save(true)));
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
      SP_TRY(Train(model, 1, Stage::kStepped, job_, stages, world));
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
