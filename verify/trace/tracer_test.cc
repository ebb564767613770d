// Real programs under the tracer.
#include "verify/trace/tracer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "verify/trace/tracee.h"
#include "verify/trace/tree.h"

namespace shardproof::trace {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Decides by a function, and keeps what it was told.
class Told : public Listener {
 public:
  std::function<Decision(const Call&)> enter = [](const Call&) { return Decision::GoOn(); };
  std::function<void(const Call&)> leave = [](const Call&) {};
  int64_t entered = 0;
  int64_t left = 0;
  std::set<pid_t> processes;
  std::set<pid_t> threads;
  std::vector<pid_t> gone;
  std::map<pid_t, int> ended;
  int64_t executed = 0;
  std::vector<std::string> errors;

  Decision Enter(const Call& call) override {
    ++entered;
    return enter(call);
  }
  void Leave(const Call& call) override {
    ++left;
    leave(call);
  }
  void Forked(pid_t, pid_t thread, bool is_thread) override {
    (is_thread ? threads : processes).insert(thread);
  }
  void Executed(pid_t) override { ++executed; }
  void Gone(pid_t thread) override { gone.push_back(thread); }
  void Ended(pid_t process, int wait_status) override { ended[process] = wait_status; }
};

class Tracer : public ::testing::Test {
 protected:
  Tracer() : root_(fs::temp_directory_path() / fmt::format("shardproof-trace-{}", ::getpid())) {
    fs::create_directories(root_);
    output_ = ::memfd_create("output", 0);
  }
  void SetUp() override {
    Told told;
    const auto outcome = RunTraced({.words = {"true"}}, told);
    if (outcome.ok() || outcome.error().code != ErrorCode::kUnsupported) return;
    GTEST_SKIP() << "skipped: " << outcome.error().message;
  }
  ~Tracer() override {
    ::close(output_);
    fs::remove_all(root_);
  }

  Outcome Traced(std::vector<std::string> words, std::vector<long> calls, Listener& listener,
                 milliseconds deadline = milliseconds(30000)) {
    const auto outcome = RunTraced({.words = std::move(words),
                                    .calls = std::move(calls),
                                    .directory = root_,
                                    .environment = {},
                                    .out = output_,
                                    .err = output_,
                                    .deadline = deadline},
                                   listener);
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    return outcome.ok() ? outcome.value() : Outcome{.wait_status = -1};
  }

