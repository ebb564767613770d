#include "verify/evidence/writer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

#include "verify/evidence/fixture_rank.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST_F(EvidenceFiles, WriterRefusesCallsOutOfOrderAndSecondStreams) {
  auto writer = EvidenceWriter::Create(directory_ + "/values", 0).value();
  EXPECT_THAT(EvidenceWriter::Create(directory_ + "/values", 0).error().message,
              HasSubstr("rank_0.facts.jsonl: File exists"));
  ASSERT_TRUE(writer->Rank(Header()).ok());
  EXPECT_EQ(writer->Rank(Header()).error().code, ErrorCode::kInternal);
  EXPECT_FALSE(writer->State("w", {}).ok());
  EXPECT_FALSE(writer->EndStage().ok());
  ASSERT_TRUE(writer->BeginStage("a", 0).ok());
  EXPECT_FALSE(writer->BeginStage("b", 0).ok());
  EXPECT_THAT(writer->State("w", {}).error().message, HasSubstr("descriptor 0, of 0"));
}

TEST_F(EvidenceFiles, FullDiskIsBadInputAndNamesTheFile) {
  auto writer = EvidenceWriter::Create(directory_ + "/values", 0).value();
  ASSERT_TRUE(writer->Rank(Header()).ok());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = before;
  limit.rlim_cur = fs::file_size(Facts()) + 10;
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  const Status first = writer->Error({"failed", "s", "a message"});
  setrlimit(RLIMIT_FSIZE, &before);
  const Status second = writer->Error({"failed", "s", "a message"});
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(first.error().message, HasSubstr("rank_0.facts.jsonl"));
  EXPECT_THAT(first.error().message, HasSubstr("File too large"));
  EXPECT_FALSE(second.ok());  // a line after the torn one would be joined to it
  EXPECT_EQ(Read().damage, "");
}

TEST_F(EvidenceFiles, AtomicWriteLeavesTheOldFileOrTheNew) {
  const std::string path = directory_ + "/out.json";
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  ASSERT_TRUE(WriteFileAtomically(path, "new").ok());
  EXPECT_EQ(Slurp(path), "new");
  EXPECT_FALSE(WriteFileAtomically(directory_ + "/no/out.json", "x").ok());
  EXPECT_FALSE(WriteFileAtomically(directory_, "x").ok());
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory_)) ++files;
  EXPECT_EQ(files, 1u);
}

TEST_F(EvidenceFiles, MeasuresFromManyThreadsAreWholeLines) {
  auto writer = EvidenceWriter::Create(directory_ + "/values", 0).value();
  ASSERT_TRUE(writer->Rank(Header()).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        writer->SetStage(fmt::format("stage {}", i));
        (void)writer->Memory({1.0 * i, 1, 0, ""});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const RankEvidence rank = Read();
  EXPECT_EQ(rank.damage, "");
  EXPECT_EQ(rank.memory->samples.size(), 2000u);
}

}  // namespace
}  // namespace shardproof
