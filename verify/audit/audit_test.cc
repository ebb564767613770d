// Audits of the checkpoints in fixtures/stored, which real torch wrote, and of damaged ones.
#include "verify/audit/audit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "verify/formats/stored.h"
#include "verify/formats/without_crcs.h"
#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/fixture_files.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Fixture(const std::string& name) { return std::string(SHARDPROOF_STORED) + "/" + name; }

const AuditedTensor& Named(const AuditResult& result, const std::string& name) {
  for (const AuditedTensor& tensor : result.tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return result.tensors.front();
}

/// By the oracle's own plain digest.
std::string ScalarDigest(const std::string& bytes) {
  oracle::ScalarDigest digest(bytes.size(), *oracle::FindDtype("U8"));
  digest.Add(bytes.data(), bytes.size());
  FileTensor out;
  digest.Finish(out);
  return out.digest.Hex();
}

template <typename T>
std::string Counting(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += oracle::BytesOf<T>({static_cast<T>(i)});
  return bytes;
}

std::string BytesOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class AuditTest : public ::testing::Test {
 protected:
  /// A copy of a fixture that may be damaged.
  std::string Copy(const std::string& name) {
    const std::string path = scratch_ / name;
    fs::copy(Fixture(name), path, fs::copy_options::recursive);
    return path;
  }

  oracle::TemporaryDirectory scratch_;
};

TEST_F(AuditTest, DigestsTheRowMajorImageHoweverItIsCut) {
  for (const std::string version : {"2.11.0", "2.15.0"}) {
    const auto dcp = Audit(Fixture("dcp_" + version));
    ASSERT_TRUE(dcp.ok()) << dcp.error().message;
    EXPECT_THAT(dcp.value().damage, IsEmpty());
    EXPECT_EQ(Named(dcp.value(), "rows").digest.Hex(), ScalarDigest(Counting<float>(15)));
    EXPECT_EQ(Named(dcp.value(), "whole").digest.Hex(), ScalarDigest(Counting<int64_t>(6)));
    EXPECT_EQ(Named(dcp.value(), "one_row").digest.Hex(), ScalarDigest(Counting<float>(4)));
    std::string columns;  // bf16 is the upper half of f32
    for (int i = 0; i < 20; ++i)
      columns += oracle::BytesOf<float>({static_cast<float>(i)}).substr(2);
    EXPECT_EQ(Named(dcp.value(), "columns").digest.Hex(), ScalarDigest(columns));
    const auto saved = Audit(Fixture("torch_save_" + version + ".pt"));
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(Named(saved.value(), "views.base").digest.Hex(), ScalarDigest(Counting<float>(24)));
    std::string transposed;
    for (int i = 0; i < 6; ++i) {
      for (int k = 0; k < 4; ++k)
        transposed += oracle::BytesOf<float>({static_cast<float>(k * 6 + i)});
    }
    EXPECT_EQ(Named(saved.value(), "views.transposed").digest.Hex(), ScalarDigest(transposed));
    EXPECT_EQ(Named(saved.value(), "views.stepped").digest.Hex(),
              ScalarDigest(oracle::BytesOf<float>({0, 3, 12, 15})));
  }
}

TEST_F(AuditTest, CountsWhatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::string path = scratch_ / "a.safetensors";
  ASSERT_TRUE(
      oracle::WriteSafetensors(
          path, {oracle::PlannedBytes("w", "F32", {4}, oracle::BytesOf<float>({nan, 1, -inf, inf})),
                 oracle::PlannedBytes("c", "C64", {1}, oracle::BytesOf<float>({1, nan})),
                 oracle::PlannedBytes("i", "I32", {1}, oracle::BytesOf<float>({nan}))})
          .ok());
  const auto audited = Audit(path);
  ASSERT_TRUE(audited.ok()) << audited.error().message;
  EXPECT_EQ(Named(audited.value(), "w").nan_count, 1u);
  EXPECT_EQ(Named(audited.value(), "w").inf_count, 2u);
  EXPECT_EQ(Named(audited.value(), "c").nan_count, 1u);
  EXPECT_EQ(Named(audited.value(), "i").nan_count, 0u);
  EXPECT_TRUE(audited.value().IsSound());
}

TEST_F(AuditTest, AnEmbeddingHasTheRowsOfTheVocabulary) {
  const auto damage = [&](const std::string& name, int64_t rows, const std::string& config) {
    const std::string bytes(static_cast<size_t>(rows) * 2, '1');
    EXPECT_TRUE(oracle::WriteSafetensors(scratch_ / "model.safetensors",
                                         {oracle::PlannedBytes(name, "U8", {rows, 2}, bytes)})
                    .ok());
    EXPECT_TRUE(oracle::WriteTextFile(scratch_ / "config.json", config).ok());
    const auto audited = Audit(scratch_.path());
    EXPECT_TRUE(audited.ok());
    return audited.ok() ? audited.value().damage : std::vector<std::string>{"none"};
  };
  const std::string nested = R"({"text_config": {"vocab_size": 8}, "x": {"audio_vocab_size": 20}})";
  EXPECT_THAT(damage("model.embed_tokens.weight", 4, R"({"vocab_size": 8})"),
              ElementsAre(AllOf(HasSubstr("'model.embed_tokens.weight'"), HasSubstr("the 8 rows"),
                                HasSubstr("found [4, 2]"))));
  EXPECT_THAT(damage("lm_head.weight", 7, nested), ElementsAre(HasSubstr("the 8 rows")));
  EXPECT_THAT(damage("lm_head.weight", 8, nested), IsEmpty());
  EXPECT_THAT(damage("wte.weight", 10, R"({"vocab_size": 8})"), IsEmpty()) << "padding";
  EXPECT_THAT(damage("embed_positions.weight", 4, R"({"vocab_size": 8})"), IsEmpty());
  EXPECT_THAT(damage("wte.weight", 4, R"({"vocab_size": "8"})"), IsEmpty());
  const std::string typed = R"({"vocab_size": 8, "type_vocab_size": 2})";
  for (const char* name :
       {"shared.weight", "backbone.embeddings.weight", "e.word_embeddings.weight"})
    EXPECT_THAT(damage(name, 4, typed), ElementsAre(HasSubstr("the 8 rows"))) << name;
  EXPECT_THAT(damage("layers.0.mlp.shared.weight", 4, typed), IsEmpty());
}

/// Tells where the bytes of tensors are in a file, by what the formats say.
std::vector<bool> BytesOfTensors(const std::string& checkpoint, const std::string& file) {
  std::vector<bool> is_tensor(fs::file_size(file));
  const auto read = formats::OpenStored(checkpoint);
  EXPECT_TRUE(read.ok());
  for (const formats::StoredTensor& tensor : read.value().tensors) {
    for (const formats::Chunk& chunk : tensor.chunks) {
      if (read.value().files[chunk.file].path != file || chunk.Elements() == 0) continue;
      size_t reach = 1;
      for (size_t dim = 0; dim < chunk.sizes.size(); ++dim)
        reach += static_cast<size_t>((chunk.sizes[dim] - 1) * chunk.strides[dim]);
      const size_t bytes = reach * tensor.Bytes() / tensor.Elements();
      std::fill_n(is_tensor.begin() + static_cast<ptrdiff_t>(chunk.file_offset), bytes, true);
    }
  }
  return is_tensor;
}

TEST_F(AuditTest, TheCrcOfAnEntryShowsEveryFlippedByteOfATensor) {
  const std::string directory = Copy("dcp_2.15.0");
  const std::string one = Copy("torch_save_2.15.0.pt");
  for (const auto& [checkpoint, file] : {std::pair(directory, directory + "/__0_0.distcp"),
                                         {directory, directory + "/__1_0.distcp"},
                                         {one, one}}) {
    const auto sound = Audit(checkpoint);
    ASSERT_TRUE(sound.ok());
    EXPECT_GT(sound.value().entries_checked, 20u);
    EXPECT_EQ(sound.value().entries_unchecked, 0u);
    EXPECT_THAT(AuditText(sound.value(), false),
                HasSubstr("SOUND, structure and CRC-32  complete"));
    const std::vector<bool> is_tensor = BytesOfTensors(checkpoint, file);
    EXPECT_GT(std::count(is_tensor.begin(), is_tensor.end(), true), 60);
    std::fstream patch(file, std::ios::in | std::ios::out | std::ios::binary);
    for (size_t at = 0; at < is_tensor.size(); ++at) {
      if (!is_tensor[at]) continue;
      const int byte = patch.seekg(static_cast<std::streamoff>(at)).get();
      const auto put = [&](int value) {
        patch.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(value)).flush();
      };
      put(byte ^ (1 << at % 8));
      const auto audited = Audit(checkpoint);
      ASSERT_TRUE(audited.ok());
      EXPECT_THAT(audited.value().damage,
                  ElementsAre(AllOf(HasSubstr(file + ": entry 'data/"), HasSubstr(", of tensor"),
                                    HasSubstr(": expected CRC-32 "), HasSubstr(", found "))))
          << at;
      put(byte);
    }
  }
}

