#include "verify/interpose/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

namespace shardproof::interpose {
namespace {

using ::testing::HasSubstr;

/// A folder with stand-ins for the libraries.
class InterposeEnvironmentTest : public ::testing::Test {
 protected:
  InterposeEnvironmentTest() {
    char name[] = "/tmp/interpose-XXXXXX";
    folder_ = ::mkdtemp(name);
    Write("libshardproof_interpose.so", "");
    Write("fiu_run_preload.so", "");
    Write("fiu_posix_preload.so", std::string("\0posix/io/rw/write\0posix/io/sync/fsync\0", 39));
  }
  ~InterposeEnvironmentTest() override {
    for (const std::string& file : files_) ::unlink((folder_ + "/" + file).c_str());
    ::rmdir(folder_.c_str());
  }
  void Write(const std::string& name, const std::string& content) {
    files_.push_back(name);
    std::ofstream(folder_ + "/" + name) << content;
  }
  Interposed With(const std::string& rules) const {
    return {folder_ + "/libshardproof_interpose.so", rules, "/tmp/log", "", {folder_}};
  }
  std::string Refused(const Interposed& interposed, ErrorCode code) const {
    const Result<Environment> environment = InterposeEnvironment(interposed);
    EXPECT_FALSE(environment.ok());
    if (environment.ok()) return "";
    EXPECT_EQ(environment.error().code, code);
    return environment.error().message;
  }
  std::string FiuRefused(const std::string& text) const {
    const Result<Environment> environment = FiuEnvironment(text, "", {folder_});
    EXPECT_FALSE(environment.ok()) << text;
    return environment.ok() ? "" : environment.error().message;
  }

