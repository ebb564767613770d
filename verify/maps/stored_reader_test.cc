// Tensors cut into boxes and strided views, read in row-major order in pieces of any size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <random>

#include "verify/maps/tensor_reader.h"
#include "verify/oracle/fixture_files.h"

namespace shardproof::maps {
namespace {

using formats::Chunk;
using formats::StoredTensor;

/// Tensors of I32 whose element i is i, in files of a directory of its own.
class StoredReaderTest : public ::testing::Test {
 protected:
  std::mt19937_64 draw_{5};

  int64_t Draw(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(draw_() % (high - low + 1));
  }

  /// Cuts each dim at random places, and writes every box to a file of its own, behind some other
  /// bytes.
  StoredTensor DrawTensor() {
    StoredTensor tensor{.name = "w", .dtype = "I32"};
    std::vector<std::vector<int64_t>> cuts;
    for (int64_t dims = Draw(0, 3); dims > 0; --dims) {
      const int64_t size = Draw(1, 40);
      tensor.shape.push_back(size);
      std::vector<int64_t> at = {0, size};
      for (int64_t i = Draw(0, 3); i > 0; --i) at.push_back(Draw(0, size));
      std::sort(at.begin(), at.end());
      cuts.push_back(std::move(at));
    }
    paths_.clear();
    AddBoxes(cuts, {}, {}, tensor);
    return tensor;
  }

  void AddBoxes(const std::vector<std::vector<int64_t>>& cuts, std::vector<int64_t> offsets,
                std::vector<int64_t> sizes, StoredTensor& tensor) {
    const size_t dim = offsets.size();
    if (dim == cuts.size()) {
      WriteBox(std::move(offsets), std::move(sizes), tensor);
      return;
    }
    for (size_t i = 0; i + 1 < cuts[dim].size(); ++i) {
      auto next_offsets = offsets;
      auto next_sizes = sizes;
      next_offsets.push_back(cuts[dim][i]);
      next_sizes.push_back(cuts[dim][i + 1] - cuts[dim][i]);
      if (next_sizes.back() > 0) AddBoxes(cuts, next_offsets, next_sizes, tensor);
    }
  }

  void WriteBox(std::vector<int64_t> offsets, std::vector<int64_t> sizes, StoredTensor& tensor) {
    const size_t dims = sizes.size();
    // The dims of a box lie in any order in its file: a view as torch.save may have it.
    std::vector<size_t> order(dims);
    std::iota(order.begin(), order.end(), size_t{0});
    if (Draw(0, 2) == 0) std::shuffle(order.begin(), order.end(), draw_);
    Chunk chunk{.offsets = offsets,
                .sizes = sizes,
                .strides = std::vector<int64_t>(dims),
                .file = static_cast<uint32_t>(paths_.size()),
                .file_offset = static_cast<uint64_t>(Draw(0, 9))};
    int64_t step = 1;
    for (size_t i = dims; i-- > 0;) {
      chunk.strides[order[i]] = step;
      step *= sizes[order[i]];
    }
    std::vector<int32_t> values(static_cast<size_t>(step));
    std::vector<int64_t> at(dims);
    for (int64_t i = 0; i < step; ++i) {
      int64_t global = 0, place = 0;
      for (size_t dim = 0; dim < dims; ++dim) {
        global = global * tensor.shape[dim] + offsets[dim] + at[dim];
        place += at[dim] * chunk.strides[dim];
      }
      values[static_cast<size_t>(place)] = static_cast<int32_t>(global);
      for (size_t dim = dims; dim-- > 0 && ++at[dim] == sizes[dim];) at[dim] = 0;
    }
    paths_.push_back(directory_ / std::to_string(paths_.size()));
    std::ofstream(paths_.back(), std::ios::binary)
        << std::string(chunk.file_offset, '?')
        << std::string(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(int32_t));
    tensor.chunks.push_back(std::move(chunk));
  }

  Reader Open(const StoredTensor& tensor, uint64_t window_bytes = 0) {
    return ReadStored([this](uint32_t file) { return oracle::InputFile::Open(paths_[file]); },
                      tensor, window_bytes);
  }

  oracle::TemporaryDirectory directory_;
  std::vector<std::string> paths_;
};

TEST_F(StoredReaderTest, GivesEveryElementInItsPlace) {
  uint64_t compared = 0;
  for (int round = 0; round < 300; ++round) {
    StoredTensor tensor = DrawTensor();
    ASSERT_TRUE(formats::CheckTiling("m", tensor).ok());
    const Reader reader = Open(tensor, round % 2 == 0 ? 0 : 256);
    for (int reading = 0; reading < 8; ++reading) {
      const uint64_t start = reading == 0 ? 0 : draw_() % reader->elements();
      const uint64_t count =
          reading == 0 ? reader->elements() : draw_() % (reader->elements() - start + 1);
      std::vector<int32_t> out(count);
      ASSERT_TRUE(reader->Read(start, count, reinterpret_cast<char*>(out.data())).ok());
      for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(out[i], static_cast<int32_t>(start + i));
      compared += count;
    }
  }
  EXPECT_GT(compared, 1'000'000u);
}

TEST_F(StoredReaderTest, SaysThatAFileIsShort) {
  StoredTensor tensor{.name = "w", .dtype = "I32", .shape = {4}};
  WriteBox({0}, {4}, tensor);
  tensor.chunks[0].file_offset += 4;
  const Reader reader = Open(tensor);
  std::vector<char> out(16);
  const Status read = reader->Read(0, 4, out.data());
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, ::testing::HasSubstr("expected 16 bytes at offset"));
}

}  // namespace
}  // namespace shardproof::maps
