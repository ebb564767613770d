#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "src/storage/file_system.h"

namespace {

/// Inodes of what was synced, in this program.
std::vector<ino_t> synced;

}  // namespace

// In the place of the C library's: nothing but the call tells whether a file was synced.
extern "C" int fsync(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) == 0) synced.push_back(status.st_ino);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace shardproof {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ino_t InodeOf(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

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
    const Status written =
        opened.value()->WriteAt(0, std::string(500, 'a') + std::string(500, 'b'));
    ASSERT_FALSE(written.ok());
    EXPECT_THAT(written.error().message, HasSubstr("400 bytes at offset 600"));
  }
  const auto text = files->ReadText(path, 1000);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text.value(), std::string(500, 'a') + std::string(100, 'b'));
  std::filesystem::remove_all(directory);
}

TEST(PosixFileSystem, ReplacesAFileThatIsThereOrNot) {
  std::string directory = (std::filesystem::temp_directory_path() / "shardproof-XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const auto files = MakePosixFileSystem();
  for (const uint64_t size : {1, 2}) {
    ASSERT_TRUE(files->Create(directory + "/draft", size).ok());
    ASSERT_TRUE(files->Replace(directory + "/draft", directory + "/file").ok());
    EXPECT_EQ(files->ReadText(directory + "/file", 9).value().size(), size);
    EXPECT_FALSE(files->Exists(directory + "/draft"));
  }
  const Status replaced = files->Replace(directory + "/draft", directory + "/file");
  ASSERT_FALSE(replaced.ok());
  EXPECT_THAT(replaced.error().message, HasSubstr("/draft to"));
  EXPECT_EQ(files->ReadText(directory + "/file", 9).value().size(), 2u);
  std::filesystem::remove_all(directory);
}

TEST(PosixFileSystem, SyncsWhatItSaysAndNothingElse) {
  std::string directory = (std::filesystem::temp_directory_path() / "shardproof-XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string path = directory + "/data";
  const auto files = MakePosixFileSystem();
  ASSERT_TRUE(files->Create(path, 8).ok());
  const auto opened = files->OpenForWrite(path);
  ASSERT_TRUE(opened.ok());
  ASSERT_TRUE(opened.value()->WriteAt(0, "01234567").ok());
  synced.clear();
  ASSERT_TRUE(opened.value()->Sync().ok());
  EXPECT_THAT(synced, ElementsAre(InodeOf(path)));
  synced.clear();
  ASSERT_TRUE(files->SyncDirectory(directory).ok());
  EXPECT_THAT(synced, ElementsAre(InodeOf(directory)));
  EXPECT_FALSE(files->SyncDirectory(directory + "/none").ok());
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace shardproof
