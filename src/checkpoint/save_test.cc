#include "src/checkpoint/save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/checkpoint/fixture_save.h"
#include "src/manifest/manifest.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(SaveModelTest, WritesACheckpointThatLoads) {
  const Status saved = SaveSeed(1);
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  EXPECT_TRUE(Holds(job_.save_to, 1));
  EXPECT_FALSE(Holds(job_.save_to, 2)) << "the test cannot tell two models apart";
  const auto files = Contents(job_.save_to);
  EXPECT_EQ(files.size(), 6u);
  EXPECT_EQ(files.at("config.json"), "{\"a\": 1}");
  const auto index = nlohmann::json::parse(files.at("model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"].size(), 5u);
  EXPECT_FALSE(index["weight_map"].contains("head.weight"));
  EXPECT_EQ(index["metadata"]["total_size"], 7 * 3 * 2 + 5 * 4 + 8 + 3);
  EXPECT_FALSE(fs::exists(job_.save_to + ".saving"));
}

TEST_F(SaveModelTest, KeepsTheFilesThatSayHowTheModelIsUsed) {
  std::ofstream(root_ + "/source/generation_config.json") << "{\"b\": 2}";
  std::ofstream(root_ + "/source/notes.txt") << "of the source alone";
  for (int times = 0; times < 2; ++times) {  // the second replaces the first
    ASSERT_TRUE(SaveSeed(1).ok());
    const auto files = Contents(job_.save_to);
    EXPECT_EQ(files.size(), 7u);
    EXPECT_EQ(files.at("config.json"), "{\"a\": 1}");
    EXPECT_EQ(files.at("generation_config.json"), "{\"b\": 2}");
  }
}

TEST_F(SaveModelTest, ReplacesACheckpointAnEmptyDirectoryAndWhatAKilledSaveLeft) {
  fs::create_directory(job_.save_to);
  fs::create_directory(job_.save_to + ".saving");
  std::ofstream(job_.save_to + ".saving/model-00001-of-00009.safetensors") << "half";
  for (const uint64_t seed : {1, 2, 3}) {
    const Status saved = SaveSeed(seed);
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_TRUE(Holds(job_.save_to, seed));
    EXPECT_FALSE(fs::exists(job_.save_to + ".saving"));
    EXPECT_EQ(Contents(job_.save_to).size(), 6u);
  }
}

TEST_F(SaveModelTest, ReplacesTheCheckpointThatItIsAboutToReadFrom) {
  ASSERT_TRUE(SaveSeed(1).ok());
  job_.checkpoint = job_.save_to;
  ASSERT_TRUE(SaveSeed(2).ok());
  EXPECT_TRUE(Holds(job_.save_to, 2));
  EXPECT_EQ(Contents(job_.save_to).at("config.json"), "{\"a\": 1}");
}

TEST_F(SaveModelTest, ReplacesASealedCheckpointAndItsSeal) {
  ASSERT_TRUE(SaveSeed(1).ok());
  std::ofstream(job_.save_to + "/shardproof.seal.json") << "{}";
  ASSERT_TRUE(SaveSeed(2).ok());
  EXPECT_TRUE(Holds(job_.save_to, 2));
  EXPECT_TRUE(ReadManifest(*world_.files, job_.save_to).ok());
}

TEST_F(SaveModelTest, RefusesToReplaceWhatIsNoCheckpoint) {
  fs::create_directory(job_.save_to);
  std::ofstream(job_.save_to + "/thesis.tex") << "years of work";
  const auto before = Contents(root_);
  Status saved = SaveSeed(1);
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(saved.error().message, HasSubstr("replaces only a checkpoint"));
  EXPECT_EQ(Contents(root_), before);

  job_.save_to = root_ + "/source/config.json";
  saved = SaveSeed(1);
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(Contents(root_), before);
}

TEST_F(SaveModelTest, TakesADirectoryNamedWithASlashAtItsEnd) {
  job_.save_to += "/";
  for (const uint64_t seed : {1, 2}) {
    const Status saved = SaveSeed(seed);
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_TRUE(Holds(job_.save_to, seed));
    EXPECT_FALSE(fs::exists(root_ + "/saved.saving"));
  }
}

