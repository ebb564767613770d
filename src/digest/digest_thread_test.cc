// The CUDA kernel's threads, run on the host over all blocks and threads of a launch, against the
// specification taken byte by byte.
#include "src/digest/digest_thread.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "src/digest/digest.hpp"
#include "src/digest/digest_on_host.h"

namespace shardproof {
namespace {

using namespace digest_internal;
using Bytes = std::vector<uint8_t>;

/// One tensor's runs, each with memory of exactly its bytes, so that a sanitizer sees a read beside
/// it.
struct Layout {
  std::vector<sp_run> runs;
  std::vector<std::unique_ptr<uint8_t[]>> memory;
  sp_float_format format = SP_NO_FLOAT;
};

struct Row {
  uint64_t digest[2], nan_count, inf_count, coverage[2];
  friend bool operator==(const Row&, const Row&) = default;
};

std::ostream& operator<<(std::ostream& out, const Row& row) {
  return out << Digest(row.digest[0], row.digest[1]).Hex() << ", " << row.nan_count << " NaN, "
             << row.inf_count << " Inf, covers " << Digest(row.coverage[0], row.coverage[1]).Hex();
}

/// The specification's sums, a byte at a time; the count of NaN and Inf is the portable kernel's,
/// which has a test of its own.
Row Specified(const Layout& layout) {
  Row row = {};
  for (const sp_run& run : layout.runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      const auto* data =
          static_cast<const uint8_t*>(run.data) + static_cast<int64_t>(i) * run.data_stride;
      for (uint64_t k = 0; k < run.length; ++k) {
        uint64_t position = run.global_start + i * run.global_stride + k;
        for (uint32_t lane = 0; lane < 2; ++lane) {
          uint64_t one = uint64_t{1} << (8 * (position % 4));
          uint64_t unit = one * kKeys.key[lane][position / 4 % kBlockWords] *
                          Factor(lane, position / kBlockBytes);
          row.digest[lane] += data[k] * unit;
          row.coverage[lane] += unit;
        }
      }
    }
  }
  sp_summary summary = {};
  kPortableKernel.digest_runs[layout.format](&summary, layout.runs.data(), layout.runs.size());
  row.nan_count = summary.nan_count;
  row.inf_count = summary.inf_count;
  return row;
}

struct Grid {
  uint64_t first = 0, count = 0, bytes = kBlockBytes;
  std::vector<uint64_t> lanes;
};

/// All layouts in one plan, a row for each, by so many blocks of threads a launch.
std::vector<Row> OnHost(const std::vector<Layout>& layouts, uint64_t blocks, Grid* grid = nullptr) {
  std::vector<Row> rows(layouts.size());
  LaunchHead head = {};
  head.sums = rows.front().digest;
  head.coverage = rows.front().coverage;
  head.row_words = sizeof(Row) / sizeof(uint64_t);
  if (grid != nullptr) {
    grid->lanes.assign(2 * grid->count, 0);
    head.blocks = grid->lanes.data();
    head.first_block = grid->first;
    head.block_count = grid->count;
    head.block_bytes = grid->bytes;
  }
  Planner planner;
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (const sp_run& run : layouts[i].runs) {
      EXPECT_TRUE(planner.Add(run, static_cast<uint32_t>(i), layouts[i].format));
    }
  }
  planner.ForEach([&](std::span<const Segment> segments, uint64_t units) {
    head.unit_count = units;
    head.segment_count = static_cast<uint32_t>(segments.size());
    EXPECT_TRUE(RunOnHost(head, segments.data(), std::min(units, blocks)))
        << "threads of a block part ways";
  });
  return rows;
}

