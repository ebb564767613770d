// Archives whose size is the trouble.
#include "verify/formats/inflate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>

#include "verify/formats/tar.h"
#include "verify/oracle/fixture_files.h"
#include "verify/process/program.h"

namespace shardproof::formats {
namespace {

using ::testing::HasSubstr;

TEST(Tar, IsLookedAtToItsEnd) {
  const oracle::TemporaryDirectory scratch;
  std::ofstream(scratch / "a.pt") << "x";
  const std::string tar = scratch / "one.tar";
  const auto ended =
      RunProgram({"tar", "-C", scratch.path(), "-cf", tar, "a.pt"}, std::chrono::seconds(20));
  ASSERT_TRUE(ended.ok() && ended.value().ok());
  const auto read = [&] {
    const auto file = oracle::InputFile::Open(tar);
    EXPECT_TRUE(file.ok());
    return ReadTar(file.value());
  };
  std::filesystem::resize_file(tar, 3u << 20);
  EXPECT_TRUE(read().ok());
  std::ofstream(tar, std::ios::app) << "x";
  const auto more = read();
  ASSERT_FALSE(more.ok());
  EXPECT_THAT(more.error().message, HasSubstr("expected the archive's end, zeros, found more"));
}

/// On a disk of 16 MiB, which only root can make.
TEST(Inflate, AllFilesTogetherTakeHalfOfWhatIsFree) {
  const oracle::TemporaryDirectory scratch;
  const std::string disk = scratch / "disk";
  std::filesystem::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=16m") != 0)
    GTEST_SKIP() << "skipped: no disk can be mounted";
  const std::string before = std::filesystem::temp_directory_path();
  ::setenv("TMPDIR", disk.c_str(), 1);
  const std::string zeros = scratch / "zeros";
  std::ofstream(zeros).close();
  std::filesystem::resize_file(zeros, 5u << 20);
  const auto ended = RunProgram({"gzip", zeros}, std::chrono::seconds(20));
  EXPECT_TRUE(ended.ok() && ended.value().ok());
  const auto file = oracle::InputFile::Open(zeros + ".gz");
  const auto inflate = [&] {
    return Inflate({.file = file.value(), .bytes = file.value()->size(), .is_gzip = true}, "one");
  };
  {
    const auto one = inflate();
    EXPECT_TRUE(one.ok());
    const auto two = inflate();
    EXPECT_FALSE(two.ok());
    EXPECT_THAT(two.ok() ? "" : two.error().message, HasSubstr("bytes in all, half of what is"));
  }
  EXPECT_TRUE(inflate().ok()) << "the first one is closed";
  ::setenv("TMPDIR", before.c_str(), 1);
  EXPECT_EQ(::umount2(disk.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace shardproof::formats
