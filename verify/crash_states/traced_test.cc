// Real programs, whose system calls become operations; and saves with a mistake in them, which the
// states of what was recorded show.
#include "verify/crash_states/traced.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "verify/crash_states/judge.h"

namespace shardproof::crash {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Text(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Traced : public ::testing::Test {
 protected:
  Traced() : base_(fs::temp_directory_path() / fmt::format("shardproof-traced-{}", ::getpid())) {
    fs::create_directories(base_ / "root");
    fs::create_directories(base_ / "scratch");
    fs::create_directories(base_ / "elsewhere");
  }
  ~Traced() override { fs::remove_all(base_); }

  void SetUp() override {
    const auto outcome = trace::RunTraced({.words = {"true"}}, Nobody());
    if (outcome.ok() || outcome.error().code != ErrorCode::kUnsupported) return;
    GTEST_SKIP() << "skipped: " << outcome.error().message;
  }

  static trace::Listener& Nobody() {
    class None : public trace::Listener {
      trace::Decision Enter(const trace::Call&) override { return {}; }
    };
    static None none;
    return none;
  }

  void Put(const std::string& name, const std::string& text) {
    std::ofstream(base_ / "root" / name) << text;
  }

  /// Runs a program in the root.
  Result<std::vector<FileOperation>> Record(std::vector<std::string> words,
                                            int64_t bytes_max = 1 << 20) {
    SP_ASSIGN(before_, Disk::Read(base_ / "root"));
    SP_ASSIGN(TracedSave save, TracedSave::Make(base_ / "root", bytes_max));
    SP_ASSIGN(const auto outcome, trace::RunTraced({.words = std::move(words),
                                                    .calls = TracedSave::Calls(),
                                                    .directory = base_ / "root"},
                                                   save));
    EXPECT_TRUE(outcome.in_time);
    wait_status_ = outcome.wait_status;
    notices_ = save.notices();
    return save.Operations(before_);
  }
  Result<std::vector<FileOperation>> Python(const std::string& script,
                                            int64_t bytes_max = 1 << 20) {
    return Record({"python3", "-B", "-c", "import os\n" + script}, bytes_max);
  }

  /// Of a recording that must be there: one line an operation.
  std::vector<std::string> Seen(const Result<std::vector<FileOperation>>& recorded) {
    EXPECT_TRUE(recorded.ok()) << recorded.error().message;
    EXPECT_EQ(wait_status_, 0);
    std::vector<std::string> lines;
    if (!recorded.ok()) return lines;
    for (const FileOperation& operation : recorded.value()) {
      lines.push_back(fmt::format("{}{}",
                                  operation.rank == 0 ? "" : fmt::format("{}: ", operation.rank),
                                  Describe(operation)));
    }
    return lines;
  }

  std::string ErrorOf(const Result<std::vector<FileOperation>>& recorded) {
    EXPECT_FALSE(recorded.ok());
    return recorded.ok() ? "" : recorded.error().message;
  }

  fs::path base_;
  Disk before_;
  int wait_status_ = -1;
  std::set<std::string> notices_;
};

TEST_F(Traced, WritesAreRecordedWhereTheyWent) {
  Put("old", "0123456789");
  const auto seen =
      Seen(Python("f = os.open('new', os.O_CREAT | os.O_RDWR)\n"
                  "os.write(f, b'abc')\n"
                  "g = os.dup(f)\n"
                  "os.write(g, b'def')\n"  // the offset is shared
                  "os.lseek(f, 1, os.SEEK_SET)\n"
                  "os.writev(g, [b'X', b'Y'])\n"
                  "os.pwrite(f, b'Z', 10)\n"
                  "os.pwritev(f, [b'p', b'q'], 20)\n"
                  "a = os.open('old', os.O_WRONLY | os.O_APPEND)\n"
                  "os.write(a, b'end')\n"
                  "os.pwrite(a, b'pw', 0)\n"  // Linux appends
                  "os.ftruncate(a, 4)\n"
                  "os.truncate('new', 30)\n"
                  "os.close(os.open('old', os.O_WRONLY | os.O_TRUNC))\n"
                  "os.write(a, b'!')\n"));
  EXPECT_THAT(seen, ElementsAre("create of new", "write of bytes [0, 3) of new",
                                "write of bytes [3, 6) of new", "write of bytes [1, 3) of new",
                                "write of bytes [10, 11) of new", "write of bytes [20, 22) of new",
                                "write of bytes [10, 13) of old", "write of bytes [13, 15) of old",
                                "truncate of old to 4 bytes", "truncate of new to 30 bytes",
                                "truncate of old to 0 bytes", "write of bytes [0, 1) of old"));
}

TEST_F(Traced, NamesAreRecordedAsTheyChange) {
  const auto seen =
      Seen(Python("os.mkdir('a'); os.chdir('a')\n"
                  "d = os.open('.', os.O_RDONLY)\n"
                  "f = os.open('file', os.O_CREAT | os.O_WRONLY, dir_fd=d)\n"
                  "os.rename('../a', '../b')\n"
                  "os.write(f, b'x')\n"  // of b/file by now
                  "os.fsync(f); os.fdatasync(f); os.fsync(d)\n"
                  "os.replace('file', '../top')\n"
                  "os.chdir('..'); os.write(f, b'y')\n"
                  "os.unlink('top'); os.write(f, b'nameless')\n"
                  "os.rmdir('b'); os.fsync(d)\n"
                  "import ctypes\n"
                  "open('p', 'w').close(); open('q', 'w').close()\n"
                  "assert ctypes.CDLL(None).renameat2(-100, b'p', -100, b'q', 2) == 0\n"));
  EXPECT_THAT(seen, ElementsAre("mkdir of a", "create of a/file", "rename of a to b",
                                "write of bytes [0, 1) of b/file", "sync of b/file",
                                "sync of b/file", "sync of b", "rename of b/file to top",
                                "write of bytes [1, 2) of top", "unlink of top", "rmdir of b",
                                "create of p", "create of q", "exchange of p and q"));
}

TEST_F(Traced, LinksAreRecorded) {
  Put("there", "x");
  fs::create_directory(base_ / "root/there.d");
  const auto seen = Seen(
      Python("os.symlink('there', 'latest')\n"
             "os.symlink(os.getcwd() + '/there.d', 'there.d/self')\n"
             "open('latest', 'a').write('y')\n"       // through the link
             "open('there.d/self/z', 'w').close()\n"  // through a link to a directory
             "os.symlink('there.d', 'l'); os.replace('l', 'latest')\n"
             "os.link('there', 'there.d/twice'); os.unlink('there')\n"
             "os.link('there.d/twice', '../elsewhere/thrice'); os.unlink('../elsewhere/thrice')\n"
             "os.fsync(os.open('there.d/twice', os.O_RDONLY))\n"
             "os.sync()\n"));
  EXPECT_THAT(
      seen,
      ElementsAre("symlink of latest to there", "symlink of there.d/self to ROOT/there.d",
                  "write of bytes [1, 2) of there", "create of there.d/z",
                  "symlink of l to there.d", "rename of l to latest",
                  "link of there as there.d/twice", "unlink of there", "sync of there.d/twice",
                  "sync of there.d/twice", "sync of there.d/z", "sync of .", "sync of there.d"));
}

TEST_F(Traced, ProcessesAndThreadsAreOneOrder) {
  const auto recorded = Python(
      "import threading\n"
      "f = os.open('shared', os.O_CREAT | os.O_WRONLY)\n"
      "def work(k):\n"
      "  mine = os.open(f'of-{k}', os.O_CREAT | os.O_WRONLY)\n"
      "  for i in range(30):\n"
      "    os.write(f, bytes([65 + k]) * 3); os.write(mine, b'm')\n"
      "if os.fork() == 0:\n"
      "  work(0); os._exit(0)\n"
      "ts = [threading.Thread(target=work, args=(k,)) for k in (1, 2)]\n"
      "[t.start() for t in ts]; [t.join() for t in ts]\n"
      "os.wait()\n");
  ASSERT_TRUE(recorded.ok()) << recorded.error().message;  // its end is what is on disk
  EXPECT_EQ(wait_status_, 0);
  EXPECT_EQ(recorded.value().size(), 1u + 3 + 180);
  std::set<int64_t> ranks;
  for (const FileOperation& operation : recorded.value()) ranks.insert(operation.rank);
  EXPECT_EQ(ranks, (std::set<int64_t>{0, 1}));
}

TEST_F(Traced, CopiesHolesAndSyncsOfAll) {
  Put("source", "hello world");
  const auto seen =
      Seen(Python("s = os.open('source', os.O_RDWR)\n"
                  "t = os.open('t', os.O_CREAT | os.O_WRONLY)\n"
                  "os.sendfile(t, s, 0, 5)\n"
                  "os.copy_file_range(s, t, 6, 6, 5)\n"
                  "import ctypes\n"
                  "c = ctypes.CDLL(None)\n"
                  "assert c.fallocate(s, 3, ctypes.c_long(2), ctypes.c_long(3)) == 0\n"
                  "os.posix_fallocate(s, 0, 20)\n"
                  "c.syncfs(s)\n"
                  "o = os.open('o', os.O_CREAT | os.O_WRONLY | os.O_SYNC)\n"
                  "os.write(o, b'1')\n"));
  EXPECT_THAT(
      seen, ElementsAre("create of t", "write of bytes [0, 5) of t", "write of bytes [5, 10) of t",
                        "write of bytes [2, 5) of source", "truncate of source to 20 bytes",
                        "sync of source", "sync of t", "sync of .", "create of o",
                        "write of bytes [0, 1) of o", "sync of o"));
}

TEST_F(Traced, WhatIsElsewhereOrFailsIsNotRecorded) {
  Put("there", "x");
  const auto seen =
      Seen(Python("open('../elsewhere/y', 'w').write('z')\n"
                  "def fails(f, *a):\n"
                  "  try: f(*a); raise SystemExit('did not fail')\n"
                  "  except OSError: pass\n"
                  "fails(os.mkdir, 'there'); fails(os.unlink, 'gone')\n"
                  "fails(os.open, 'there', os.O_CREAT | os.O_EXCL)\n"
                  "fails(os.rename, 'gone', 'there')\n"
                  "print('to a pipe')\n"));
  EXPECT_THAT(seen, ElementsAre());
}

TEST_F(Traced, WhatCannotBeToldIsRefusedByPathAndCall) {
  Put("there", "x");
  const std::string root = base_ / "root";
  EXPECT_THAT(ErrorOf(Python("os.symlink('../elsewhere', 'latest')")),
              HasSubstr(root + "/latest: symlink"));
  fs::remove(base_ / "root/latest");
  std::ofstream(base_ / "elsewhere/file") << "x";
  EXPECT_THAT(ErrorOf(Python("os.link('../elsewhere/file', 'twice')")),
              HasSubstr(root + "/twice: link"));
  fs::remove(base_ / "root/twice");
  EXPECT_THAT(ErrorOf(Python("os.rename('there', '../elsewhere/x')")),
              HasSubstr("a --root above both"));
  EXPECT_THAT(ErrorOf(Python("os.rename('../elsewhere/x', 'there')")), HasSubstr("a move within"));
  EXPECT_THAT(ErrorOf(Python("os.rename('../root', '../gone')")),
              HasSubstr("the directory itself to stay"));
  fs::rename(base_ / "gone", base_ / "root");
  EXPECT_THAT(ErrorOf(Python("open('big', 'w').write('x' * 5000)", 4999)),
              HasSubstr("--max-bytes"));
}

TEST_F(Traced, StoresIntoASharedMappingAreRefusedAndLooksAreNot) {
  Put("there", "0123456789");
  EXPECT_THAT(Seen(Python("import mmap\n"
                          "f = os.open('there', os.O_RDWR)\n"
                          "m = mmap.mmap(f, 10)\nassert m[0] == 48\n")),
              ElementsAre());
  EXPECT_THAT(ErrorOf(Python("import mmap\n"
                             "f = os.open('there', os.O_RDWR)\n"
                             "m = mmap.mmap(f, 10)\nm[0] = 65\n")),
              HasSubstr("there: was changed through a shared mapping"));
  EXPECT_THAT(ErrorOf(Python("import mmap\n"
                             "f = os.open('there', os.O_RDWR)\n"
                             "m = mmap.mmap(f, 10)\nm[0] = 66\n"
                             "os.rename('there', 'elsewhere')\n")),
              HasSubstr("elsewhere: was changed through a shared mapping"));
}

TEST_F(Traced, AnotherProgramThatWritesIsNoticed) {
  Put("there", "0123456789");
  ASSERT_EQ(::mkfifo((base_ / "go").c_str(), 0600), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const int go = ::open((base_ / "go").c_str(), O_RDONLY);
    Put("there", "changed");
    ::close(go);
    ::_exit(0);
  }
  const std::string error =
      ErrorOf(Python("f = os.open('../go', os.O_WRONLY)\n"
                     "import time\n"
                     "while open('there').read() != 'changed': time.sleep(.01)\n"));
  EXPECT_THAT(error, HasSubstr("root/there: was changed by something that is not known here"));
  ::waitpid(other, nullptr, 0);
}

TEST_F(Traced, IoUringIsDenied) {
  Seen(
      Python("import ctypes\n"
             "c = ctypes.CDLL(None, use_errno=True)\n"
             "assert c.syscall(425, 8, ctypes.create_string_buffer(200)) == -1\n"
             "assert ctypes.get_errno() == 38\n"));
  EXPECT_THAT(notices_, ElementsAre("io_uring_setup was denied to the command"));
}

/// Saves of a checkpoint "ckpt" of two parts, that "latest" names or not.
class TracedProtocols : public Traced {
 protected:
  static constexpr const char* kParts =
      "def put(path, data, sync=True):\n"
      "  f = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)\n"
      "  os.write(f, data)\n"
      "  if sync: os.fsync(f)\n"
      "  os.close(f)\n"
      "def sync_directory(path='.'):\n"
      "  d = os.open(path, os.O_RDONLY); os.fsync(d); os.close(d)\n";

  /// The states of a save over "old", which `load` is to read: the text, or an error.
  CrashReport Crash(const std::string& script,
                    const std::function<Result<std::string>(const fs::path&)>& load) {
    const auto recorded = Python(kParts + script);
    EXPECT_TRUE(recorded.ok()) << recorded.error().message;
    EXPECT_EQ(wait_status_, 0);
    const auto judge = [&](const std::string& directory) -> Result<LoadOutcome> {
      const auto loaded = load(directory);
      if (!loaded.ok()) return LoadOutcome{Loaded::kWrong, loaded.error().message};
      if (loaded.value() == New()) return LoadOutcome{Loaded::kNew, ""};
      if (loaded.value() == Old()) return LoadOutcome{Loaded::kOld, ""};
      return LoadOutcome{Loaded::kWrong, "neither"};
    };
    const auto report =
        RunStates(before_, recorded.value(), {}, base_ / "scratch", judge, {.had_previous = true});
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report.value();
  }

  static std::string New() { return std::string(9000, 'n'); }
  static std::string Old() { return std::string(7000, 'o'); }
  static Result<std::string> LoadFile(const fs::path& directory) {
    if (!fs::exists(directory / "ckpt")) return Failed("no checkpoint");
    return Text(directory / "ckpt");
  }
  static int64_t Wrong(CrashReport& report, CrashModel model) {
    return report.outcomes[model][Loaded::kWrong];
  }
};

TEST_F(TracedProtocols, ASoundSaveHasNoBadState) {
  Put("ckpt", Old());
  const CrashReport report = Crash(
      "put('ckpt.tmp', b'n' * 9000)\n"
      "os.rename('ckpt.tmp', 'ckpt')\n"
      "sync_directory()\n",
      LoadFile);
  EXPECT_EQ(report.bad_count, 0) << report.bad.front().Text();
  EXPECT_GT(report.states.distinct, 5);
}

TEST_F(TracedProtocols, AWriteInPlaceNeedsOnlyAKill) {
  Put("ckpt", Old());
  CrashReport report = Crash("put('ckpt', b'n' * 9000); sync_directory()\n", LoadFile);
  EXPECT_GT(Wrong(report, CrashModel::kKill), 0);
}

TEST_F(TracedProtocols, ARenameBeforeTheSyncNeedsAPowerLoss) {
  Put("ckpt", Old());
  CrashReport report = Crash(
      "put('ckpt.tmp', b'n' * 9000, sync=False)\n"
      "os.rename('ckpt.tmp', 'ckpt')\n"
      "f = os.open('ckpt', os.O_RDONLY); os.fsync(f)\n"
      "sync_directory()\n",
      LoadFile);
  EXPECT_EQ(Wrong(report, CrashModel::kKill), 0);
  EXPECT_GT(Wrong(report, CrashModel::kPosix), 0);
}

Result<std::string> LoadLatest(const fs::path& directory) {
  const std::string step = Text(directory / "latest");
  if (step.empty() || !fs::exists(directory / step)) return Failed("latest names nothing");
  return Text(directory / step);
}

TEST_F(TracedProtocols, ALatestThatMovesBeforeTheDataNeedsOnlyAKill) {
  Put("step-1", Old());
  Put("latest", "step-1");
  const std::string move =
      "put('latest.tmp', b'step-2'); os.rename('latest.tmp', 'latest'); sync_directory()\n";
  const std::string data = "put('step-2', b'n' * 9000); sync_directory()\n";
  CrashReport wrong = Crash(move + data, LoadLatest);
  EXPECT_GT(Wrong(wrong, CrashModel::kKill), 0);
  fs::remove(base_ / "root/step-2");
  Put("latest", "step-1");
  const CrashReport sound = Crash(data + move, LoadLatest);
  EXPECT_EQ(sound.bad_count, 0) << sound.bad.front().Text();
}

TEST_F(TracedProtocols, AnErrorThatIsSwallowedIsFound) {
  // The sync fails, as on a bad descriptor, and the save goes on.
  Put("ckpt", Old());
  CrashReport report = Crash(
      "put('ckpt.tmp', b'n' * 9000, sync=False)\n"
      "try: os.fsync(99)\n"
      "except OSError: pass\n"
      "os.rename('ckpt.tmp', 'ckpt'); sync_directory()\n",
      LoadFile);
  EXPECT_EQ(Wrong(report, CrashModel::kKill), 0);
  EXPECT_GT(Wrong(report, CrashModel::kPosix), 0);
}

}  // namespace
}  // namespace shardproof::crash
