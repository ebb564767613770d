// For tests: evidence of one rank in a temporary directory.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "verify/evidence/reader.h"
#include "verify/evidence/writer.h"

namespace shardproof {

class EvidenceFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/evidence.XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Stem() const { return directory_ + "/values/rank_0"; }
  std::string Facts() const { return Stem() + ".facts.jsonl"; }
  std::string Measures() const { return Stem() + ".measures.jsonl"; }

  static std::string Slurp(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  static void Spill(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

  RankEvidence Read(int64_t world_size = 2) const {
    RankEvidence rank;
    rank.world_size = world_size;
    uint64_t budget_bytes = 1u << 30;
    ReadRank(Stem(), "values/rank_0", budget_bytes, rank);
    return rank;
  }

  // Reads a facts stream made of a valid head and the given lines.
  RankEvidence ReadLines(const std::string& lines) const {
    Spill(Facts(), Head() + lines);
    Spill(Measures(), "");
    return Read();
  }

  static std::string Head() {
    return R"({"record":"rank","schema":1,"rank":0,"world_size":2,"mesh":[{"name":"dp_shard",)"
           R"("size":2}],"coordinates":[0],"subject":"s","mode":"values","strategy":"plain",)"
           R"("seed":1})"
           "\n";
  }

  static std::string Tensor(int id) {
    return fmt::format(R"({{"record":"tensor","id":{},"name":"w","kind":"parameter","dtype":"F32",)"
                       R"("shape":[4],"owned":[{{"start":0,"length":4}}]}})"
                       "\n",
                       id);
  }

  static std::string StateLine(int tensor) {
    return fmt::format(
        R"({{"record":"state","name":"w","tensor":{},"device":"cpu","is_meta":false,)"
        R"("content":"undefined"}})"
        "\n",
        tensor);
  }

  std::string directory_;
};

inline RankHeader Header() {
  return {0, 2, {{"dp_shard", 2}}, {0}, "reference", RunMode::kValues, "plain", 7};
}

inline TensorDescriptor Weight() {
  TensorDescriptor d;
  d.name = "layer.weight";
  d.kind = "parameter";
  d.dtype = "BF16";
  d.shape = {5, 3};
  d.local_shape = {3, 3};
  d.local_stride = {3, 1};
  d.placements = {{"strided_shard", 1, 2}, {"replicate", 0, 1}, {"shard", 1, 1}};
  d.owned = {{0, 9, 1, 0}, {9, 1, 2, 3}};
  d.alias_group = 4;
  d.identity = 9;
  d.requires_grad = true;
  d.attributes = {{"sequence_parallel", "True"}};
  return d;
}

inline TensorState Value(int64_t descriptor) {
  TensorState s;
  s.descriptor = descriptor;
  s.device = "cuda:0";
  s.content = Content::kDefined;
  s.digest = Digest(1, std::numeric_limits<uint64_t>::max());
  s.coverage = Digest(3, 4);
  s.nan_count = std::numeric_limits<uint64_t>::max();
  s.inf_count = 2;
  s.first_nonfinite = 11;
  s.blocks = {4096, 3, {Digest(5, 6), Digest(7, 8)}};
  s.bytes = {{2, std::string("\x00\xff\x10", 3)}};
  return s;
}

// Three stages: everything new; nothing changed; one name gone and another changed.
inline void WriteSmallRank(const std::string& directory) {
  auto writer = EvidenceWriter::Create(directory + "/values", 0).value();
  ASSERT_TRUE(writer->Rank(Header()).ok());
  TensorDescriptor meta = Weight();
  meta.owned = {};
  const int64_t unused = writer->Describe(meta);
  const int64_t weight = writer->Describe(Weight());
  EXPECT_NE(unused, weight);
  EXPECT_EQ(writer->Describe(Weight()), weight);
  StageRecord stage{.name = "loaded",
                    .complete = true,
                    .tensors = {{"layer.weight", Value(weight)}, {"b", Value(weight)}}};
  ASSERT_TRUE(writer->Stage(stage).ok());
  ASSERT_TRUE(writer->Collective({3, "broadcast", 0, "BF16", 15, {"layer.weight"}, {0, 2}}).ok());
  stage.name = "ready";
  stage.tensors["b"].storage_bytes = 4096;
  stage.tensors["b"].committed_bytes = 0;
  ASSERT_TRUE(writer->Stage(stage).ok());
  ASSERT_TRUE(writer
                  ->Fault({.id = "disk/eio",
                           .where = "rank 0",
                           .detail = "read of w",
                           .call = "read",
                           .error = "Input/output error",
                           .file = "f",
                           .byte = 9,
                           .tensors = {"v", "w"},
                           .rows = {1, 3}})
                  .ok());
  stage = {.name = "restored",
           .step = 2,
           .complete = true,
           .tensors = {{"layer.weight", Value(weight)}}};
  stage.tensors["layer.weight"].nan_count = 0;
  ASSERT_TRUE(writer->Stage(stage).ok());
  ASSERT_TRUE(writer->Error({"peer", "restored", "rank 1 vanished", "ConnectionError"}).ok());
  ASSERT_TRUE(writer->Keys({{"m"}, {"u"}}).ok());
  ASSERT_TRUE(writer->End().ok());
  ASSERT_TRUE(writer->Process(42, "node-3").ok());
  writer->SetStage("loaded");
  ASSERT_TRUE(writer->Memory({0.5, 1000, 300, ""}).ok());
  ASSERT_TRUE(writer->MemorySummary({1, 2, "loaded", 3, {}}).ok());
}

}  // namespace shardproof
