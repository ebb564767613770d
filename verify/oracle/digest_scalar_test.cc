#include "verify/oracle/digest_scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "verify/oracle/fixture_files.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {
namespace {

FileTensor DigestOf(const std::string& image, const std::string& dtype, uint64_t piece) {
  ScalarDigest digest(image.size(), *FindDtype(dtype));
  for (uint64_t start = 0; start < image.size(); start += piece) {
    digest.Add(image.data() + start, std::min<uint64_t>(piece, image.size() - start));
  }
  FileTensor tensor;
  digest.Finish(tensor);
  return tensor;
}

std::string Ramp(size_t length) {
  std::string image(length, '\0');
  for (size_t i = 0; i < length; ++i) image[i] = static_cast<char>(i * 7 + 3);
  return image;
}

// Worked out from SPECIFICATION.md byte by byte, with arbitrary-precision integers.
TEST(ScalarDigest, GivesTheSpecificationsValues) {
  const FileTensor small = DigestOf("\1\2\3\4\5\6\7", "U8", 7);
  EXPECT_EQ(small.digest, Digest(0x6458f13c301384f0, 0xd664b091b989d43e));
  EXPECT_EQ(small.coverage, Digest(0x3e9b0280f2a2700c, 0x8ac3c7edaa9ff1ba));
  const FileTensor large = DigestOf(Ramp(10001), "U8", 10001);
  EXPECT_EQ(large.digest, Digest(0x053ac42038f0fc25, 0x540102a097f5a2d9));
  EXPECT_EQ(large.coverage, Digest(0xf587bcd3f612a507, 0x7b94ad0a350265f3));
  ASSERT_EQ(large.blocks.blocks.size(), 3u);
  EXPECT_EQ(large.blocks.blocks[2], Digest(0xe2634d382a2f9065, 0x015c7229aad48b55));
  EXPECT_EQ(Mix(0), 0xe220a8397b1dcdafu);
}

TEST(ScalarDigest, DoesNotDependOnThePieces) {
  const std::string image = Ramp(20003);
  const FileTensor whole = DigestOf(image, "F16", image.size());
  for (const uint64_t piece : {1, 3, 5, 8, 4095, 4097}) {
    const FileTensor cut = DigestOf(image, "F16", piece);
    EXPECT_EQ(cut.digest, whole.digest) << piece;
    EXPECT_EQ(cut.coverage, whole.coverage) << piece;
    EXPECT_EQ(cut.blocks.blocks, whole.blocks.blocks) << piece;
    EXPECT_EQ(cut.nan_count, whole.nan_count) << piece;
    EXPECT_EQ(cut.first_nonfinite, whole.first_nonfinite) << piece;
  }
}

TEST(ScalarDigest, CoverageIsTheDigestOfOnesAndBlocksAddUp) {
  const FileTensor ones = DigestOf(std::string(9999, '\1'), "U8", 1000);
  EXPECT_EQ(ones.digest, ones.coverage);
  const FileTensor zeros = DigestOf(std::string(9999, '\0'), "U8", 1000);
  EXPECT_EQ(zeros.digest, Digest());
  EXPECT_EQ(zeros.coverage, ones.coverage);
  Digest sum;
  for (const Digest& block : ones.blocks.blocks) sum += block;
  EXPECT_EQ(sum, ones.digest);
}

TEST(ScalarDigest, AFlippedBitAndSwappedElementsChangeIt) {
  std::string image = Ramp(5000);
  const Digest before = DigestOf(image, "F32", 5000).digest;
  image[4999] ^= 1;
  EXPECT_NE(DigestOf(image, "F32", 5000).digest, before);
  image[4999] ^= 1;
  std::swap(image[0], image[4097]);
  EXPECT_NE(DigestOf(image, "F32", 5000).digest, before);
}

TEST(ScalarDigest, CountsNanAndInfOfEveryFloatDtype) {
  const auto expect = [](const std::string& dtype, const std::string& image, uint64_t nan,
                         uint64_t inf, std::optional<uint64_t> first) {
    const FileTensor tensor = DigestOf(image, dtype, image.size());
    EXPECT_EQ(tensor.nan_count, nan) << dtype;
    EXPECT_EQ(tensor.inf_count, inf) << dtype;
    EXPECT_EQ(tensor.first_nonfinite, first) << dtype;
  };
  const float inf = std::numeric_limits<float>::infinity();
  expect("F32", BytesOf({1.0f, -inf, std::nanf("1"), 2.0f}), 1, 1, 1);
  expect("F64", BytesOf({1.0, 2.0, std::nan("")}), 1, 0, 2);
  expect("F16", BytesOf<uint16_t>({0x7bff, 0x7c00, 0xfc01}), 1, 1, 1);
  expect("BF16", BytesOf<uint16_t>({0x7f7f, 0xff80, 0x7f81, 0x7fff}), 2, 1, 1);
  expect("F8_E4M3", "\x7e\x7f\xff\x78", 2, 0, 1);
  expect("F8_E5M2", "\x7b\x7c\xfd\x7f", 2, 1, 1);
  expect("I32", BytesOf<uint32_t>({0x7f800000, 0xffffffff}), 0, 0, std::nullopt);
}

TEST(GridBlockBytes, KeepsTheBlocksAtMost1024) {
  EXPECT_EQ(GridBlockBytes(0), 4096u);
  EXPECT_EQ(GridBlockBytes(4096u * 1024), 4096u);
  EXPECT_EQ(GridBlockBytes(4096u * 1024 + 1), 8192u);
  EXPECT_EQ(GridBlockBytes(uint64_t{1} << 40), uint64_t{1} << 30);
  EXPECT_EQ(GridBlockBytes(~uint64_t{0}), uint64_t{1} << 54);
}

TEST(ReadCheckpoint, KeepsSmallTensorsAndWhatWasAskedFor) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteSafetensors(directory / "model.safetensors",
                               {PlannedBytes("large", "U8", {5000}, Ramp(5000)),
                                PlannedBytes("small", "U8", {4096}, Ramp(4096))})
                  .ok());
  const CheckpointRecord record = ReadCheckpoint(directory.path(), Locate(directory.path()),
                                                 {{Phase::kValues, "large", 4990, 100},
                                                  {Phase::kValues, "large", 9000, 1},
                                                  {Phase::kValues, "large", 3, 2}},
                                                 {});
  ASSERT_EQ(record.error, "");
  const FileTensor& small = record.tensors.at("small");
  ASSERT_EQ(small.bytes.size(), 1u);
  EXPECT_EQ(small.bytes[0].bytes, Ramp(4096));
  EXPECT_EQ(small.digest, DigestOf(Ramp(4096), "U8", 4096).digest);
  const FileTensor& large = record.tensors.at("large");
  ASSERT_EQ(large.bytes.size(), 2u);
  EXPECT_EQ(large.bytes[0].start, 4990u);
  EXPECT_EQ(large.bytes[0].bytes, Ramp(5000).substr(4990));
  EXPECT_EQ(large.bytes[1].bytes, Ramp(5000).substr(3, 2));
  EXPECT_NE(ReadCheckpoint(directory / "absent", Locate(directory / "absent"), {}, {}).error, "");
}

}  // namespace
}  // namespace shardproof::oracle
