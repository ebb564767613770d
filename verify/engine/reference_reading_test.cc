// Reading safetensors: the reference pipeline against the independent oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "src/aten/dtype.h"
#include "src/load/load.h"
#include "verify/oracle/fixture_files.h"
#include "verify/oracle/oracle.h"

namespace shardproof {
namespace {

using nlohmann::json;
using oracle::TemporaryDirectory;
using oracle::WriteTextFile;

/// What a reader says of a checkpoint: a line a tensor, or why not.
struct Reading {
  std::vector<std::string> tensors;
  std::string refusal;
};

std::string Line(const std::string& name, const std::string& dtype,
                 const std::vector<int64_t>& shape, uint64_t offset, uint64_t length) {
  return fmt::format("{} {} {} at {} +{}", json(name).dump(), dtype, json(shape).dump(), offset,
                     length);
}

Reading ByPipeline(const std::string& directory) {
  const auto source = OpenSource(*MakePosixFileSystem(), directory);
  Reading reading;
  if (!source.ok()) {
    EXPECT_EQ(source.error().code, ErrorCode::kBadInput) << source.error().message;
    EXPECT_FALSE(source.error().message.empty());
    reading.refusal = source.error().message;
    return reading;
  }
  for (const auto& [name, tensor] : source.value().tensors) {
    reading.tensors.push_back(
        Line(name, DtypeName(tensor.dtype), tensor.shape, tensor.offset, tensor.length));
    EXPECT_LE(tensor.offset + tensor.length, source.value().files.at(tensor.file)->size());
  }
  return reading;
}

Reading ByOracle(const std::string& directory) {
  const auto located = oracle::Locate(directory);
  Reading reading;
  if (!located.ok()) {
    reading.refusal = located.error().message;
    return reading;
  }
  for (const auto& tensor : located.value()) {
    reading.tensors.push_back(
        Line(tensor.name, tensor.dtype, tensor.shape, tensor.file_offset, tensor.byte_length));
  }
  return reading;
}

/// Small changes to a text, of the kinds that files suffer and that attackers make.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  /// \param reach the changes fall on the first `reach` bytes.
  std::string Mutate(std::string text, size_t reach) {
    const int changes = 1 + static_cast<int>(Below(3));
    for (int i = 0; i < changes && !text.empty(); ++i) {
      const size_t at = Below(std::min(reach, text.size()));
      switch (Below(8)) {
        case 0:
          text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
          break;
        case 1:
          text[at] = static_cast<char>(Below(256));
          break;
        case 2:
          text[at] = "0123456789[]{}\",:-.eE x"[Below(23)];
          break;
        case 3:
          text.erase(at, 1 + Below(4));
          break;
        case 4:
          text.insert(at, kTokens[Below(std::size(kTokens))]);
          break;
        case 5:
          text.insert(at, text.substr(Below(text.size()), Below(64)));
          break;
        case 6:
          text.resize(Below(2) == 0 ? at : text.size() - 1 - Below(text.size()));
          break;
        case 7: {
          const std::string token = kTokens[Below(std::size(kTokens))];
          text.replace(at, std::min(token.size(), text.size() - at), token);
          break;
        }
      }
    }
    return text;
  }
  size_t Below(size_t limit) { return random_() % limit; }

