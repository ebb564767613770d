// The processes and threads that are traced, and what is done at each of their stops. Internal to
// the folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "src/core/result.h"
#include "verify/trace/child.h"
#include "verify/trace/tracer.h"

namespace shardproof::trace {

class Tree {
 public:
  Tree(const Options& options, Listener& listener)
      : options_(options), listener_(listener), child_(options) {}

  Result<Outcome> Run();

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

  /// Known from now on, if it was not.
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
  Child child_;
  Outcome outcome_;
  std::optional<Error> error_;
  std::map<pid_t, Thread> threads_;
  std::set<pid_t> processes_;
  std::deque<pid_t> waiting_;       ///< of whom Enter said kWait
  std::map<pid_t, pid_t> delayed_;  ///< clock, and the thread that goes on when it rings
  pid_t deadline_ = -1;             ///< clock
  pid_t linger_ = -1;               ///< clock
  bool is_program_ = false;         ///< exec has succeeded
  bool first_ended_ = false;
  bool is_ending_ = false;  ///< all are to be killed, those too that are not known yet
};

}  // namespace shardproof::trace
