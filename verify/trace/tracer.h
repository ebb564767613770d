// Runs somebody else's program, with all processes and threads that come of it, and is told of the
// system calls that were asked for: before each, when it may be let go, changed, refused or made to
// wait, and after it. All other calls run at full speed: a seccomp filter picks those that stop.
// Linux on x86-64. Nothing is gained by a set-user-ID program: PR_SET_NO_NEW_PRIVS is set.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof::trace {

/// A system call of a thread that is stopped in it.
struct Call {
  pid_t thread = 0;
  pid_t process = 0;
  long number = 0;  ///< SYS_write, ...
  std::array<uint64_t, 6> arguments{};
  int64_t result = 0;  ///< in Leave: what it returned, or -errno

  bool failed() const { return result < 0 && result >= -4095; }
};

/// What becomes of a call.
struct Decision {
  enum class Kind {
    kGoOn,
    kAnswer,   ///< it is not done; the caller is given `answer`
    kWait,     ///< the thread stays stopped; Enter is asked again when another call has been left
    kKill,     ///< SIGKILL to the process, and the call is not done
    kKillAll,  ///< likewise to every process of the tree
  };
  struct Argument {
    int index = 0;  ///< [0, 6)
    uint64_t value = 0;
  };

  Kind kind = Kind::kGoOn;
  int64_t answer = 0;               ///< of kAnswer: the result, or -errno
  std::optional<Argument> replace;  ///< of kGoOn: an argument, such as how many bytes are written
  std::optional<int64_t> result;    ///< of kGoOn: what the caller is told, whatever it gave
  std::chrono::milliseconds delay{0};  ///< before kGoOn or kAnswer; only this thread waits
  bool leave = true;  ///< of kGoOn: whether Leave is called; without, it costs half

  static Decision GoOn() { return {}; }
  static Decision Unwatched() { return {.leave = false}; }
  static Decision Fail(int error_number) {
    return {.kind = Kind::kAnswer, .answer = -error_number};
  }
  static Decision Shorten(int argument, uint64_t value) {
    return {.replace = Argument{argument, value}};
  }
  static Decision Delay(std::chrono::milliseconds delay) { return {.delay = delay}; }
  static Decision Wait() { return {.kind = Kind::kWait}; }
  static Decision Kill() { return {.kind = Kind::kKill}; }
  static Decision KillAll() { return {.kind = Kind::kKillAll}; }
};

/// Is told of everything in one thread, that of the tracer, and must not wait for the program.
class Listener {
 public:
  virtual ~Listener() = default;

  /// A call is about to be done. One that a signal interrupts and that is begun again comes twice.
  virtual Decision Enter(const Call& call) = 0;
  /// A call has been done, or has failed: for each Enter that was answered kGoOn with `leave`,
  /// unless the thread is killed in it (Gone).
  virtual void Leave(const Call&) {}
  /// Before the first call of a process or thread.
  virtual void Forked(pid_t /*parent_process*/, pid_t /*thread*/, bool /*is_thread*/) {}
  /// The process has become another program; its other threads are gone.
  virtual void Executed(pid_t /*process*/) {}
  /// A thread has ended, or is gone in a call of its own.
  virtual void Gone(pid_t /*thread*/) {}
  /// A process has ended. \param wait_status  as of waitpid
  virtual void Ended(pid_t /*process*/, int /*wait_status*/) {}
};

struct Options {
  std::vector<std::string> words;             ///< the program, looked up in PATH, and its arguments
  std::vector<long> calls;                    ///< of which the listener is told
  std::string directory;                      ///< to run it in; empty: that of this process
  std::vector<std::string> environment;       ///< "NAME=value", over those of this process
  int in = -1;                                ///< descriptor; -1: nothing is there to be read
  int out = -1;                               ///< descriptor; -1: that of this process
  int err = -1;                               ///< likewise
  std::chrono::milliseconds deadline{60000};  ///< then all of it is killed
  /// When the first process has ended, the others have so long.
  std::chrono::milliseconds linger{5000};
};

struct Outcome {
  int wait_status = 0;      ///< of the first process, as of waitpid
  bool in_time = true;      ///< false: it was killed at the deadline
  int64_t left_behind = 0;  ///< processes that had to be killed after the first had ended
};

/// Runs it to its end; so that no other child of this process is waited for, in a thread of its
/// own. \error kBadInput if the program or directory is not there; kUnsupported if tracing is not
///   permitted here, or a process makes system calls of another architecture.
Result<Outcome> RunTraced(const Options& options, Listener& listener);

}  // namespace shardproof::trace
