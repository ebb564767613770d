#include "src/checkpoint/save.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "src/aten/dtype.h"
#include "src/format/safetensors.h"
#include "src/manifest/manifest.h"
#include "src/model/initial_value.h"
#include "src/pipeline/reference_stages.h"
#include "src/seam/decorators.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelSpec SmallSpec() {
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

uint64_t BytesOf(const Slot& slot) {
  uint64_t bytes = c10::elementSize(slot.spec.dtype);
  for (const int64_t size : slot.spec.shape) bytes *= size;
  return bytes;
}

Model BuildSmall() {
  auto model = BuildOnMeta(SmallSpec(), 0, *MakeHostDevice());
  EXPECT_TRUE(model.ok());
  return std::move(model).value();
}

/// The small model with values that `seed` decides, as `rank` of `world` holds it.
Model MakeModel(uint64_t seed, int64_t rank = 0, int64_t world = 1) {
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

std::vector<SavedFile> PlanOf(const Model& model, uint64_t max_file_bytes, int64_t world_size) {
  return PlanFiles(SplitFused(StateOf(model, World())), max_file_bytes, world_size);
}

TEST(PlanFiles, PutsEveryPersistentTensorInOneFileOnce) {
  const Model model = BuildSmall();
  uint64_t total = 0;
  for (const auto& slot : model.Slots()) total += slot->spec.persistent ? BytesOf(*slot) : 0;
  for (uint64_t limit = 1; limit <= total + 1; ++limit) {
    SCOPED_TRACE(limit);
    std::vector<std::string> names;
    const auto files = PlanOf(model, limit, 1);
    uint64_t previous = 0;
    for (const SavedFile& file : files) {
      ASSERT_FALSE(file.tensors.empty());
      // A file is begun only for a tensor that the one before has no room for.
      EXPECT_TRUE(&file == &files.front() || previous + file.tensors[0].state.bytes() > limit);
      previous = file.size - file.header.size();
      uint64_t header_bytes = 0;
      ASSERT_GE(file.header.size(), 8u);
      std::memcpy(&header_bytes, file.header.data(), 8);
      EXPECT_EQ(header_bytes + 8, file.header.size());
      EXPECT_EQ(file.header.size() % 8, 0u);
      const auto header = nlohmann::json::parse(file.header.substr(8), nullptr, false);
      ASSERT_TRUE(header.is_object());
      EXPECT_EQ(header.size(), file.tensors.size() + 1);
      EXPECT_EQ(header["__metadata__"]["format"], "pt");
      uint64_t offset = file.header.size();
      for (const SavedTensor& tensor : file.tensors) {
        const Slot& slot = *tensor.state.slot;
        const std::string& name = slot.spec.name;
        names.push_back(name);
        EXPECT_EQ(tensor.offset, offset) << name;
        const uint64_t begin = offset - file.header.size();
        const uint64_t end = begin + BytesOf(slot);
        EXPECT_EQ(header[name]["data_offsets"], nlohmann::json({begin, end}));
        EXPECT_EQ(header[name]["shape"], nlohmann::json(slot.spec.shape));
        EXPECT_EQ(header[name]["dtype"], DtypeName(slot.spec.dtype));
        offset += BytesOf(slot);
      }
      EXPECT_EQ(file.size, offset);
      if (file.tensors.size() > 1) {
        EXPECT_LE(file.size - file.header.size(), limit);
      }
    }
    EXPECT_THAT(names, ElementsAre("none", "scale", "mask", "embed.weight", "norm.bias"));
  }
}

TEST(PlanFiles, NamesFilesByTheirNumberAndMakesAboutOneARank) {
  const Model model = BuildSmall();
  const auto one = PlanOf(model, 0, 1);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].name, "model-00001-of-00001.safetensors");
  const auto three = PlanOf(model, 42, 1);  // 11, 42 and 20 data bytes
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[1].name, "model-00002-of-00003.safetensors");
  // It does not depend on who asks: what a rank holds must not matter.
  const auto sharded = PlanOf(MakeModel(1, 2, 3), 42, 1);
  ASSERT_EQ(sharded.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(sharded[i].header, three[i].header);
  // 73 bytes over two ranks: 37 a file, so that the widest tensor is alone.
  EXPECT_EQ(PlanOf(model, 0, 2)[0].tensors.size(), 3u);
  EXPECT_EQ(PlanOf(model, 0, 2).size(), 3u);
}

TEST(PlanFiles, CountsEachFilesBytesAnew) {
  ModelSpec spec;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    spec.tensors.push_back({.name = name, .shape = {2}});
  }
  const auto model = BuildOnMeta(spec, 0, *MakeHostDevice());
  ASSERT_TRUE(model.ok());
  std::vector<size_t> counts;
  for (const SavedFile& file : PlanOf(model.value(), 16, 1)) {
    counts.push_back(file.tensors.size());
  }
  EXPECT_THAT(counts, ElementsAre(2, 2, 1));
}

TEST(PlanFiles, AModelWithoutTensorsIsOneFileWithoutTensors) {
  const Model model;
  const auto files = PlanOf(model, 0, 4);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].size, files[0].header.size());
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

/// A disk whose n-th changing operation fails, and, if `dead`, every one after it; a write that
/// fails leaves half of its bytes behind. Lists what it was asked to do.
class FailingFiles : public FilesDecorator {
 public:
  FailingFiles(std::shared_ptr<FileSystem> inner, size_t fail_at, bool dead)
      : FilesDecorator(std::move(inner)), fail_at_(fail_at), dead_(dead) {}