TEST_F(SaveModelTest, AMissingParentIsAFailureThatLeavesNothing) {
  job_.save_to = root_ + "/no/where";
  const Status saved = SaveSeed(1);
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, ErrorCode::kFailed);
  EXPECT_FALSE(fs::exists(root_ + "/no"));
}

TEST_F(SaveModelTest, RanksTogetherWriteEveryByteOnce) {
  // Each rank's writes, done one rank after the other: they meet only in the files.
  class OneOf : public OneRank {
   public:
    OneOf(int64_t rank, int64_t world) : rank_(rank), world_(world) {}
    int64_t rank() const override { return rank_; }
    int64_t world_size() const override { return world_; }

   private:
    int64_t rank_;
    int64_t world_;
  };
  ASSERT_TRUE(SaveSeed(5).ok());
  const auto expected = Contents(job_.save_to);
  for (const int64_t world : {2, 3, 9}) {
    const std::string directory = root_ + "/world" + std::to_string(world);
    fs::create_directory(directory);
    for (const SavedFile& file : PlanOf(BuildSmall(), job_.max_file_bytes, world)) {
      ASSERT_TRUE(world_.files->Create(directory + "/" + file.name, file.size).ok());
    }
    for (int64_t rank = world; rank-- > 0;) {
      world_.communicator = std::make_shared<OneOf>(rank, world);
      const auto written =
          WriteShards(PlanOf(MakeModel(5, rank, world), job_.max_file_bytes, world), job_,
                      ReferenceStages(job_.strategy), directory, world_);
      ASSERT_TRUE(written.ok()) << written.error().message;
    }
    for (const auto& [name, text] : Contents(directory)) {
      EXPECT_TRUE(text == expected.at(name)) << name << " written by " << world << " ranks";
    }
  }
}

using PosixFileSystemTest = SaveModelTest;

TEST_F(PosixFileSystemTest, NeverReplacesByMistake) {
  FileSystem& files = *world_.files;
  const std::string a = root_ + "/a";
  const std::string b = root_ + "/b";
  ASSERT_TRUE(files.Create(a, 5).ok());
  EXPECT_EQ(fs::file_size(a), 5u);
  EXPECT_EQ(files.Create(a, 3).error().code, ErrorCode::kFailed);
  EXPECT_EQ(fs::file_size(a), 5u);
  ASSERT_TRUE(files.Create(b, 1).ok());
  EXPECT_EQ(files.Rename(a, b).error().code, ErrorCode::kFailed);
  ASSERT_TRUE(files.Exchange(a, b).ok());
  EXPECT_EQ(fs::file_size(a), 1u);
  EXPECT_EQ(fs::file_size(b), 5u);
  EXPECT_EQ(files.Exchange(a, root_ + "/c").error().code, ErrorCode::kFailed);
  EXPECT_EQ(files.MakeDirectory(a).error().code, ErrorCode::kFailed);
  EXPECT_EQ(files.OpenForWrite(root_ + "/c").error().code, ErrorCode::kFailed);
  EXPECT_EQ(files.SyncDirectory(root_ + "/c").error().code, ErrorCode::kFailed);
  EXPECT_TRUE(files.RemoveTree(root_ + "/c").ok());
}

TEST_F(PosixFileSystemTest, RefusesToReadWhatIsNoSmallRegularFile) {
  FileSystem& files = *world_.files;
  for (const std::string& path : {root_, root_ + "/none", std::string("/dev/null")}) {
    EXPECT_EQ(files.Map(path).error().code, ErrorCode::kBadInput) << path;
    EXPECT_EQ(files.ReadText(path, 10).error().code, ErrorCode::kBadInput) << path;
  }
  const std::string path = root_ + "/text";
  std::ofstream(path) << "12345";
  EXPECT_EQ(files.ReadText(path, 5).value(), "12345");
  EXPECT_EQ(files.ReadText(path, 4).error().code, ErrorCode::kBadInput);
  std::ofstream(root_ + "/empty");
  EXPECT_EQ(files.ReadText(root_ + "/empty", 4).value(), "");
  EXPECT_EQ(files.List(path).error().code, ErrorCode::kBadInput);
  EXPECT_THAT(files.List(root_).value(), ElementsAre("empty", "source", "text"));
  EXPECT_THAT(files.List(root_ + "/source").value(), ElementsAre("config.json"));
}

}  // namespace
}  // namespace shardproof
