// The processes and threads that are traced, and what is done at each of their stops. Internal to
// the folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/core/result.h"
#include "verify/trace/child.h"
#include "verify/trace/tracer.h"

namespace shardproof::trace {

class Tree {
 public:
  /// The next stop or end of any of them, as waitpid gives it. They come in no order across
  /// threads.
  using Wait = std::function<pid_t(int* wait_status)>;

  Tree(const Options& options, Listener& listener, Wait wait = WaitForAny)
      : options_(options), listener_(listener), wait_(std::move(wait)), child_(options) {}

  Result<Outcome> Run();
  static pid_t WaitForAny(int* wait_status);

 private:
  struct Thread {
    pid_t process = 0;
    std::optional<Call> call;  ///< that it is stopped in, or that Leave is called for
    Decision decision;         ///< on that
  };

  Status Start();
  void Handle(pid_t thread, int wait_status);
  void HandleStop(pid_t thread, int wait_status);
  void ClockRang(pid_t clock);

  /// A thread has stopped. It is known from now on, if it was not.
  void MeetItself(pid_t thread);
  /// The call that made a thread has been told of.
  void MeetByParent(pid_t thread, pid_t parent_process);
  void Meet(pid_t thread, pid_t parent_process);
  void HandleExec(pid_t process);
  void HandleCall(pid_t thread);
  void HandleLeave(pid_t thread);
  void HandleEnd(pid_t thread, int wait_status);

  void Ask(pid_t thread, Thread& state);
  /// As was decided on its call.
  void LetGo(pid_t thread, Thread& state);
  void AskThoseWhoWait();
  void Resume(pid_t thread, int signal = 0);
  void KillAll();

  const Options& options_;
  Listener& listener_;
  Wait wait_;
  Child child_;
  Outcome outcome_;
  std::optional<Error> error_;
  std::map<pid_t, Thread> threads_;
  std::set<pid_t> processes_;
  std::set<pid_t> before_parent_;   ///< seen, even to their end, before MeetByParent
  std::deque<pid_t> waiting_;       ///< of whom Enter said kWait
  std::map<pid_t, pid_t> delayed_;  ///< clock, and the thread that goes on when it rings
  pid_t deadline_ = -1;             ///< clock
  pid_t linger_ = -1;               ///< clock
  bool is_program_ = false;         ///< exec has succeeded
  bool first_ended_ = false;
  bool is_ending_ = false;  ///< all are to be killed, those too that are not known yet
};

}  // namespace shardproof::trace