/// Hand-made: what shares a storage is named with it, and what no tensor is of is checked too.
TEST_F(AuditTest, ADamagedEntryNamesTheTensorsInIt) {
  const std::string one = Copy("torch_save_2.15.0.pt");
  const std::string kVersion("3\nPK\7\10", 6);  // and what follows an entry
  const auto lines_of = [&](const std::string& unique) {
    const std::string before = BytesOfFile(one);
    std::string bytes = before;
    const size_t at = bytes.find(unique);
    EXPECT_NE(at, std::string::npos);
    bytes[at] ^= 1;
    std::ofstream(one, std::ios::binary) << bytes;
    auto audited = Audit(one);
    std::ofstream(one, std::ios::binary) << before;
    return audited.ok() ? audited.value().damage
                        : std::vector<std::string>{audited.error().message};
  };
  EXPECT_THAT(lines_of(oracle::BytesOf<float>({20, 21, 22})),
              ElementsAre(HasSubstr(", of tensors 'views.base', 'views.stepped', "
                                    "'views.transposed' and 2 more: expected CRC-32 ")));
  // What no tensor is of: the version of the format, 3 and a line's end.
  EXPECT_THAT(lines_of(kVersion),
              ElementsAre(AllOf(HasSubstr(": entry 'version' at offset "),
                                HasSubstr(": expected CRC-32 55679ed1, found "))));
  EXPECT_THAT(lines_of("torch\nFloatStorage"), ElementsAre(HasSubstr(": entry 'data.pkl' at ")));
}