 private:
  static constexpr const char* kTokens[] = {"0",
                                            "-1",
                                            "9223372036854775807",
                                            "9223372036854775808",
                                            "18446744073709551616",
                                            "1e9",
                                            "[",
                                            "]",
                                            "{",
                                            "}",
                                            ",",
                                            ":",
                                            "\"",
                                            "null",
                                            "\"F32\"",
                                            "\"F64\"",
                                            "\"w\"",
                                            "\\u0000",
                                            "\\",
                                            " ",
                                            "\xff",
                                            "\"__metadata__\"",
                                            "true",
                                            "0.0",
                                            "\xef\xbb\xbf",
                                            "\"shape\":[0]"};
  std::mt19937_64 random_;
};

/// Header and data with the header's true length in front, so that what changed is looked at.
std::string WithLength(const std::string& header, const std::string& data) {
  return oracle::RawSafetensors(header, data);
}

/// If the pipeline accepts, the oracle accepts and says the same; the oracle may know more dtypes
/// and let more by.
void ExpectNoRashness(const std::string& directory, const std::string& what, int* accepted) {
  const Reading pipeline = ByPipeline(directory);
  if (!pipeline.refusal.empty()) return;
  const Reading oracle = ByOracle(directory);
  ASSERT_EQ(oracle.refusal, "") << what;
  ASSERT_EQ(pipeline.tensors, oracle.tensors) << what;
  ++*accepted;
}

TEST(OpenSource, AcceptsNoMutatedFileThatTheOracleReadsOtherwise) {
  const TemporaryDirectory directory;
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]},)"
      R"("n":{"dtype":"I64","shape":[0,2],"data_offsets":[24,24]},)"
      R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  const std::string data(30, 'd');
  const std::string whole = WithLength(header, data);
  ASSERT_TRUE(WriteTextFile(directory / "model.safetensors", whole).ok());
  ASSERT_EQ(ByPipeline(directory.path()).tensors, ByOracle(directory.path()).tensors);
  ASSERT_EQ(ByPipeline(directory.path()).tensors.size(), 3u);
  Mutator mutator(1);
  int accepted = 0;
  constexpr int kRounds = 4000;
  for (int round = 0; round < kRounds; ++round) {
    const bool keep_length = mutator.Below(4) != 0;
    const std::string file = keep_length ? WithLength(mutator.Mutate(header, header.size()), data)
                                         : mutator.Mutate(whole, 12);
    ASSERT_TRUE(WriteTextFile(directory / "model.safetensors", file).ok());
    ExpectNoRashness(directory.path(),
                     fmt::format("round {}: {}", round,
                                 json(file).dump(-1, ' ', true, json::error_handler_t::replace)),
                     &accepted);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(accepted, kRounds / 100) << "nothing was compared";
  EXPECT_LT(accepted, kRounds / 2) << "the mutations are too tame";
}

TEST(OpenSource, AcceptsNoMutatedIndexThatTheOracleReadsOtherwise) {
  const TemporaryDirectory directory;
  const std::string index = R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors",)"
                            R"("c":"2.safetensors"}})";
  ASSERT_TRUE(oracle::WriteSafetensors(directory / "1.safetensors",
                                       {oracle::PlannedBytes("a", "U8", {3}, "abc")})
                  .ok());
  ASSERT_TRUE(oracle::WriteSafetensors(directory / "2.safetensors",
                                       {oracle::PlannedBytes("b", "U8", {2}, "ab"),
                                        oracle::PlannedBytes("c", "U8", {4}, "abcd")})
                  .ok());
  const std::string path = directory / "model.safetensors.index.json";
  ASSERT_TRUE(WriteTextFile(path, index).ok());
  ASSERT_EQ(ByPipeline(directory.path()).tensors, ByOracle(directory.path()).tensors);
  Mutator mutator(2);
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string text = mutator.Mutate(index, index.size());
    ASSERT_TRUE(WriteTextFile(path, text).ok());
    ExpectNoRashness(directory.path(), text, &accepted);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(accepted, 0) << "nothing was compared";
}

TEST(OpenSource, ReadsWhatTheOracleReadsWhereBothKindsOfCheckpointAre) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(oracle::WriteSafetensors(directory / "model.safetensors",
                                       {oracle::PlannedBytes("a", "U8", {1}, "1")})
                  .ok());
  ASSERT_TRUE(oracle::WriteSafetensors(directory / "shard.safetensors",
                                       {oracle::PlannedBytes("a", "U8", {2}, "22")})
                  .ok());
  ASSERT_TRUE(WriteTextFile(directory / "model.safetensors.index.json",
                            R"({"weight_map":{"a":"shard.safetensors"}})")
                  .ok());
  EXPECT_EQ(ByPipeline(directory.path()).tensors, ByOracle(directory.path()).tensors);
}

}  // namespace
}  // namespace shardproof