/// Random bytes, of which some are made elements that are not finite, or nearly.
void Fill(std::mt19937_64& random, uint8_t* data, uint64_t size) {
  static const uint8_t kPattern[][8] = {
      {0, 0, 0x80, 0x7f, 0, 0, 0xc0, 0xff},
      {0, 0x7c, 0, 0xfc, 1, 0x7c, 0xff, 0x7b},
      {0, 0, 0, 0, 0, 0, 0xf0, 0x7f},
      {1, 0, 0, 0, 0, 0, 0xf0, 0xff},
      {0x7f, 0xff, 0x7e, 0xfe, 0x7c, 0xfc, 0x7d, 0xfd},
      {0x80, 0x7f, 0x80, 0xff, 0x7f, 0x7f, 1, 0x80},
  };
  for (uint64_t i = 0; i < size; ++i) data[i] = static_cast<uint8_t>(random());
  for (uint64_t at = random() % 40; at + 8 <= size; at += 8 * (1 + random() % 60)) {
    std::memcpy(data + at, kPattern[random() % std::size(kPattern)], 8);
  }
}

/// `shift` bytes of the memory are left before the data, so that all alignments are tried.
void AddRun(std::mt19937_64& random, Layout& layout, sp_run run, uint64_t gap, uint64_t shift) {
  run.data_stride = static_cast<int64_t>(run.length + gap);
  uint64_t size =
      run.count == 0 || run.length == 0 ? 0 : (run.count - 1) * (run.length + gap) + run.length;
  auto memory = std::make_unique<uint8_t[]>(shift + size);
  Fill(random, memory.get() + shift, size);
  run.data = memory.get() + shift;
  layout.runs.push_back(run);
  layout.memory.push_back(std::move(memory));
}

uint64_t AnyLength(std::mt19937_64& random) {
  switch (random() % 8) {
    case 0:
      return random() % 3;
    case 1:
    case 2:
      return random() % 40;
    case 3:
    case 4:
      return random() % 600;
    case 5:
      return 4080 + random() % 32;
    default:
      return random() % 20000;
  }
}

Layout AnyLayout(std::mt19937_64& random) {
  Layout layout;
  layout.format = static_cast<sp_float_format>(random() % (SP_F8_E5M2 + 1));
  for (uint64_t left = 1 + random() % 3; left > 0; --left) {
    sp_run run = {};
    run.length = AnyLength(random);
    run.count = random() % 3 == 0 ? random() % (1 + 12000 / (run.length + 40)) : 1;
    run.global_start = random() % (random() % 2 == 0 ? 64 : uint64_t{1} << 40);
    run.global_stride = run.length + (random() % 2 == 0 ? random() % 50 : 0);
    if (random() % 4 == 0) run.global_stride = 4096 * (1 + run.length / 4096);
    AddRun(random, layout, run, random() % 3 == 0 ? random() % 40 : 0, random() % 17);
  }
  return layout;
}

TEST(DigestThread, OfRandomLayoutsIsTheSpecifications) {
  // SHARDPROOF_LAYOUTS asks for more of them.
  const char* asked = std::getenv("SHARDPROOF_LAYOUTS");
  const int rounds = asked != nullptr ? std::atoi(asked) : 600;
  ASSERT_GT(rounds, 0);
  uint64_t bytes_read = 0;
  for (int round = 0; round < rounds; ++round) {
    std::mt19937_64 random(static_cast<uint64_t>(round));
    std::vector<Layout> layouts;
    for (uint64_t left = 1 + random() % 3; left > 0; --left) layouts.push_back(AnyLayout(random));
    std::vector<Row> seen = OnHost(layouts, 1 + random() % 5);
    for (size_t i = 0; i < layouts.size(); ++i) {
      ASSERT_EQ(seen[i], Specified(layouts[i])) << "round " << round << ", tensor " << i;
      for (const sp_run& run : layouts[i].runs) bytes_read += run.length * run.count;
    }
  }
  EXPECT_GT(bytes_read, 1000u * static_cast<uint64_t>(rounds));
}