  /// Of both streams.
  std::string Output() const {
    std::string text(static_cast<size_t>(::lseek(output_, 0, SEEK_END)), '\0');
    EXPECT_EQ(::pread(output_, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return text;
  }

  std::string Text(const std::string& name) const {
    std::ifstream file(root_ / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  fs::path root_;
  int output_ = -1;
};

TEST_F(Tracer, TellsWhatAProgramDoesInTheOrderInWhichItDoesIt) {
  Told told;
  std::vector<std::string> seen;
  told.leave = [&](const Call& call) {
    if (call.number == SYS_openat) {
      const auto path =
          ResolvePathAt(call.thread, static_cast<int>(call.arguments[0]), call.arguments[1]);
      if (path->ends_with("/file")) seen.push_back("open " + fs::path(*path).filename().string());
      return;
    }
    const auto path = PathOfDescriptor(call.thread, static_cast<int>(call.arguments[0]));
    if (!path || !path->ends_with("/file")) return;
    std::string bytes(call.arguments[2], '\0');
    ASSERT_TRUE(ReadBytes(call.thread, call.arguments[1], bytes.data(), bytes.size()));
    seen.push_back(fmt::format("write {} {}", bytes, call.result));
  };
  const Outcome outcome = Traced({"python3", "-c",
                                  "import os\n"
                                  "f = os.open('../' + os.path.basename(os.getcwd()) + '/./file', "
                                  "os.O_CREAT | os.O_WRONLY)\n"
                                  "os.write(f, b'one')\n"
                                  "os.write(f, b'three')\n"},
                                 {SYS_openat, SYS_write}, told);
  EXPECT_EQ(outcome.wait_status, 0);
  EXPECT_THAT(seen, ElementsAre("open file", "write one 3", "write three 5"));
  EXPECT_GE(told.executed, 1);  // python3 may be a script that ends in an interpreter
  EXPECT_EQ(told.entered, told.left);
}

TEST_F(Tracer, EndsAsTheProgramEnds) {
  Told told;
  EXPECT_EQ(WEXITSTATUS(Traced({"sh", "-c", "exit 3"}, {SYS_write}, told).wait_status), 3);
  const Outcome killed = Traced({"sh", "-c", "kill -TERM $$; sleep 60"}, {SYS_write}, told);
  ASSERT_TRUE(WIFSIGNALED(killed.wait_status));
  EXPECT_EQ(WTERMSIG(killed.wait_status), SIGTERM);
}

TEST_F(Tracer, SaysWhatCannotBeStarted) {
  Told told;
  const auto missing = RunTraced({.words = {"no-such-program-at-all"}, .calls = {SYS_write}}, told);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(missing.error().message,
              HasSubstr("starting no-such-program-at-all: No such file or directory"));
  const auto directory = RunTraced({.words = {"true"}, .directory = "/no/such/directory"}, told);
  ASSERT_FALSE(directory.ok());
  EXPECT_THAT(directory.error().message, HasSubstr("/no/such/directory: No such file"));
  EXPECT_FALSE(RunTraced({}, told).ok());
  EXPECT_EQ(told.entered, 0);
}

TEST_F(Tracer, GivesAnErrorThatTheProgramSees) {
  Told told;
  told.enter = [](const Call& call) {
    return call.number == SYS_fsync ? Decision::Fail(EIO) : Decision::GoOn();
  };
  const Outcome outcome = Traced({"python3", "-c",
                                  "import os, errno\n"
                                  "f = os.open('file', os.O_CREAT | os.O_WRONLY)\n"
                                  "try: os.fsync(f)\n"
                                  "except OSError as e: print(errno.errorcode[e.errno])\n"},
                                 {SYS_fsync}, told);
  EXPECT_EQ(outcome.wait_status, 0);
  EXPECT_EQ(Output(), "EIO\n");
  EXPECT_EQ(told.entered, 1);
  EXPECT_EQ(told.left, 0);
}

TEST_F(Tracer, FailsWhatWasDone) {
  Told told;
  told.enter = [](const Call&) { return Decision{.result = -ENOSPC}; };
  const Outcome outcome = Traced({"python3", "-c",
                                  "import os\n"
                                  "try: os.mkdir('made')\n"
                                  "except OSError as e: print(e.strerror)\n"},
                                 {SYS_mkdir}, told);
  EXPECT_EQ(outcome.wait_status, 0);
  EXPECT_EQ(Output(), "No space left on device\n");
  EXPECT_TRUE(fs::exists(root_ / "made"));
}

TEST_F(Tracer, ShortensAWriteAndLeavesTheRegistersAsTheyWere) {
  Told told;
  bool first = true;
  told.enter = [&](const Call& call) {
    const auto path = PathOfDescriptor(call.thread, static_cast<int>(call.arguments[0]));
    if (!first || !path->ends_with("/file")) return Decision::Unwatched();
    first = false;
    return Decision::Shorten(2, 5);
  };
  int64_t result = 0;
  told.leave = [&](const Call& call) {
    result = call.result;
    EXPECT_EQ(call.arguments[2], 1000u);  // as the program gave it
  };
  const Outcome outcome = Traced(
      {"dd", "if=/dev/zero", "of=file", "bs=1000", "count=1", "status=none"}, {SYS_write}, told);
  EXPECT_EQ(outcome.wait_status, 0) << Output();
  EXPECT_EQ(result, 5);
  EXPECT_EQ(fs::file_size(root_ / "file"), 1000u);  // dd writes the rest
}

TEST_F(Tracer, KillsAtTheNthCall) {
  for (const int64_t n : {1, 3, 10}) {
    Told told;
    int64_t seen = 0;
    told.enter = [&](const Call& call) {
      const auto path = PathOfDescriptor(call.thread, static_cast<int>(call.arguments[0]));
      if (!path->ends_with("/file")) return Decision::Unwatched();
      return ++seen == n ? Decision::Kill() : Decision::GoOn();
    };
    const Outcome outcome =
        Traced({"dd", "if=/dev/zero", "of=file", "bs=10", "count=20"}, {SYS_write}, told);
    ASSERT_TRUE(WIFSIGNALED(outcome.wait_status));
    EXPECT_EQ(WTERMSIG(outcome.wait_status), SIGKILL);
    EXPECT_TRUE(outcome.in_time);
    EXPECT_EQ(fs::file_size(root_ / "file"), static_cast<uint64_t>(10 * (n - 1)));
  }
}

TEST_F(Tracer, FollowsForksThreadsAndPrograms) {
  Told told;
  std::map<pid_t, int64_t> writes;
  told.enter = [&](const Call& call) {
    const auto path = PathOfDescriptor(call.thread, static_cast<int>(call.arguments[0]));
    if (!path || path->find("/out-") == std::string::npos) return Decision::Unwatched();
    ++writes[call.process];
    EXPECT_TRUE(call.process == call.thread || told.threads.contains(call.thread));
    return Decision::GoOn();
  };
  const Outcome outcome =
      Traced({"python3", "-c",
              "import os, subprocess, threading\n"
              "def work(k):\n"
              "  f = os.open(f'out-{k}', os.O_CREAT | os.O_WRONLY)\n"
              "  for i in range(50): os.write(f, b'x')\n"
              "ts = [threading.Thread(target=work, args=(k,)) for k in range(4)]\n"
              "[t.start() for t in ts]\n"
              "[t.join() for t in ts]\n"
              "pid = os.fork()\n"
              "if pid == 0:\n"
              "  work('fork'); os._exit(7)\n"
              "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
              "subprocess.run(['sh', '-c', 'echo y > out-sh; (echo z > out-sub)'], check=True)\n"},
             {SYS_write}, told);
  EXPECT_EQ(outcome.wait_status, 0) << Output();
  EXPECT_EQ(told.threads.size(), 4u);
  EXPECT_GE(told.processes.size(), 2u);
  std::vector<int64_t> counts;
  for (const auto& [process, count] : writes) counts.push_back(count);
  EXPECT_THAT(counts, ::testing::UnorderedElementsAre(200, 50, 1, 1));
  EXPECT_EQ(Text("out-3").size(), 50u);
}

/// That a thread was made is told only once that thread has ended, as on a busy machine.
class ForksAreToldLast {
 public:
  int64_t count() const { return count_; }
  pid_t operator()(int* wait_status) {
    if (told_by_ > 0 && has_ended_) {
      *wait_status = held_;
      return std::exchange(told_by_, -1);
    }
    const pid_t thread = Tree::WaitForAny(wait_status);
    const int event = *wait_status >> 16;
    const bool is_made =
        thread > 0 && WIFSTOPPED(*wait_status) && told_by_ < 0 &&
        (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE);
    if (is_made) {
      unsigned long made = 0;
      ::ptrace(PTRACE_GETEVENTMSG, thread, 0, &made);
      told_by_ = thread;
      held_ = *wait_status;
      made_ = static_cast<pid_t>(made);
      has_ended_ = false;
      ++count_;
      return (*this)(wait_status);
    }
    has_ended_ = has_ended_ || (thread == made_ && !WIFSTOPPED(*wait_status));
    return thread;
  }

 private:
  pid_t told_by_ = -1;
  pid_t made_ = -1;
  int held_ = 0;
  bool has_ended_ = false;
  int64_t count_ = 0;
};

TEST_F(Tracer, IsNotMisledByWhatEndsBeforeItIsToldOf) {
  for (const std::string program : {"(exit 3) && exit 9; (exit 0) || exit 8; (:); (:); (:)",
                                    "for i in 1 2 3 4 5; do /bin/true || exit 9; done; :"}) {
    Told told;
    ForksAreToldLast order;
    const Options options{.words = {"sh", "-c", program},
                          .calls = {SYS_fsync},
                          .out = output_,
                          .err = output_,
                          .deadline = milliseconds(20000)};
    std::optional<Result<Outcome>> outcome;
    std::thread([&] { outcome = Tree(options, told, std::ref(order)).Run(); }).join();
    ASSERT_TRUE(outcome->ok()) << outcome->error().message;
    EXPECT_TRUE(outcome->value().in_time);
    EXPECT_EQ(outcome->value().wait_status, 0) << Output();
    EXPECT_EQ(outcome->value().left_behind, 0);
    EXPECT_EQ(order.count(), 5);
    EXPECT_EQ(told.processes.size(), 5U);
  }
}

TEST_F(Tracer, FollowsAThreadThatBecomesAProgram) {
  Told told;
  std::string written;
  told.leave = [&](const Call& call) {
    std::string bytes(call.arguments[2], '\0');
    const auto path = PathOfDescriptor(call.thread, static_cast<int>(call.arguments[0]));
    if (!path->ends_with("/file")) return;
    if (ReadBytes(call.thread, call.arguments[1], bytes.data(), bytes.size())) written += bytes;
    EXPECT_EQ(call.thread, call.process);
  };
  const Outcome outcome = Traced({"python3", "-c",
                                  "import os, threading, time\n"
                                  "os.dup2(os.open('file', os.O_CREAT | os.O_WRONLY), 1)\n"
                                  "threading.Thread(target=lambda: os.execvp('echo', ['echo', "
                                  "'from a thread'])).start()\n"
                                  "time.sleep(30)\n"},
                                 {SYS_write}, told);
  EXPECT_EQ(outcome.wait_status, 0);
  EXPECT_EQ(written, "from a thread\n");
  EXPECT_GE(told.executed, 2);
}

TEST_F(Tracer, LetsOneCallWaitForAnother) {
  // All writes of four threads, one at a time: what is between Enter and Leave is never two.
  Told told;
  std::optional<pid_t> in_flight;
  int64_t waits = 0;
  told.enter = [&](const Call& call) {
    const auto path = PathOfDescriptor(call.thread, static_cast<int>(call.arguments[0]));
    if (path->find("/out-") == std::string::npos) return Decision::Unwatched();
    if (in_flight) {
      ++waits;
      return Decision::Wait();
    }
    in_flight = call.thread;
    return Decision::GoOn();
  };
  told.leave = [&](const Call& call) {
    EXPECT_EQ(in_flight, call.thread);
    in_flight.reset();
  };
  const Outcome outcome =
      Traced({"python3", "-c",
              "import os, threading\n"
              "def work(k):\n"
              "  f = os.open(f'out-{k}', os.O_CREAT | os.O_WRONLY)\n"
              "  for i in range(200): os.write(f, b'x' * 10000)\n"
              "ts = [threading.Thread(target=work, args=(k,)) for k in range(4)]\n"
              "[t.start() for t in ts]\n"
              "[t.join() for t in ts]\n"},
             {SYS_write}, told);
  EXPECT_EQ(outcome.wait_status, 0) << Output();
  EXPECT_EQ(told.left, 800);
  EXPECT_GT(waits, 0);
}

TEST_F(Tracer, DelaysOneThreadAlone) {
  Told told;
  told.enter = [&](const Call& call) {
    const auto path = PathOfDescriptor(call.thread, static_cast<int>(call.arguments[0]));
    return path->ends_with("/slow") ? Decision::Delay(milliseconds(300)) : Decision::GoOn();
  };
  const auto begin = steady_clock::now();
  const Outcome outcome = Traced({"sh", "-c",
                                  "echo 1 > slow & for i in 1 2 3 4 5; do echo $i > fast; done\n"
                                  "test -s slow && exit 9; wait; test -s slow"},
                                 {SYS_write}, told);
  EXPECT_EQ(outcome.wait_status, 0);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(300));
}

TEST_F(Tracer, KillsTheTreeAtTheDeadline) {
  Told told;
  const auto begin = steady_clock::now();
  const Outcome outcome =
      Traced({"sh", "-c", "sleep 60 & sleep 60"}, {SYS_write}, told, milliseconds(300));
  EXPECT_FALSE(outcome.in_time);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(5000));
  EXPECT_EQ(told.ended.size(), 3u);
  for (const auto& [process, status] : told.ended) {
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << process;
  }
}

TEST_F(Tracer, EndsWhatOutlivesTheFirst) {
  Told told;
  const auto outcome = RunTraced({.words = {"sh", "-c", "sleep 60 & exit 4"},
                                  .calls = {SYS_write},
                                  .linger = milliseconds(100)},
                                 told);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(WEXITSTATUS(outcome.value().wait_status), 4);
  EXPECT_TRUE(outcome.value().in_time);
  EXPECT_EQ(outcome.value().left_behind, 1);
}

TEST_F(Tracer, PassesSignalsOnAndLetsStoppedProcessesGoOn) {
  Told told;
  const Outcome outcome =
      Traced({"python3", "-c",
              "import os, signal, time\n"
              "pid = os.fork()\n"
              "if pid == 0:\n"
              "  signal.signal(signal.SIGUSR1, lambda *a: os._exit(42))\n"
              "  os.write(1, b'ready')\n"
              "  while True: time.sleep(1)\n"
              "while os.fstat(1).st_size < 5: time.sleep(0.01)\n"
              "os.kill(pid, signal.SIGSTOP)\n"
              "_, how = os.waitpid(pid, os.WUNTRACED)\n"
              "assert os.WIFSTOPPED(how) and os.WSTOPSIG(how) == signal.SIGSTOP\n"
              "os.kill(pid, signal.SIGUSR1)\n"
              "time.sleep(0.1)\n"
              "assert os.waitpid(pid, os.WNOHANG) == (0, 0)\n"
              "os.kill(pid, signal.SIGCONT)\n"
              "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42\n"},
             {SYS_write}, told);
  EXPECT_EQ(outcome.wait_status, 0) << Output();
}

TEST_F(Tracer, LeavesOtherChildrenOfThisProcessAlone) {
  const pid_t other = ::fork();
  if (other == 0) ::_exit(9);
  Told told;
  EXPECT_EQ(Traced({"true"}, {SYS_write}, told).wait_status, 0);
  int status = 0;
  EXPECT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(WEXITSTATUS(status), 9);
}

TEST_F(Tracer, GivesTheProgramItsEnvironmentAndEmptyInput) {
  Told told;
  const auto outcome = RunTraced({.words = {"sh", "-c", "printf '%s %s' \"$HOME\" \"$GIVEN\"; cat"},
                                  .calls = {SYS_fsync},
                                  .environment = {"HOME=/other", "GIVEN=a b"},
                                  .out = output_},
                                 told);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(Output(), "/other a b");
}

}  // namespace
}  // namespace shardproof::trace