/// As torch writes them with set_crc32_options(False): 0 for every entry. And with skip_data: 0 for
/// the storages alone.
TEST_F(AuditTest, WhereThereIsNoCrcNothingIsCalledDamaged) {
  const std::string one = Copy("torch_save_2.15.0.pt");
  const std::string bytes = BytesOfFile(one);
  const auto without = [&](bool all) {
    std::string changed = formats::WithoutCrcs(bytes, all ? "" : "/data/");
    const size_t at = changed.find(oracle::BytesOf<float>({20, 21, 22}));
    changed[at] ^= 1;
    std::ofstream(one, std::ios::binary) << changed;
    auto audited = Audit(one);
    EXPECT_TRUE(audited.ok());
    EXPECT_THAT(audited.value().damage, IsEmpty());
    return audited.value();
  };
  const AuditResult none = without(true);
  EXPECT_EQ(none.entries_checked, 0u);
  EXPECT_THAT(AuditText(none, false), HasSubstr("SOUND, structure only"));
  const AuditResult some = without(false);
  EXPECT_EQ(some.entries_checked, 6u);  // data.pkl, two of formats, byteorder, version, id
  EXPECT_GT(some.entries_unchecked, 15u);
  EXPECT_THAT(AuditText(some, false), HasSubstr("SOUND, structure and CRC-32 of 6 of "));
}