TEST(DigestThread, OfEveryFormatStartAndAlignmentIsTheSpecifications) {
  std::mt19937_64 random(1);
  for (int format = SP_NO_FLOAT; format <= SP_F8_E5M2; ++format) {
    for (uint64_t start : {0, 1, 2, 3, 5, 8, 4088, 4095}) {
      for (uint64_t length : {1, 2, 7, 16, 17, 64, 4095, 4096, 4097, 8192, 12301}) {
        std::vector<Layout> layout(1);
        layout[0].format = static_cast<sp_float_format>(format);
        AddRun(random, layout[0], sp_run{start, length, 1, 0, nullptr, 0}, 0, random() % 17);
        ASSERT_EQ(OnHost(layout, 3)[0], Specified(layout[0]))
            << "format " << format << ", " << length << " bytes from " << start;
      }
    }
  }
}

TEST(DigestThread, OfRunsOfOneByteAndOfNothing) {
  std::mt19937_64 random(2);
  std::vector<Layout> layouts(4);
  AddRun(random, layouts[0], sp_run{3, 1, 5000, 3, nullptr, 0}, 2, 1);
  AddRun(random, layouts[1], sp_run{3, 0, 5, 8, nullptr, 0}, 0, 0);
  AddRun(random, layouts[2], sp_run{3, 5, 0, 8, nullptr, 0}, 0, 0);
  AddRun(random, layouts[3], sp_run{9, 1, 1, 0, nullptr, 0}, 0, 3);
  std::vector<Row> seen = OnHost(layouts, 7);
  for (size_t i = 0; i < layouts.size(); ++i) EXPECT_EQ(seen[i], Specified(layouts[i])) << i;
  EXPECT_EQ(seen[1], Row{});
  EXPECT_EQ(seen[2], Row{});
}

TEST(DigestThread, OfManyTensorsInSeveralLaunches) {
  std::mt19937_64 random(3);
  std::vector<Layout> layouts(2 * kSegmentsMax + 3);
  for (Layout& layout : layouts) {
    layout.format = SP_BF16;
    AddRun(random, layout, sp_run{0, 2 * (1 + random() % 60), 1, 0, nullptr, 0}, 0, 0);
  }
  std::vector<Row> seen = OnHost(layouts, 11);
  for (size_t i = 0; i < layouts.size(); ++i) ASSERT_EQ(seen[i], Specified(layouts[i])) << i;
}

TEST(DigestThread, ReadsStretchesAtNegativeAndOverlappingDataStrides) {
  const Bytes rows = {1, 2, 3, 4, 5, 6};
  std::vector<Layout> layouts(2);
  layouts[0].runs.push_back(sp_run{9, 2, 3, 2, &rows[4], -2});
  layouts[1].runs.push_back(sp_run{9, 2, 3, 2, &rows[4], 0});
  std::vector<Row> seen = OnHost(layouts, 1);
  EXPECT_EQ(seen[0], Specified(layouts[0]));
  EXPECT_EQ(seen[1], Specified(layouts[1]));
}

TEST(DigestThread, OfGridBlocksIsThatOfTheCpu) {
  for (uint64_t round = 0; round < 80; ++round) {
    std::mt19937_64 random(round);
    std::vector<Layout> layout(1);
    layout[0].format = SP_F16;
    sp_run run = {random() % 9000, 1 + random() % 30000, 1, 0, nullptr, 0};
    if (round % 2 == 1) run = {random() % 9000, 1 + random() % 300, 40, 0, nullptr, 0};
    run.global_stride = run.length + random() % 400;
    AddRun(random, layout[0], run, random() % 5, random() % 5);
    Grid grid = {random() % 3, 1 + random() % 6, 4096 * (1 + random() % 4), {}};
    Row seen = OnHost(layout, 1 + random() % 4, &grid)[0];
    sp_summary summary = {};
    std::vector<sp_digest> expected(grid.count);
    DigestBlocks(kPortableKernel, &summary, expected.data(), grid.first, grid.count, grid.bytes,
                 layout[0].runs.data(), layout[0].runs.size(), SP_F16);
    ASSERT_EQ(seen, Specified(layout[0])) << "round " << round;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(Digest(grid.lanes[2 * i], grid.lanes[2 * i + 1]), Digest(expected[i]))
          << "round " << round << ", block " << i;
    }
  }
}

