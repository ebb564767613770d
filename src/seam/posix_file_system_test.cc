#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "src/seam/file_system.h"

namespace shardproof {
namespace {

using ::testing::HasSubstr;

/// Lets no file of this process grow beyond so many bytes: a write across that is a short one.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uint64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(PosixOutputFile, AShortWriteGoesOnWhereItEnded) {
  std::string directory = (std::filesystem::temp_directory_path() / "shardproof-XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string path = directory + "/data";
  const auto files = MakePosixFileSystem();
  ASSERT_TRUE(files->Create(path, 0).ok());
  const auto opened = files->OpenForWrite(path);
  ASSERT_TRUE(opened.ok());
  {
    const FileSizeLimit limit(600);
    const Status written = opened.value()->WriteAt(0, std::string(500, 'a') + std::string(500, 'b'));
    ASSERT_FALSE(written.ok());
    EXPECT_THAT(written.error().message, HasSubstr("400 bytes at offset 600"));
  }
  const auto text = files->ReadText(path, 1000);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text.value(), std::string(500, 'a') + std::string(100, 'b'));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace shardproof
