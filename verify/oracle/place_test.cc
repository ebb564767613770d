#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/fixture_files.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// `count` bytes that differ from those of any other `first`.
std::string Bytes(size_t count, int first) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(first + 7 * i + i / 256);
  return bytes;
}

/// Two experts of F32 [2, 3] each as one tensor, by two ways, and a buffer that no file holds.
std::vector<TensorCase> Declared(int64_t rows = 2) {
  TensorCase packed;
  packed.name = "experts.packed";
  packed.shape = {2, rows, 3};
  packed.stored = {{{"experts.0.w", {rows, 3}}, {"experts.1.w", {rows, 3}}},
                   {{"old.packed", {2 * rows, 3}}}};
  TensorCase plain;
  plain.name = "plain";
  plain.shape = {2};
  TensorCase buffer;
  buffer.name = "buffer";
  buffer.kind = "buffer";
  buffer.persistent = false;
  buffer.stored = {{{"plain", {2}}}};
  return {buffer, packed, plain};
}

class PlaceTest : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::vector<PlannedTensor>& tensors) {
    ASSERT_TRUE(WriteSafetensors(directory_ / file, tensors).ok());
  }

  CheckpointRecord Read(const std::vector<CaptureRequest>& captures = {}, int64_t rows = 2) {
    return ReadCheckpoint(directory_.path(), Locate(directory_.path()), captures, Declared(rows));
  }

  TemporaryDirectory directory_;
};

PlannedTensor Part(const std::string& key, int first, int64_t rows = 2) {
  return PlannedBytes(key, "F32", {rows, 3}, Bytes(12 * rows, first));
}

FileTensor DigestOf(const std::string& bytes) {
  FileTensor tensor;
  ScalarDigest digest(bytes.size(), *FindDtype("F32"));
  digest.Add(bytes.data(), bytes.size());
  digest.Finish(tensor);
  return tensor;
}

TEST_F(PlaceTest, KeysMakeOneTensorAcrossFilesInTheOrderOfTheWay) {
  Write("1.safetensors", {PlannedBytes("plain", "F32", {2}, Bytes(8, 1)), Part("experts.1.w", 9)});
  Write("2.safetensors", {Part("experts.0.w", 40), Part("stranger", 3)});
  const CheckpointRecord record = Read();
  ASSERT_EQ(record.error, "");
  ASSERT_EQ(record.tensors.size(), 3u);
  const FileTensor& packed = record.tensors.at("experts.packed");
  EXPECT_THAT(packed.keys, ElementsAre("experts.0.w", "experts.1.w"));
  EXPECT_THAT(packed.shape, ElementsAre(2, 2, 3));
  EXPECT_EQ(packed.dtype, "F32");
  EXPECT_EQ(packed.file, "2.safetensors");
  const std::string image = Bytes(24, 40) + Bytes(24, 9);
  EXPECT_EQ(packed.bytes.at(0).bytes, image);
  EXPECT_EQ(packed.digest, DigestOf(image).digest);
  EXPECT_EQ(packed.coverage, DigestOf(image).coverage);
  EXPECT_TRUE(record.tensors.at("plain").keys.empty());
  EXPECT_TRUE(record.tensors.at("stranger").keys.empty());
}

TEST_F(PlaceTest, DigestsBlocksAndNonFinitesAreThoseOfTheWhole) {
  // Parts of 2 x 3 x 500 floats: neither a block nor a word pair ends where a part does.
  const int64_t rows = 501;
  std::string first = Bytes(12 * rows, 1);
  std::string second = Bytes(12 * rows, 2);
  const std::string infinite = BytesOf<uint32_t>({0x7f800000});
  second.replace(8, 4, infinite);
  Write("model.safetensors", {PlannedBytes("experts.1.w", "F32", {rows, 3}, second),
                              PlannedBytes("experts.0.w", "F32", {rows, 3}, first)});
  const uint64_t seam = first.size();
  const CheckpointRecord record = Read(
      {{Phase::kValues, "experts.packed", seam - 5, 20}, {Phase::kValues, "experts.0.w", 0, 4}},
      rows);
  ASSERT_EQ(record.error, "");
  const FileTensor& packed = record.tensors.at("experts.packed");
  const FileTensor whole = DigestOf(first + second);
  EXPECT_EQ(packed.digest, whole.digest);
  EXPECT_EQ(packed.blocks.blocks, whole.blocks.blocks);
  EXPECT_EQ(packed.nan_count, whole.nan_count);
  EXPECT_EQ(packed.inf_count, whole.inf_count);
  EXPECT_GE(packed.inf_count, 1u);
  EXPECT_EQ(packed.first_nonfinite, whole.first_nonfinite);
  ASSERT_EQ(packed.bytes.size(), 1u);
  EXPECT_EQ(packed.bytes[0].start, seam - 5);
  EXPECT_EQ(packed.bytes[0].bytes, (first + second).substr(seam - 5, 20));
}