  Status Create(const std::string& path, uint64_t size) override {
    SP_TRY(Next("create"));
    return inner_->Create(path, size);
  }
  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    SP_TRY(Next("open"));
    SP_ASSIGN(auto file, inner_->OpenForWrite(path));
    return std::unique_ptr<OutputFile>(std::make_unique<File>(std::move(file), *this));
  }
  Status MakeDirectory(const std::string& path) override {
    SP_TRY(Next("mkdir"));
    return inner_->MakeDirectory(path);
  }
  Status SyncDirectory(const std::string& path) override {
    SP_TRY(Next("fsync of directory"));
    return inner_->SyncDirectory(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    SP_TRY(Next("rename"));
    return inner_->Rename(from, to);
  }
  Status Exchange(const std::string& a, const std::string& b) override {
    SP_TRY(Next("exchange"));
    return inner_->Exchange(a, b);
  }
  Status RemoveTree(const std::string& path) override {
    SP_TRY(Next("remove"));
    return inner_->RemoveTree(path);
  }

  const std::vector<std::string>& operations() const { return operations_; }

 private:
  class File : public OutputFile {
   public:
    File(std::unique_ptr<OutputFile> inner, FailingFiles& disk)
        : inner_(std::move(inner)), disk_(disk) {}
    Status WriteAt(uint64_t offset, std::string_view bytes) override {
      if (Status next = disk_.Next("write"); !next.ok()) {
        (void)inner_->WriteAt(offset, bytes.substr(0, bytes.size() / 2));
        return next;
      }
      return inner_->WriteAt(offset, bytes);
    }
    Status Sync() override {
      SP_TRY(disk_.Next("fsync"));
      return inner_->Sync();
    }

   private:
    std::unique_ptr<OutputFile> inner_;
    FailingFiles& disk_;
  };

  Status Next(const std::string& operation) {
    operations_.push_back(operation);
    const size_t index = operations_.size() - 1;
    if (index == fail_at_ || (dead_ && index > fail_at_)) {
      return Failed(operation + ": Input/output error");
    }
    return Ok();
  }

  size_t fail_at_;
  bool dead_;
  std::vector<std::string> operations_;
};

/// Every file under a directory, by relative path.
std::map<std::string, std::string> Contents(const std::string& directory) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    contents[fs::relative(entry.path(), directory).string()] = text.str();
  }
  return contents;
}

class SaveModelTest : public testing::Test {
 protected:
  SaveModelTest() {
    std::string pattern = (fs::temp_directory_path() / "shardproof-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    fs::create_directory(root_ + "/source");
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
    fs::remove_all(root_, ignored);
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

TEST_F(SaveModelTest, AFailureAnywhereLeavesTheOldCheckpointOrTheNewOneWhole) {
  size_t operations = 0;
  std::set<std::string> failed;
  for (const bool dead : {false, true}) {
    for (size_t n = 0;; ++n) {
      world_.files = MakePosixFileSystem();
      fs::remove_all(job_.save_to);
      ASSERT_TRUE(SaveSeed(1).ok());
      const auto before = Contents(job_.save_to);

      const auto disk = std::make_shared<FailingFiles>(MakePosixFileSystem(), n, dead);
      world_.files = disk;
      const Status saved = SaveSeed(2);
      operations = disk->operations().size();
      if (n >= operations) {
        EXPECT_TRUE(saved.ok()) << saved.error().message;
        break;
      }
      const std::string& operation = disk->operations()[n];
      SCOPED_TRACE(fmt::format("operation {}, {}, fails{}", n, operation, dead ? " for good" : ""));
      failed.insert(operation);
      const auto first = disk->operations().begin();
      const bool committed = std::find(first, first + static_cast<ptrdiff_t>(n), "exchange") !=
                             first + static_cast<ptrdiff_t>(n);
      EXPECT_FALSE(saved.ok());
      if (committed) {
        EXPECT_TRUE(Holds(job_.save_to, 2));
      } else {
        EXPECT_EQ(Contents(job_.save_to), before);
        EXPECT_TRUE(Holds(job_.save_to, 1));
      }
      // Once the disk is well again, a save must succeed and leave nothing else behind.
      world_.files = MakePosixFileSystem();
      ASSERT_TRUE(SaveSeed(3).ok());
      EXPECT_TRUE(Holds(job_.save_to, 3));
      EXPECT_EQ(Contents(root_).size(), 1u + 6u);
    }
  }
  EXPECT_GE(operations, 20u);
  for (const char* operation :
       {"create", "open", "mkdir", "write", "fsync", "fsync of directory", "exchange", "remove"}) {
    EXPECT_TRUE(failed.contains(operation)) << operation;
  }
}

TEST_F(SaveModelTest, AFailureOfTheFirstSaveLeavesNothingUnderTheName) {
  for (size_t n = 0;; ++n) {
    fs::remove_all(job_.save_to);
    const auto disk = std::make_shared<FailingFiles>(MakePosixFileSystem(), n, false);
    world_.files = disk;
    const Status saved = SaveSeed(1);
    if (n >= disk->operations().size()) {
      EXPECT_TRUE(saved.ok());
      EXPECT_TRUE(Holds(job_.save_to, 1));
      break;
    }
    SCOPED_TRACE(fmt::format("operation {}, {}, fails", n, disk->operations()[n]));
    EXPECT_FALSE(saved.ok());
    const auto& done = disk->operations();
    const auto renamed = std::find(done.begin(), done.end(), "rename");
    if (renamed != done.end() && renamed < done.begin() + static_cast<ptrdiff_t>(n)) {
      EXPECT_TRUE(Holds(job_.save_to, 1));
    } else {
      EXPECT_FALSE(fs::exists(job_.save_to));
    }
  }
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
