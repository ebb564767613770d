#include "src/manifest/manifest.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/mesh/placement.h"

namespace shardproof {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDigest = "000102030405060708090a0b0c0d0e0f";

Manifest Small() {
  Manifest manifest;
  manifest.tensors["model.w"] = {"BF16", {2, 0}, *Digest::FromHex(kDigest)};
  manifest.tensors["model.s"] = {"F32", {}, Digest(1, 2)};
  manifest.values["step"] = Digest(3, 4);
  manifest.files[".metadata"] = {7, Digest(UINT64_MAX, 6)};
  return manifest;
}

TEST(ManifestTest, IsReadAsItIsWritten) {
  const auto read = ParseManifest(ManifestText(Small()), "m");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(ManifestText(read.value()), ManifestText(Small()));
  EXPECT_EQ(read.value().tensors.at("model.w").shape, (std::vector<int64_t>{2, 0}));
}

TEST(ManifestTest, EveryPrefixIsRefusedInOneLine) {
  const std::string text = ManifestText(Small());
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    const auto read = ParseManifest(text.substr(0, length), "DIR/m");
    ASSERT_FALSE(read.ok()) << length;
    EXPECT_EQ(read.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(read.error().message, HasSubstr("DIR/m"));
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
  }
}

TEST(ManifestTest, WhatIsWrongIsNamed) {
  const auto refused = [](std::string from, const std::string& to) {
    std::string text = ManifestText(Small());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto read = ParseManifest(text, "DIR/m");
    EXPECT_FALSE(read.ok()) << to;
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_THAT(refused("\"schema\": 2", "\"schema\": 1"), HasSubstr("schema: expected 2, found 1"));
  EXPECT_THAT(refused("\"schema\": 2", "\"schema\": \"2\""), HasSubstr("schema"));
  EXPECT_THAT(refused("\"schema\": 2", "\"a\": 2"), HasSubstr("schema: expected 2, found none"));
  EXPECT_THAT(refused("\"bytes\": 7", "\"bytes\": -7"),
              HasSubstr("'.metadata': bytes: expected the size of the file, found -7"));
  EXPECT_THAT(refused("\"bytes\"", "\"size\""), HasSubstr("bytes: expected the size"));
  EXPECT_THAT(refused("\"schema\": 2", std::string("\"schema\": 2\0", 12)),
              HasSubstr("a zero at byte"));
  EXPECT_THAT(refused(kDigest, "12"), HasSubstr("'model.w': expected a digest of 32"));
  EXPECT_THAT(refused("\"BF16\"", "16"), HasSubstr("'model.w': expected a dtype"));
  EXPECT_THAT(refused("\"model.s\"", "\"model.w\""), HasSubstr("occurs twice"));
  EXPECT_THAT(refused("\"values\": {", "\"values\": 7, \"v\": {"),
              HasSubstr("values: expected an object"));
  EXPECT_THAT(refused("\"files\"", "\"file\""), HasSubstr("files: expected an object, found none"));
  EXPECT_THAT(refused("\"shape\": []", "\"shape\": [-1]"), HasSubstr("shape"));
  EXPECT_THAT(refused("\"shape\": []", "\"shape\": [1.5]"), HasSubstr("shape"));
  EXPECT_THAT(refused("\"shape\": []", "\"shape\": [18446744073709551615]"), HasSubstr("shape"));
  std::string sizes = "0";
  for (int i = 0; i < 100; ++i) sizes += ",0";
  EXPECT_THAT(refused("\"shape\": []", "\"shape\": [" + sizes + "]"),
              HasSubstr("at most 64 sizes"));
  EXPECT_THAT(ParseManifest("[1]", "DIR/m").error().message, HasSubstr("DIR/m"));
  EXPECT_THAT(ParseManifest(std::string(1000, '['), "DIR/m").error().message, HasSubstr("DIR/m"));
}

/// What `rank` of a mesh holds of a tensor of 0, 1, 2, ...
Slot Held(const std::vector<int64_t>& shape, const std::vector<Placement>& placements,
          const Mesh& mesh, int64_t rank, bool transposed) {
  TensorSpec spec{.name = "w", .dtype = at::kInt, .shape = shape};
  Slot slot(spec);
  slot.placements = placements;
  slot.shard = ShardOf(shape, placements, mesh, mesh.CoordinatesOf(rank));
  std::vector<int32_t> values;
  for (const ElementRun& run : slot.shard.runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      for (uint64_t j = 0; j < run.length; ++j) values.push_back(run.start + i * run.stride + j);
    }
  }
  slot.value = at::tensor(values, at::kInt).reshape(slot.shard.local_shape);
  // In another order in memory: what is digested is the row-major image all the same.
  if (transposed && shape.size() == 2) slot.value = slot.value.t().contiguous().t();
  return slot;
}

TEST(DigestOfSlotTest, PartsAddUpHoweverTheyAreCutAndLie) {
  const Mesh mesh{{{"dp_shard", 3}, {"tp", 2}}};
  const std::vector<int64_t> shape = {7, 5};
  const Mesh one{{{"dp_shard", 1}}};
  const Slot whole = Held(shape, {Placement::Replicate()}, one, 0, false);
  for (const auto& [start, length] :
       {std::pair<uint64_t, uint64_t>{0, 140}, {0, 61}, {61, 79}, {20, 4}, {7, 0}}) {
    std::vector<int32_t> values(35);
    for (int32_t i = 0; i < 35; ++i) values[i] = i;
    const Digest expected =
        DigestOfText({reinterpret_cast<const char*>(values.data()) + start, length});
    const ByteSpan image = {start, start + length};
    EXPECT_EQ(DigestOfSlot(whole, image, {}), expected);
    for (const bool transposed : {false, true}) {
      for (const auto& placements :
           {std::vector{Placement::Shard(0), Placement::Shard(1)},
            std::vector{Placement::Shard(1), Placement::Shard(0)},
            std::vector{Placement::StridedShard(0, 2), Placement::Shard(0)}}) {
        Digest sum;
        for (int64_t rank = 0; rank < 6; ++rank) {
          const Slot slot = Held(shape, placements, mesh, rank, transposed);
          const Digest all = DigestOfSlot(slot, image, {});
          for (const uint64_t piece : {1, 3, 8, 20}) {  // of the shard's bytes
            Digest pieces;
            for (uint64_t at = 0; at < slot.value.nbytes(); at += piece) {
              pieces += DigestOfSlot(slot, image, {at, at + piece});
            }
            EXPECT_EQ(pieces, all) << start << " " << length << " " << piece;
          }
          sum += all;
        }
        EXPECT_EQ(sum, expected) << start << " " << length;
      }
    }
  }
}

}  // namespace
}  // namespace shardproof