TEST(DigestThread, UnitsCoverATensorOfMoreThan2To31ElementsOnce) {
  // 2^31 + 5 floats from an odd place: the units' parts, by arithmetic, are the tensor.
  Segment segment = {3, 4 * ((uint64_t{1} << 31) + 5), 1, 0, nullptr, 0, 0, 0, SP_F32};
  const uint64_t units = UnitsOf(segment);
  ASSERT_EQ(units, BlocksOfStretch(segment));
  EXPECT_EQ(units, (3 + segment.length + 4095) / 4096);
  const Stretch stretch = StretchOf(segment, 0);
  uint64_t covered = 0;
  for (uint64_t unit = 0; unit < units; ++unit) {
    uint64_t begin = std::max(stretch.start, unit * kBlockBytes);
    uint64_t end = std::min(stretch.end, (unit + 1) * kBlockBytes);
    ASSERT_LT(begin, end);
    covered += end - begin;
  }
  EXPECT_EQ(covered, segment.length);
}

TEST(DigestThread, OfATensorOfMoreThan2To31ElementsReadsWhereItEnds) {
  // All rows of a huge tensor lie in the same few bytes of memory: the arithmetic is that of the
  // huge one.
  std::mt19937_64 random(4);
  Bytes memory(3 * 4096 + 5);
  Fill(random, memory.data(), memory.size());
  std::vector<Layout> layout(1);
  layout[0].format = SP_F32;
  const uint64_t row = memory.size(), rows = 6;
  layout[0].runs.push_back(
      sp_run{(uint64_t{1} << 33) - row, row, rows, uint64_t{1} << 33, memory.data(), 0});
  layout[0].runs.push_back(
      sp_run{(uint64_t{1} << 34) + 7, 9, 700, uint64_t{1} << 32, memory.data(), 1});
  EXPECT_EQ(OnHost(layout, 5)[0], Specified(layout[0]));
}

TEST(DigestThread, StretchesThatCannotBeCountedAreRefused) {
  Planner planner;
  EXPECT_FALSE(planner.Add(sp_run{0, 1, ~uint64_t{0}, 0, nullptr, 0}, 0, SP_NO_FLOAT));
  EXPECT_FALSE(planner.Add(sp_run{0, uint64_t{1} << 40, 1 << 20, 0, nullptr, 0}, 0, SP_NO_FLOAT));
  EXPECT_TRUE(planner.Add(sp_run{0, uint64_t{1} << 50, 1, 0, nullptr, 0}, 0, SP_NO_FLOAT));
}

TEST(DigestThread, HoldsForTheVectors) {
  const auto document = nlohmann::json::parse(std::ifstream(SHARDPROOF_DIGEST_VECTORS));
  int tried = 0;
  for (const auto& vector : document.at("vectors")) {
    if (vector.at("data").at("kind") != "constant") continue;
    ++tried;
    Layout layout;
    for (const auto& run : vector.at("runs")) {
      uint64_t length = run.at("length"), count = run.at("count");
      auto memory = std::make_unique<uint8_t[]>(length * count);
      std::memset(memory.get(), vector.at("data").at("byte").get<uint8_t>(), length * count);
      layout.runs.push_back({run.at("global_start"), length, count, run.at("global_stride"),
                             memory.get(), static_cast<int64_t>(length)});
      layout.memory.push_back(std::move(memory));
    }
    std::vector<Layout> layouts;
    layouts.push_back(std::move(layout));
    Row seen = OnHost(layouts, 3)[0];
    EXPECT_EQ(Digest(seen.digest[0], seen.digest[1]).Hex(), vector.at("digest"));
    EXPECT_EQ(Digest(seen.coverage[0], seen.coverage[1]).Hex(), vector.at("coverage"));
  }
  EXPECT_GE(tried, 3);
}

}  // namespace
}  // namespace shardproof