TEST_F(AuditTest, OneFileMayBeRenamedWithItsSeal) {
  const std::string path = Copy("torch_save_2.15.0.pt");
  auto audited = Audit(path);
  ASSERT_TRUE(audited.ok());
  ASSERT_TRUE(WriteSeal(audited.value(), SealPath(path)).ok());
  const std::string other = scratch_ / "other.pt";
  fs::rename(SealPath(path), SealPath(other));
  fs::rename(path, other);
  auto renamed = Audit(other);
  ASSERT_TRUE(renamed.ok());
  ASSERT_TRUE(HoldAgainstSeal(SealPath(other), renamed.value()).ok());
  EXPECT_THAT(renamed.value().damage, IsEmpty());
}

TEST_F(AuditTest, ASealShowsEveryFlippedByteOfATensor) {
  const std::string path = Copy("dcp_2.15.0");
  auto audited = Audit(path);
  ASSERT_TRUE(audited.ok());
  ASSERT_TRUE(WriteSeal(audited.value(), SealPath(path)).ok());
  EXPECT_EQ(SealPath(path), path + "/shardproof.seal.json");
  ASSERT_TRUE(HoldAgainstSeal(SealPath(path), audited.value()).ok());
  EXPECT_THAT(audited.value().damage, IsEmpty());
  const std::string file = path + "/__1_0.distcp";
  // The second row of `rows` is 3, 4, 5; its bytes are there once.
  std::string bytes = BytesOfFile(file);
  const size_t at = bytes.find(oracle::BytesOf<float>({9, 10, 11, 12}));
  ASSERT_NE(at, std::string::npos);
  bytes[at] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  auto rotten = Audit(path);
  ASSERT_TRUE(rotten.ok());
  EXPECT_THAT(rotten.value().damage, ElementsAre(HasSubstr("of tensor 'rows': expected CRC-32")));
  ASSERT_TRUE(HoldAgainstSeal(SealPath(path), rotten.value()).ok());
  EXPECT_THAT(rotten.value().damage,
              ElementsAre(HasSubstr("expected CRC-32"),
                          HasSubstr("tensor 'rows': the bytes differ from the sealed ones")));
  EXPECT_THAT(AuditText(rotten.value(), false), HasSubstr("NOT SOUND  2 findings"));
}

/// Wherever it is: in tensors, pickles, what the archive says of its entries, padding. Without the
/// CRC-32 that would show most of them by themselves.
TEST_F(AuditTest, ItsOwnSealShowsEveryFlippedByte) {
  const std::string directory = Copy("dcp_2.15.0");
  const std::string one = Copy("torch_save_2.15.0.pt");
  for (const auto& [checkpoint, file] : {std::pair(directory, directory + "/.metadata"),
                                         {directory, directory + "/__0_0.distcp"},
                                         {one, one}}) {
    fs::remove(SealPath(checkpoint));
    const std::string plain = formats::WithoutCrcs(BytesOfFile(file));
    std::ofstream(file, std::ios::binary) << plain;
    const auto sound = Audit(checkpoint);
    ASSERT_TRUE(sound.ok());
    ASSERT_TRUE(WriteSeal(sound.value(), SealPath(checkpoint)).ok());
    std::fstream patch(file, std::ios::in | std::ios::out | std::ios::binary);
    for (uintmax_t at = 0; at < fs::file_size(file); at += 7) {
      const int byte = patch.seekg(static_cast<std::streamoff>(at)).get();
      const auto put = [&](int value) {
        patch.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(value)).flush();
      };
      put(byte ^ (1 << at % 8));
      auto audited = Audit(checkpoint);
      if (audited.ok()) {
        ASSERT_TRUE(HoldAgainstSeal(SealPath(checkpoint), audited.value()).ok());
      }
      EXPECT_FALSE(audited.ok() && audited.value().IsSound()) << file << " " << at;
      put(byte);
    }
    auto again = Audit(checkpoint);
    ASSERT_TRUE(again.ok());
    ASSERT_TRUE(HoldAgainstSeal(SealPath(checkpoint), again.value()).ok());
    EXPECT_THAT(again.value().damage, IsEmpty());
  }
}

