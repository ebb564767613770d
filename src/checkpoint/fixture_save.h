// For tests: a small model, and a directory that it is saved into by a world of one.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "src/checkpoint/save.h"
#include "src/format/safetensors.h"
#include "src/model/initial_value.h"
#include "src/pipeline/reference_stages.h"
#include "src/seam/decorators.h"

namespace shardproof {

inline ModelSpec SmallSpec() {
  return {.tensors = {{.name = "embed.weight", .dtype = at::kBFloat16, .shape = {7, 3}},
                      {.name = "norm.bias", .kind = TensorKind::kBuffer, .shape = {5}},
                      {.name = "none", .shape = {0, 4}},
                      {.name = "inv_freq",
                       .kind = TensorKind::kBuffer,
                       .persistent = false,
                       .shape = {2},
                       .rope = RopeSpec{}},
                      {.name = "scale", .dtype = at::kDouble, .shape = {}},
                      {.name = "mask", .dtype = at::kBool, .shape = {3}},
                      {.name = "head.weight", .dtype = at::kBFloat16, .shape = {7, 3}}},
          .ties = {{"embed.weight", "head.weight"}},
          .init_scale = 1.0};
}

inline Model BuildSmall() {
  auto model = BuildOnMeta(SmallSpec(), 0, *MakeHostDevice());
  EXPECT_TRUE(model.ok());
  return std::move(model).value();
}

/// The small model with values that `seed` decides, as `rank` of `world` holds it.
inline Model MakeModel(uint64_t seed, int64_t rank = 0, int64_t world = 1) {
  Model model = BuildSmall();
  const Mesh mesh{{{"dp_shard", world}}};
  for (const auto& slot : model.Slots()) {
    const bool cut = slot->spec.kind == TensorKind::kParameter && !slot->spec.shape.empty();
    slot->placements = {cut ? Placement::Shard(0) : Placement::Replicate()};
    slot->shard = ShardOf(slot->spec.shape, slot->placements, mesh, {rank});
    slot->value = at::empty(slot->shard.local_shape, at::TensorOptions().dtype(slot->spec.dtype));
    FillInitialValue(*slot, seed, 1.0);
  }
  return model;
}

inline std::vector<SavedFile> PlanOf(const Model& model, uint64_t max_file_bytes,
                                     int64_t world_size) {
  return PlanFiles(SplitFused(StateOf(model, World())), max_file_bytes, world_size);
}

/// All ranks of a world of one.
class OneRank : public Communicator {
 public:
  int64_t rank() const override { return 0; }
  int64_t world_size() const override { return 1; }
  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor, int64_t, std::vector<Piece>) override {
    class Done : public Pending {
      Result<at::Tensor> Wait() override { return at::Tensor(); }
    };
    return std::unique_ptr<Pending>(std::make_unique<Done>());
  }
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor, std::vector<at::Tensor>, int64_t,
                                           std::vector<std::string>) override {
    return Internal("nothing should be scattered");
  }
  Result<int64_t> Max(int64_t value, const std::string&) override { return value; }
  Result<std::vector<int64_t>> Sum(std::vector<int64_t> values, const std::string&) override {
    return values;
  }
};

/// Every file under a directory, by relative path.
inline std::map<std::string, std::string> Contents(const std::string& directory) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    contents[std::filesystem::relative(entry.path(), directory).string()] = text.str();
  }
  return contents;
}

class SaveModelTest : public testing::Test {
 protected:
  SaveModelTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "shardproof-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    std::filesystem::create_directory(root_ + "/source");
    std::ofstream(root_ + "/source/config.json") << "{\"a\": 1}";
    job_.checkpoint = root_ + "/source";
    job_.save_to = root_ + "/saved";
    job_.max_file_bytes = 42;
    world_.files = MakePosixFileSystem();
    world_.device = MakeHostDevice();
    world_.communicator = std::make_shared<OneRank>();
  }
  ~SaveModelTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  Status SaveSeed(uint64_t seed) {
    return SaveModel(MakeModel(seed), ReferenceStages(job_.strategy), job_, world_);
  }

  /// Whether the checkpoint at `directory` loads and holds what `seed` decides.
  bool Holds(const std::string& directory, uint64_t seed) {
    const auto source = OpenSource(*MakePosixFileSystem(), directory);
    if (!source.ok()) {
      ADD_FAILURE() << source.error().message;
      return false;
    }
    bool same = source.value().tensors.size() == 5;
    for (const auto& slot : MakeModel(seed).Slots()) {
      if (!slot->spec.persistent) continue;
      const auto found = source.value().tensors.find(slot->spec.name);
      if (found == source.value().tensors.end()) return false;
      const SourceTensor& tensor = found->second;
      same = same && tensor.dtype == slot->spec.dtype && tensor.shape == slot->spec.shape &&
             (tensor.length == 0 || std::memcmp(source.value().BytesOf(tensor),
                                                slot->value.const_data_ptr(), tensor.length) == 0);
    }
    return same;
  }

  std::string root_;
  Job job_;
  World world_;
};

}  // namespace shardproof