TEST_F(PlaceTest, TheNextWayThenItsOwnNameThenNothing) {
  const auto read = [&](const PlannedTensor& tensor) {
    Write("model.safetensors", {tensor});
    return Read();
  };
  const CheckpointRecord second = read(Part("old.packed", 5, 4));
  EXPECT_THAT(second.tensors.at("experts.packed").keys, ElementsAre("old.packed"));
  EXPECT_THAT(second.tensors.at("experts.packed").shape, ElementsAre(2, 2, 3));
  const CheckpointRecord own = read(PlannedBytes("experts.packed", "F32", {2, 2, 3}, Bytes(48, 6)));
  EXPECT_TRUE(own.tensors.at("experts.packed").keys.empty());
  const CheckpointRecord none = read(PlannedBytes("plain", "F32", {2}, Bytes(8, 1)));
  EXPECT_EQ(none.tensors.size(), 1u);
}

TEST_F(PlaceTest, PartsBesideTheWholeAreKeysOfTheirOwn) {
  Write("model.safetensors",
        {Part("experts.0.w", 1), PlannedBytes("experts.packed", "F32", {2, 2, 3}, Bytes(48, 6))});
  const CheckpointRecord own = Read();
  EXPECT_EQ(own.error, "");
  EXPECT_TRUE(own.tensors.at("experts.packed").keys.empty());
  EXPECT_TRUE(own.tensors.contains("experts.0.w"));
  Write("model.safetensors",
        {Part("experts.0.w", 1), Part("experts.1.w", 2), Part("old.packed", 5, 4)});
  const CheckpointRecord first = Read();
  EXPECT_EQ(first.tensors.at("experts.packed").keys.size(), 2u);
  EXPECT_TRUE(first.tensors.contains("old.packed"));
}

TEST_F(PlaceTest, RefusesWhatIsPartlyThereTwiceThereOrDoesNotFit) {
  const auto error = [&](const std::vector<PlannedTensor>& tensors) {
    Write("model.safetensors", tensors);
    const CheckpointRecord record = Read();
    EXPECT_TRUE(record.tensors.empty());
    EXPECT_EQ(record.error.find('\n'), std::string::npos);
    return record.error;
  };
  EXPECT_THAT(error({Part("experts.1.w", 1)}),
              AllOf(HasSubstr("tensor 'experts.packed': expected all of its 2 keys"),
                    HasSubstr("found 1: the first that is missing is 'experts.0.w'")));
  EXPECT_THAT(error({Part("experts.0.w", 1), Part("experts.1.w", 2, 1)}),
              HasSubstr("model.safetensors: key 'experts.1.w': shape: expected [2, 3] (a part of "
                        "'experts.packed'), found [1, 3]"));
  EXPECT_THAT(
      error({Part("experts.0.w", 1), PlannedBytes("experts.1.w", "F16", {2, 3}, Bytes(12, 3))}),
      HasSubstr("key 'experts.1.w': dtype: expected F32 as in 'experts.0.w'"));
  EXPECT_THAT(error({Part("experts.0.w", 1), Part("experts.1.w", 2),
                     PlannedBytes("experts.packed", "F32", {2, 2, 3}, Bytes(48, 6))}),
              HasSubstr("expected it once, found it under its own name and under 'experts.0.w'"));
}

TEST_F(PlaceTest, RefusesWaysThatDoNotMakeTheTensor) {
  Write("model.safetensors", {Part("experts.0.w", 1)});
  const auto places = Locate(directory_.path());
  ASSERT_TRUE(places.ok());
  std::vector<TensorCase> declared = Declared();
  declared[1].stored = {{{"experts.0.w", {2, 3}}}};
  EXPECT_THAT(Place("c", places.value(), declared).error().message,
              HasSubstr("expected keys that make its shape [2, 2, 3], found 6 elements"));
  declared[1].stored = {{{"experts.0.w", {2, 3}}, {"experts.0.w", {2, 3}}}};
  EXPECT_THAT(Place("c", places.value(), declared).error().message, HasSubstr("twice"));
}

}  // namespace
}  // namespace shardproof::oracle
