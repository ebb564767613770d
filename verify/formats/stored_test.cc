// The checkpoints of fixtures/stored, which torch 2.11 and 2.15 wrote; and the same ones damaged.
#include "verify/formats/stored.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "verify/formats/without_crcs.h"
#include "verify/formats/zip.h"
#include "verify/oracle/fixture_files.h"

namespace shardproof::formats {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Fixture(const std::string& name) { return std::string(SHARDPROOF_STORED) + "/" + name; }

const StoredTensor& Named(const StoredCheckpoint& checkpoint, const std::string& name) {
  for (const StoredTensor& tensor : checkpoint.tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return checkpoint.tensors.front();
}

std::string ValueOf(const StoredCheckpoint& checkpoint, const std::string& name) {
  for (const StoredValue& value : checkpoint.values) {
    if (value.name == name) return value.text;
  }
  return "none";
}

class OfEveryTorch : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Stored, OfEveryTorch, ::testing::Values("2.11.0", "2.15.0"),
                         [](const auto& info) { return info.index == 0 ? "Old" : "New"; });

TEST_P(OfEveryTorch, ReadsADcpDirectory) {
  const auto read = OpenStored(Fixture(std::string("dcp_") + GetParam()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  const StoredCheckpoint& checkpoint = read.value();
  EXPECT_EQ(checkpoint.format, "DCP");
  EXPECT_EQ(checkpoint.files.size(), 3u);  // with .metadata
  ASSERT_EQ(checkpoint.tensors.size(), 6u);
  const StoredTensor& rows = Named(checkpoint, "rows");
  EXPECT_EQ(rows.dtype, "F32");
  EXPECT_THAT(rows.shape, ElementsAre(5, 3));
  ASSERT_EQ(rows.chunks.size(), 2u);
  EXPECT_THAT(rows.chunks[1].offsets, ElementsAre(3, 0));
  EXPECT_THAT(rows.chunks[1].sizes, ElementsAre(2, 3));
  EXPECT_NE(rows.chunks[0].file, rows.chunks[1].file);
  const StoredTensor& columns = Named(checkpoint, "columns");
  ASSERT_EQ(columns.chunks.size(), 2u);
  EXPECT_THAT(columns.chunks[1].offsets, ElementsAre(0, 3));
  EXPECT_EQ(columns.dtype, "BF16");
  EXPECT_EQ(Named(checkpoint, "whole").chunks.size(), 1u);
  EXPECT_EQ(Named(checkpoint, "scalar").Elements(), 1u);
  EXPECT_EQ(Named(checkpoint, "empty").Elements(), 0u);
  EXPECT_EQ(ValueOf(checkpoint, "step"), "7");
  EXPECT_EQ(ValueOf(checkpoint, "optim.param_groups.0.betas"), "(0.9, 0.999)");
  EXPECT_EQ(ValueOf(checkpoint, "note"), "'it\\'s über'");
}

TEST_P(OfEveryTorch, ReadsAFileOfTorchSave) {
  const auto read = OpenStored(Fixture(std::string("torch_save_") + GetParam() + ".pt"));
  ASSERT_TRUE(read.ok()) << read.error().message;
  const StoredCheckpoint& checkpoint = read.value();
  EXPECT_EQ(checkpoint.format, "torch.save");
  for (const auto& [name, dtype] : {std::pair("float64", "F64"),
                                    {"float16", "F16"},
                                    {"bfloat16", "BF16"},
                                    {"int64", "I64"},
                                    {"int32", "I32"},
                                    {"int16", "I16"},
                                    {"int8", "I8"},
                                    {"uint8", "U8"},
                                    {"bool", "BOOL"},
                                    {"complex64", "C64"},
                                    {"uint16", "U16"},
                                    {"uint32", "U32"},
                                    {"uint64", "U64"},
                                    {"float8_e4m3fn", "F8_E4M3"},
                                    {"float8_e5m2", "F8_E5M2"}}) {
    EXPECT_EQ(Named(checkpoint, std::string("dtypes.") + name).dtype, dtype);
  }
  const StoredTensor& base = Named(checkpoint, "views.base");
  const StoredTensor& stepped = Named(checkpoint, "views.stepped");
  EXPECT_EQ(Named(checkpoint, "views.rows").chunks[0].file_offset,
            base.chunks[0].file_offset + 6 * 4);
  EXPECT_EQ(Named(checkpoint, "views.column").chunks[0].file_offset,
            base.chunks[0].file_offset + 2 * 4);
  EXPECT_THAT(Named(checkpoint, "views.transposed").chunks[0].strides, ElementsAre(1, 6));
  EXPECT_THAT(stepped.chunks[0].strides, ElementsAre(12, 3));
  EXPECT_THAT(Named(checkpoint, "views.expanded").chunks[0].strides, ElementsAre(0));
  EXPECT_THAT(Named(checkpoint, "parameter").shape, ElementsAre(2, 2));
  EXPECT_THAT(Named(checkpoint, "state.list.1.deep").shape, ElementsAre(3));
  EXPECT_EQ(ValueOf(checkpoint, "state.names"), "['a', 'b']");
  EXPECT_EQ(ValueOf(checkpoint, "state.bytes"), "b'\\x00\\xff'");
}

class DamagedTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::copy(Fixture("dcp_2.15.0"), directory_); }

  std::string directory_ = [this] { return scratch_ / "dcp"; }();

  std::string Refusal() {
    const auto read = OpenStored(directory_);
    if (read.ok()) return "";
    EXPECT_EQ(read.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(read.error().message, Not(HasSubstr("\n")));
    return read.error().message;
  }

  oracle::TemporaryDirectory& scratch() { return scratch_; }

 private:
  static inline oracle::TemporaryDirectory scratch_;

 protected:
  void TearDown() override { fs::remove_all(directory_); }
};

TEST_F(DamagedTest, AMissingFileIsNamed) {
  fs::remove(directory_ + "/__1_0.distcp");
  EXPECT_THAT(Refusal(), HasSubstr("__1_0.distcp: cannot be opened"));
  Damage damage;
  const auto read = OpenStored(directory_, &damage);
  ASSERT_TRUE(read.ok());
  EXPECT_GT(damage.size(), 1u);
  EXPECT_LT(read.value().tensors.size(), 6u);
}

TEST_F(DamagedTest, AShortFileIsNamed) {
  fs::resize_file(directory_ + "/__0_0.distcp", 4000);
  EXPECT_THAT(Refusal(), HasSubstr("expected a piece within the 4000 bytes of '__0_0.distcp'"));
}

TEST_F(DamagedTest, AShortMetadataIsRefused) {
  const auto size = fs::file_size(directory_ + "/.metadata");
  for (uintmax_t cut = 0; cut < size; ++cut) {
    fs::resize_file(directory_ + "/.metadata", size - cut - 1);
    EXPECT_THAT(Refusal(), HasSubstr(".metadata: pickle, offset")) << cut;
  }
}

/// Every byte of each file set to each of a few values: read as something, or refused in one line.
TEST_F(DamagedTest, AnyByteMayBeWrong) {
  const std::string torch_save = scratch() / "one.pt";
  fs::copy_file(Fixture("torch_save_2.15.0.pt"), torch_save, fs::copy_options::overwrite_existing);
  std::mt19937_64 draw(3);
  size_t refused = 0, runs = 0;
  for (const std::string& file :
       {directory_ + "/.metadata", directory_ + "/__0_0.distcp", torch_save}) {
    const std::string opened = file == torch_save ? file : directory_;
    std::string bytes(fs::file_size(file), '\0');
    std::ifstream(file, std::ios::binary)
        .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes = WithoutCrcs(std::move(bytes));  // which would end most of it before anything is read
    std::ofstream(file, std::ios::binary) << bytes;
    for (size_t at = 0; at < bytes.size(); ++at) {
      std::fstream patch(file, std::ios::in | std::ios::out | std::ios::binary);
      patch.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(draw()));
      patch.close();
      const auto read = OpenStored(opened);
      ++runs;
      if (!read.ok()) {
        ++refused;
        ASSERT_NE(read.error().code, ErrorCode::kInternal);
        ASSERT_THAT(read.error().message, Not(HasSubstr("\n")));
      }
      patch.open(file, std::ios::in | std::ios::out | std::ios::binary);
      patch.seekp(static_cast<std::streamoff>(at)).put(bytes[at]);
    }
    ASSERT_TRUE(OpenStored(opened).ok());
  }
  EXPECT_GT(refused, runs / 10);
}

class OfParts : public DamagedTest {};

TEST_F(OfParts, AreNamedAndNotRead) {
  const auto refusal = [&](const std::vector<std::string>& files) {
    const std::string folder = scratch() / "parts";
    fs::remove_all(folder);
    fs::create_directory(folder);
    for (const std::string& file : files) std::ofstream(folder + "/" + file) << "x";
    EXPECT_TRUE(LooksLikeCheckpoint(folder)) << files[0];
    Damage damage;
    const auto read = OpenStored(folder, &damage);
    EXPECT_FALSE(read.ok());
    EXPECT_EQ(damage.size(), 0u);
    return std::pair(read.error().code, read.error().message);
  };
  using ::testing::Pair;
  EXPECT_THAT(
      refusal({"__1.metadata", "__0.metadata", "__0_0.distcp"}),
      Pair(ErrorCode::kUnsupported, HasSubstr("'__0.metadata' is part of a DCP save with")));
  EXPECT_THAT(refusal({"shard-00002-model-00001-of-00001.safetensors",
                       "shard-00001-model-00001-of-00001.safetensors"}),
              Pair(ErrorCode::kUnsupported, HasSubstr("'shard-00001-model-00001-of-00001.safe")));
  EXPECT_THAT(refusal({"__0_0.distcp"}),
              Pair(ErrorCode::kBadInput, HasSubstr("expected .metadata beside the .distcp")));
}

TEST(Crc, OfAPickleIsHeldFirst) {
  const oracle::TemporaryDirectory scratch;
  const std::string one = scratch / "one.pt";
  fs::copy_file(Fixture("torch_save_2.15.0.pt"), one);
  std::string bytes(fs::file_size(one), '\0');
  std::ifstream(one, std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const size_t at = bytes.find("views");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'w';
  std::ofstream(one, std::ios::binary) << bytes;
  const auto refused = OpenStored(one);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("one.pt: entry 'data.pkl' at offset 64: expected CRC-32 "));
  Damage damage;
  const auto read = OpenStored(one, &damage);
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(damage, ElementsAre(refused.error().message));
  EXPECT_EQ(read.value().tensors.size(), 0u);
  EXPECT_EQ(read.value().files.size(), 1u);
  std::ofstream(one, std::ios::binary) << WithoutCrcs(bytes);
  const auto unchecked = OpenStored(one);
  ASSERT_TRUE(unchecked.ok());
  EXPECT_EQ(Named(unchecked.value(), "wiews.base").dtype, "F32");
}

TEST(CheckTiling, FindsGapsAndOverlaps) {
  const auto said = [](std::vector<int64_t> shape,
                       std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> boxes) {
    StoredTensor tensor{.name = "w", .dtype = "F32", .shape = std::move(shape)};
    for (auto& [offsets, sizes] : boxes)
      tensor.chunks.push_back({.offsets = offsets, .sizes = sizes});
    const Status status = CheckTiling("m", tensor);
    return status.ok() ? "tiles" : status.error().message;
  };
  EXPECT_EQ(said({4, 4}, {{{0, 0}, {4, 4}}}), "tiles");
  EXPECT_EQ(said({4, 4}, {{{2, 2}, {2, 2}}, {{0, 0}, {2, 4}}, {{2, 0}, {2, 2}}}), "tiles");
  EXPECT_EQ(said({}, {{{}, {}}}), "tiles");
  EXPECT_EQ(said({0, 3}, {}), "tiles");
  EXPECT_EQ(said({0, 3}, {{{0, 0}, {0, 3}}}), "tiles");
  EXPECT_EQ(said({2}, {{{0}, {2}}, {{2}, {0}}}), "tiles");
  EXPECT_THAT(said({4, 4}, {{{0, 0}, {2, 4}}, {{3, 0}, {1, 4}}}),
              HasSubstr("4 of 16 elements in none"));
  EXPECT_THAT(said({4, 4}, {{{0, 0}, {3, 4}}, {{2, 0}, {2, 4}}}),
              HasSubstr("[0, 0]+[3, 4] and [2, 0]+[2, 4], which overlap"));
  EXPECT_THAT(said({4, 4}, {{{0, 0}, {4, 3}}, {{0, 2}, {4, 2}}}), HasSubstr("overlap"));
  // One gap and one overlap of the same size: the sum alone would not tell.
  EXPECT_THAT(said({4}, {{{0}, {2}}, {{1}, {2}}}), HasSubstr("overlap"));
  EXPECT_THAT(said({4}, {{{0}, {5}}}), HasSubstr("[0]+[5]"));
  EXPECT_THAT(said({4}, {{{0, 0}, {4, 1}}}), HasSubstr("[0, 0]+[4, 1]"));
  EXPECT_THAT(said({}, {{{}, {}}, {{}, {}}}), HasSubstr("overlap"));
  EXPECT_THAT(said({4}, {}), HasSubstr("4 of 4 elements in none"));
}

}  // namespace
}  // namespace shardproof::formats