/// Zeros add nothing to a digest.
TEST_F(AuditTest, ItsOwnSealShowsZerosThatWereAppended) {
  const std::string path = Copy("dcp_2.15.0");
  const auto sound = Audit(path);
  ASSERT_TRUE(sound.ok());
  ASSERT_TRUE(WriteSeal(sound.value(), SealPath(path)).ok());
  const std::string file = path + "/__1_0.distcp";
  const uintmax_t bytes = fs::file_size(file);
  fs::resize_file(file, bytes + 64);
  auto longer = Audit(path);
  ASSERT_TRUE(longer.ok());
  EXPECT_THAT(longer.value().damage, IsEmpty());
  ASSERT_TRUE(HoldAgainstSeal(SealPath(path), longer.value()).ok());
  EXPECT_THAT(longer.value().damage,
              ElementsAre(HasSubstr(fmt::format(
                  "file '__1_0.distcp': sealed with {} bytes, found {}", bytes, bytes + 64))));
}

TEST_F(AuditTest, ASealIsOfTheTensorsNotOfTheFiles) {
  const auto audited = Audit(Fixture("dcp_2.15.0"));
  ASSERT_TRUE(audited.ok());
  const std::string seal = scratch_ / "seal.json";
  ASSERT_TRUE(WriteSeal(audited.value(), seal).ok());
  auto other = Audit(Fixture("dcp_2.11.0"));
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(HoldAgainstSeal(seal, other.value()).ok());
  EXPECT_THAT(other.value().damage, IsEmpty());
  auto another = Audit(Fixture("torch_save_2.15.0.pt"));
  ASSERT_TRUE(another.ok());
  ASSERT_TRUE(HoldAgainstSeal(seal, another.value()).ok());
  EXPECT_GT(another.value().damage.size(), 20u);
}

TEST_F(AuditTest, WhatIsNotSoundIsNotSealed) {
  const std::string path = Copy("dcp_2.15.0");
  fs::resize_file(path + "/__0_0.distcp", 100);
  const auto audited = Audit(path);
  ASSERT_TRUE(audited.ok());
  EXPECT_FALSE(audited.value().IsSound());
  const Status sealed = WriteSeal(audited.value(), SealPath(path));
  ASSERT_FALSE(sealed.ok());
  EXPECT_THAT(sealed.error().message, HasSubstr("not sealed"));
  EXPECT_FALSE(fs::exists(SealPath(path)));
}

TEST_F(AuditTest, ADamagedSealIsRefused) {
  auto audited = Audit(Fixture("dcp_2.15.0"));
  ASSERT_TRUE(audited.ok());
  const auto refusal = [&](const std::string& text) {
    const std::string path = scratch_ / "seal.json";
    std::ofstream(path) << text;
    const Status held = HoldAgainstSeal(path, audited.value());
    return held.ok() ? "" : held.error().message;
  };
  EXPECT_THAT(refusal("{"), HasSubstr("seal.json"));
  EXPECT_THAT(refusal("{}"), HasSubstr("found 0 of them"));
  EXPECT_THAT(refusal(R"({"schema": 3, "tensors": {}, "values": {}, "files": {}})"),
              HasSubstr("schema"));
  EXPECT_THAT(refusal(R"({"schema": 1, "tensors": {}, "values": {}, "files": {}})"),
              HasSubstr("schema: expected 2, found 1: an older version wrote it"));
  EXPECT_THAT(refusal(R"({"schema": 2, "tensors": [], "values": {}, "files": {}})"),
              HasSubstr("tensors: expected an object"));
  EXPECT_THAT(
      refusal(
          R"({"schema": 2, "tensors": {"a": {"dtype": "F32", "shape": [], "digest": "xyz"}}, "values": {}})"),
      HasSubstr("32 hexadecimal digits, found 'xyz'"));
  EXPECT_THAT(refusal(R"({"schema": 2, "tensors": {"a": {"shape": [-1]}}, "values": {}})"),
              HasSubstr("shape"));
  const std::string digest(32, '0');
  const auto of_file = [&](const std::string& more) {
    return refusal(R"({"schema": 2, "files": {"a": {"digest": ")" + digest + "\"" + more + "}}}");
  };
  EXPECT_THAT(of_file(""),
              HasSubstr("files 'a': bytes: expected the size of the file, found none"));
  EXPECT_THAT(of_file(R"(, "bytes": -1)"), HasSubstr("files 'a': bytes: "));
  const Status absent = HoldAgainstSeal(scratch_ / "none", audited.value());
  EXPECT_FALSE(absent.ok());
}