  std::string folder_;
  std::vector<std::string> files_;
};

TEST_F(InterposeEnvironmentTest, LoadsTheInterposerFirst) {
  Interposed interposed = With("ncclAllReduce:drop");
  interposed.preloaded = "/lib/other.so";
  const Result<Environment> environment = InterposeEnvironment(interposed);
  ASSERT_TRUE(environment.ok()) << environment.error().message;
  const Environment expected = {{"LD_PRELOAD", interposed.library + ":/lib/other.so"},
                                {"SHARDPROOF_INTERPOSE", "ncclAllReduce:drop"},
                                {"SHARDPROOF_INTERPOSE_LOG", "/tmp/log"}};
  EXPECT_EQ(environment.value(), expected);
}

TEST_F(InterposeEnvironmentTest, LoadsLibfiuForItsPoints) {
  const Result<Environment> environment = InterposeEnvironment(
      With("posix/io/rw/write:error=EIO;posix/io/sync/fsync:error=EIO;cudaMalloc:error=2"));
  ASSERT_TRUE(environment.ok()) << environment.error().message;
  EXPECT_EQ(environment.value().at("LD_PRELOAD"),
            folder_ + "/libshardproof_interpose.so:" + folder_ + "/fiu_posix_preload.so");
}

TEST_F(InterposeEnvironmentTest, RefusesWhatCannotStrike) {
  EXPECT_THAT(Refused(With("ncclAllReduce"), ErrorCode::kBadInput), HasSubstr("it does nothing"));
  // A part of a name is none.
  EXPECT_THAT(Refused(With("posix/io/rw/writ:error=EIO"), ErrorCode::kBadInput),
              HasSubstr("has no point 'posix/io/rw/writ'"));
  Interposed interposed = With("posix/io/rw/write:error=EIO");
  interposed.fiu_folders = {"/nowhere", "/neither"};
  EXPECT_THAT(Refused(interposed, ErrorCode::kUnsupported),
              HasSubstr("in /nowhere or /neither (Debian package libfiu0)"));
  interposed = With("ncclAllReduce:drop");
  interposed.library += ".not";
  EXPECT_THAT(Refused(interposed, ErrorCode::kUnsupported), HasSubstr("is not there"));
  interposed.library = "/a b.so";
  EXPECT_THAT(Refused(interposed, ErrorCode::kBadInput), HasSubstr("without blanks"));
  interposed = With("ncclAllReduce:drop");
  interposed.log = "log";
  EXPECT_THAT(Refused(interposed, ErrorCode::kBadInput), HasSubstr("an absolute path"));
}

TEST_F(InterposeEnvironmentTest, SpeaksToLibfiuAsFiuRunDoes) {
  Result<Environment> environment =
      FiuEnvironment("posix/io/rw/write:error=ENOSPC,onetime", "/lib/other.so", {folder_});
  ASSERT_TRUE(environment.ok()) << environment.error().message;
  const std::string preload = folder_ + "/fiu_run_preload.so:" + folder_ + "/fiu_posix_preload.so";
  const Environment expected = {
      {"LD_PRELOAD", preload + ":/lib/other.so"},
      {"FIU_ENABLE", "enable name=posix/io/rw/write,failinfo=28,onetime"}};
  EXPECT_EQ(environment.value(), expected);
  environment = FiuEnvironment("posix/io/rw/write:seed=7,error=5,probability=0.25", "", {folder_});
  ASSERT_TRUE(environment.ok()) << environment.error().message;
  const Environment by_chance = {
      {"LD_PRELOAD", preload},
      {"FIU_ENABLE", "enable_random name=posix/io/rw/write,failinfo=5,probability=0.25"},
      {"FIU_PRNG_SEED", "7"}};
  EXPECT_EQ(environment.value(), by_chance);
}

TEST_F(InterposeEnvironmentTest, RefusesChanceWithoutASeed) {
  const std::string point = "posix/io/rw/write:";
  EXPECT_THAT(FiuRefused(point + "error=EIO,probability=0.1"), HasSubstr("has a seed"));
  EXPECT_THAT(FiuRefused(point + "error=EIO,always,seed=3"), HasSubstr("has a seed"));
  EXPECT_THAT(FiuRefused(point + "error=EIO,probability=1.5,seed=3"), HasSubstr("between 0 and 1"));
  EXPECT_THAT(FiuRefused(point + "error=EIO,probability=nan,seed=3"), HasSubstr("between 0 and 1"));
  EXPECT_THAT(FiuRefused(point + "error=EIO,probability=0.1,seed=0"), HasSubstr("the seed '0'"));
  EXPECT_THAT(FiuRefused(point + "onetime"), HasSubstr("it has no error"));
  EXPECT_THAT(FiuRefused(point + "error=EIO"), HasSubstr("it does not say when"));
  EXPECT_THAT(FiuRefused(point + "error=EIO,onetime,always"), HasSubstr("does not say when"));
  EXPECT_THAT(FiuRefused(point + "error=EIO,onetime=1"), HasSubstr("'onetime'"));
  EXPECT_THAT(FiuRefused(point + "error=EIO,onetime,onetime"), HasSubstr("given twice"));
  EXPECT_THAT(FiuRefused("write:error=EIO,onetime"), HasSubstr("the point 'write'"));
  EXPECT_THAT(FiuRefused("posix/io/no:error=EIO,onetime"), HasSubstr("has no point"));
}

/// The exit code of Python, in which this runs with `environment`.
int RunPython(const Environment& environment, const std::string& code) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::alarm(20);
    ::execl(SHARDPROOF_PYTHON, SHARDPROOF_PYTHON, "-S", "-c", code.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// What libfiu does to a program, where it is installed.
class FiuUnderPython : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<Environment> found = FiuEnvironment("posix/io/rw/write:error=EIO,onetime");
    if (!found.ok()) GTEST_SKIP() << "skipped: " << found.error().message;
  }
  static int Run(const std::string& text, const std::string& code) {
    const Result<Environment> environment = FiuEnvironment(text);
    EXPECT_TRUE(environment.ok()) << environment.error().message;
    return environment.ok() ? RunPython(environment.value(), code) : -1;
  }
};

constexpr const char* kWrite = R"(
import os
pipe = os.pipe()[1]
def fails():
    try:
        os.write(pipe, b"x")
    except OSError as error:
        return error.errno
    return 0
)";

TEST_F(FiuUnderPython, TheFirstWriteFailsWithTheErrorAsked) {
  const std::string code = std::string(kWrite) + "os._exit(fails() + 100 * fails())";
  EXPECT_EQ(RunPython({}, code), 0);
  EXPECT_EQ(Run("posix/io/rw/write:error=ENOSPC,onetime", code), 28);
  EXPECT_EQ(Run("posix/io/rw/write:error=1,always", code), 101);
}

TEST_F(FiuUnderPython, ASeedSaysWhichWritesFail) {
  const std::string code =
      std::string(kWrite) +
      "import binascii; os._exit(binascii.crc32(bytes(fails() for _ in range(64))) % 200)";
  const std::string half = "posix/io/rw/write:error=EIO,probability=0.5,seed=";
  const int with_seven = Run(half + "7", code);
  EXPECT_EQ(Run(half + "7", code), with_seven);
  EXPECT_NE(Run(half + "8", code), with_seven);
}

}  // namespace
}  // namespace shardproof::interpose
