// A job whose ranks share their micro-batches, and whose first rank saves all: the same on any
// mesh.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "src/checkpoint/fixture_steps.h"
#include "src/optim/optimizer.h"

namespace shardproof {
namespace {

class SharedStepsTest : public StepsTest {
 protected:
  /// What one rank restores of a job that trained on a mesh: bytes by name.
  std::map<std::string, std::string> SavedOn(const Mesh& mesh) {
    std::filesystem::remove_all(root_);
    job_.mesh = mesh;
    const auto train = [&](World& world) -> Status {
      const Stages stages = ReferenceStages(job_.strategy);
      SP_ASSIGN(Model model, Load(job_, stages, world));
      SP_TRY(Train(model, 3, Stage::kStepped, job_, stages, world));
      return Save(model, job_, stages, world);
    };
    for (const Status& end : OnRanks(train, mesh.WorldSize())) {
      EXPECT_TRUE(end.ok()) << end.error().message;
    }
    std::map<std::string, std::string> images;
    job_.mesh = {{{"dp_shard", 1}}};
    const auto restore = [&](World& world) -> Status {
      SP_ASSIGN(const Model model, Restore(job_, ReferenceStages(job_.strategy), world));
      const auto add = [&](const std::string& name, const Slot& slot) {
        images[name].resize(slot.value.nbytes());
        slot.CopyOut(0, images[name].data(), images[name].size());
      };
      for (const auto& slot : model.Slots()) add(slot->spec.name, *slot);
      for (const auto& [name, state] : model.optimizer->state) {
        for (const auto& [key, part] : state.Parts()) add(name + "." + key, *part);
      }
      return Ok();
    };
    for (const Status& end : OnRanks(restore, 1)) EXPECT_TRUE(end.ok()) << end.error().message;
    return images;
  }
};

TEST_F(SharedStepsTest, AreEqualOnEveryMesh) {
  job_.model->tensors.push_back({.name = "c.o_proj.weight", .shape = {4, 6}});
  job_.training.micro_batches = 5;
  job_.training.gathered = true;
  job_.bucket_bytes = 100;
  for (const auto format : {SaveFormat::kDcp, SaveFormat::kSafetensors}) {
    job_.format = format;
    job_.training.reduce.reset();
    const auto alone = SavedOn({{{"dp_shard", 2}}});
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      job_.training.reduce = dtype;
      const auto expected = SavedOn({{{"dp_shard", 1}}});
      EXPECT_GT(expected.size(), 10u);
      EXPECT_NE(expected, alone) << "what travels is rounded";
      for (const Mesh& mesh :
           {Mesh{{{"dp_shard", 3}}}, Mesh{{{"dp_replicate", 2}, {"dp_shard", 2}}},
            Mesh{{{"dp_shard", 2}, {"tp", 2}}},
            Mesh{{{"tp", 2}, {"dp_replicate", 2}, {"dp_shard", 2}}}}) {
        EXPECT_EQ(SavedOn(mesh), expected) << mesh.WorldSize() << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace shardproof