TEST_F(AuditTest, TheNewestComesFirst) {
  for (const char* name : {"step-9", "step-100", "step-20", "step-300.saving", ".step-400", "final",
                           "notes.txt", "iter_0000250", "step-99.pt"}) {
    if (std::strchr(name, '.') != nullptr && name[0] != '.' && !std::strstr(name, "saving")) {
      std::ofstream(scratch_ / name) << "x";
    } else {
      fs::create_directory(scratch_ / name);
    }
  }
  std::ofstream(scratch_ / "final/model.safetensors") << "x";
  fs::create_directory_symlink(scratch_ / "step-9", scratch_ / "latest-999");
  const auto found = CheckpointsOf(scratch_.path());
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(found.value().others, ElementsAre("step-300.saving"));
  std::vector<std::string> names;
  for (const std::string& path : found.value().paths) names.push_back(fs::path(path).filename());
  EXPECT_THAT(names,
              ElementsAre("iter_0000250", "step-100", "step-99.pt", "step-20", "step-9", "final"));
  EXPECT_FALSE(CheckpointsOf(scratch_ / "none").ok());
}

TEST_F(AuditTest, WhatIsNoCheckpointIsPassedOver) {
  const auto put = [&](const std::string& folder, const std::string& file) {
    fs::create_directories((scratch_ / folder) + "/" + fs::path(file).parent_path().string());
    if (!file.empty()) std::ofstream((scratch_ / folder) + "/" + file) << "x";
  };
  put("logs", "events.out");
  put("results-2026", "metrics.json");
  put("run7", "");
  put("step-3", "notes.txt");  // a step is one, whatever is left of it
  put("0000004", "");
  put("best", "mp_rank_00/model_optim_rng.pt");
  put("export", "model.safetensors.index.json");
  put("checkpoint-1", "__0_0.distcp");
  std::ofstream(scratch_ / "latest_checkpointed_iteration.txt") << "4";
  const auto found = CheckpointsOf(scratch_.path());
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(found.value().others, ElementsAre("logs", "results-2026", "run7"));
  std::vector<std::string> names;
  for (const std::string& path : found.value().paths) names.push_back(fs::path(path).filename());
  EXPECT_THAT(std::vector(names.begin(), names.begin() + 3),
              ElementsAre("0000004", "step-3", "checkpoint-1"));
  EXPECT_THAT(std::vector(names.begin() + 3, names.end()),
              ::testing::UnorderedElementsAre("best", "export"));
}

TEST_F(AuditTest, AStepIsWhatAWordForStepsSays) {
  const auto newest = [&](const std::vector<std::string>& names) {
    const std::string root = scratch_ / std::to_string(names.size()) + names.front();
    fs::create_directory(root);
    for (const std::string& name : names) {
      fs::create_directory(root + "/" + name);
      std::ofstream(root + "/" + name + "/.metadata") << "x";
    }
    return fs::path(CheckpointsOf(root).value().paths.front()).filename().string();
  };
  EXPECT_EQ(newest({"epoch=1-step=100-loss=0.9", "epoch=1-step=300-loss=0.1"}),
            "epoch=1-step=300-loss=0.1");
  EXPECT_EQ(newest({"llama-3.1-step500", "llama-3.1-step400"}), "llama-3.1-step500");
  EXPECT_EQ(newest({"step600-llama3.1", "step400-llama3.2"}), "step600-llama3.1");
  EXPECT_EQ(newest({"20261123074500123456", "20261123074500123457", "9"}), "20261123074500123457");
  EXPECT_EQ(newest({"global_step8", "global_step12", "global_step010"}), "global_step12");
}

}  // namespace
}  // namespace shardproof
