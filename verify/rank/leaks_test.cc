#include "verify/rank/leaks.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace shardproof {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LeakWatchTest : public ::testing::Test {
 protected:
  LeakWatchTest() {
    folder_ = ::testing::TempDir() + "leaks-XXXXXX";
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  ~LeakWatchTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(LeakWatchTest, ADescriptor) {
  const LeakWatch watch(folder_);
  const int fd = ::open("/dev/null", O_RDONLY);
  EXPECT_THAT(watch.Since(), ElementsAre("descriptor of /dev/null"));
  ::close(fd);
  EXPECT_THAT(watch.Since(), IsEmpty());
}

TEST_F(LeakWatchTest, AChildThatNobodyWaitedFor) {
  const LeakWatch watch(folder_);
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  ASSERT_EQ(watch.Since().size(), 1u);
  EXPECT_TRUE(watch.Since()[0].starts_with("child process ")) << watch.Since()[0];
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);  // a zombie
  EXPECT_EQ(watch.Since().size(), 1u);
  ::waitpid(child, nullptr, 0);
  EXPECT_THAT(watch.Since(), IsEmpty());
}

TEST_F(LeakWatchTest, SharedMemoryByNameOrMapped) {
  const LeakWatch watch(folder_);
  const std::string name = "/leaks-" + std::to_string(::getpid());
  const int fd = ::shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, 4096), 0);
  void* const mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  EXPECT_THAT(watch.Since(), ElementsAre("shared memory /dev/shm" + name));
  ::shm_unlink(name.c_str());
  EXPECT_THAT(watch.Since(), ElementsAre("shared memory /dev/shm" + name + " (deleted)"));
  ::munmap(mapped, 4096);
  EXPECT_THAT(watch.Since(), IsEmpty());
}

TEST_F(LeakWatchTest, AMappedFile) {
  const std::string path = folder_ + "/mapped";
  std::ofstream(path) << "some bytes";
  const LeakWatch watch(folder_);
  const int fd = ::open(path.c_str(), O_RDONLY);
  void* const mapped = ::mmap(nullptr, 10, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  // "shared memory" if that is where this test's files are.
  EXPECT_THAT(watch.Since(), ElementsAre(::testing::EndsWith(" " + path)));
  ::munmap(mapped, 10);
  EXPECT_THAT(watch.Since(), IsEmpty());
}

TEST_F(LeakWatchTest, SystemVSharedMemory) {
  const LeakWatch watch(folder_);
  const int id = ::shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
  if (id < 0) GTEST_SKIP() << "skipped: this kernel has no System V shared memory";
  EXPECT_THAT(watch.Since(), ElementsAre("System V shared memory of 4096 bytes"));
  ::shmctl(id, IPC_RMID, nullptr);
  EXPECT_THAT(watch.Since(), IsEmpty());
}

TEST_F(LeakWatchTest, ATemporaryFile) {
  const LeakWatch watch(folder_);
  std::ofstream(folder_ + "/draft") << "x";
  EXPECT_THAT(watch.Since(), ElementsAre("temporary file draft"));
}

}  // namespace
}  // namespace shardproof
