#include "verify/trace/tree.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "verify/trace/filter.h"
#include "verify/trace/registers.h"

namespace shardproof::trace {
namespace {

constexpr int kOptions = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                         PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD |
                         PTRACE_O_EXITKILL;
constexpr int kAfterCall = SIGTRAP | 0x80;

/// A number of /proc/THREAD/status; -1 if the thread is gone.
pid_t FromStatus(pid_t thread, const std::string& field) {
  std::ifstream status(fmt::format("/proc/{}/status", thread));
  std::string word;
  for (pid_t value = -1; status >> word;) {
    if (word == field + ":" && status >> value) return value;
  }
  return -1;
}

bool IsGroupStop(int signal) {
  return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

}  // namespace

Result<Outcome> Tree::Run() {
  SP_TRY(Start());
  while (true) {
    if (threads_.empty()) {
      // What is left are clocks, and what was forked by one that was killed as it did so.
      if (deadline_ > 0) ::kill(deadline_, SIGKILL);
      if (linger_ > 0) ::kill(linger_, SIGKILL);
      for (const auto& [clock, thread] : delayed_) ::kill(clock, SIGKILL);
    }
    int wait_status = 0;
    const pid_t thread = wait_(&wait_status);
    if (thread < 0 && errno == EINTR) continue;
    if (thread < 0) break;
    Handle(thread, wait_status);
  }
  if (error_) return *error_;
  if (!is_program_ && outcome_.in_time) return child_.WhyNot();
  return outcome_;
}

pid_t Tree::WaitForAny(int* wait_status) {
  return ::waitpid(-1, wait_status, __WALL | __WNOTHREAD);
}

Status Tree::Start() {
  SP_TRY(child_.Fork());
  if (::ptrace(PTRACE_SEIZE, child_.pid(), 0, kOptions) != 0) {
    const int error_number = errno;
    ::kill(child_.pid(), SIGKILL);
    ::waitpid(child_.pid(), nullptr, 0);
    return Unsupported(fmt::format("tracing: not permitted here: {}", strerror(error_number)));
  }
  threads_[child_.pid()].process = child_.pid();
  processes_.insert(child_.pid());
  deadline_ = ForkClock(options_.deadline);
  child_.Go();
  if (deadline_ < 0) {
    error_ = Internal(fmt::format("forking a clock: {}", strerror(errno)));
    KillAll();
  }
  return Ok();
}

void Tree::Handle(pid_t thread, int wait_status) {
  const bool is_clock = thread == deadline_ || thread == linger_ || delayed_.contains(thread);
  if (is_clock) {
    ClockRang(thread);
  } else if (WIFSTOPPED(wait_status)) {
    MeetItself(thread);
    HandleStop(thread, wait_status);
  } else {
    HandleEnd(thread, wait_status);
  }
}

void Tree::ClockRang(pid_t clock) {
  const bool is_over = threads_.empty();  // killed, since nobody is left
  if (clock == deadline_) {
    deadline_ = -1;
    if (is_over) return;
    outcome_.in_time = false;
    KillAll();
  } else if (clock == linger_) {
    linger_ = -1;
    if (is_over) return;
    outcome_.left_behind = static_cast<int64_t>(processes_.size());
    KillAll();
  } else {
    const pid_t thread = delayed_.at(clock);
    delayed_.erase(clock);
    const auto found = threads_.find(thread);
    if (found != threads_.end() && found->second.call) LetGo(thread, found->second);
  }
}

void Tree::HandleStop(pid_t thread, int wait_status) {
  if (is_ending_) ::kill(threads_.at(thread).process, SIGKILL);
  const int signal = WSTOPSIG(wait_status);
  unsigned long message = 0;
  switch (wait_status >> 16) {
    case PTRACE_EVENT_CLONE:
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
      if (::ptrace(PTRACE_GETEVENTMSG, thread, 0, &message) == 0) {
        MeetByParent(static_cast<pid_t>(message), threads_.at(thread).process);
      }
      return Resume(thread);
    case PTRACE_EVENT_EXEC:
      return HandleExec(thread);
    case PTRACE_EVENT_SECCOMP:
      return HandleCall(thread);
    case PTRACE_EVENT_STOP:
      if (!IsGroupStop(signal)) return Resume(thread);
      // It stays stopped, and a SIGCONT is seen.
      ::ptrace(PTRACE_LISTEN, thread, 0, 0);
      return;
    default:
      break;
  }
  if (signal == kAfterCall) return HandleLeave(thread);
  Resume(thread, signal == SIGTRAP && (wait_status >> 16) != 0 ? 0 : signal);
}

void Tree::MeetItself(pid_t thread) {
  if (threads_.contains(thread)) return;
  before_parent_.insert(thread);
  Meet(thread, FromStatus(thread, "PPid"));
}

void Tree::MeetByParent(pid_t thread, pid_t parent_process) {
  // One that has been seen may have ended since, and then nothing more is heard of it.
  if (before_parent_.erase(thread) == 0) Meet(thread, parent_process);
}

void Tree::Meet(pid_t thread, pid_t parent_process) {
  const pid_t process = FromStatus(thread, "Tgid");
  if (process < 0) return void(threads_[thread].process = thread);  // ended already; is reaped
  threads_[thread].process = process;
  processes_.insert(process);
  const bool is_thread = process != thread;
  listener_.Forked(is_thread ? process : parent_process, thread, is_thread);
  if (is_ending_) ::kill(process, SIGKILL);
}

void Tree::HandleExec(pid_t process) {
  // Whichever thread did it goes on as the first; the others are gone, and nobody says so.
  unsigned long former = 0;
  ::ptrace(PTRACE_GETEVENTMSG, process, 0, &former);
  const auto by = threads_.find(static_cast<pid_t>(former));
  Thread state{.process = process};
  if (by != threads_.end()) state.call = by->second.call;
  for (auto thread = threads_.begin(); thread != threads_.end();) {
    if (thread->second.process != process || thread->first == process) {
      ++thread;
      continue;
    }
    listener_.Gone(thread->first);
    std::erase(waiting_, thread->first);
    thread = threads_.erase(thread);
  }
  threads_[process] = state;
  std::erase(waiting_, process);
  if (process == child_.pid()) is_program_ = true;
  listener_.Executed(process);
  Resume(process);
  AskThoseWhoWait();
}

void Tree::HandleCall(pid_t thread) {
  auto stop = ReadCall(thread);
  Thread& state = threads_.at(thread);
  if (!stop || !is_program_) return Resume(thread);  // gone, or still a fork of this process
  if (stop->why == kForeign) {
    if (!error_) {
      error_ = Unsupported(fmt::format(
          "process {}: expected system calls of x86-64, found one of another architecture",
          state.process));
    }
    return KillAll();
  }
  stop->call.process = state.process;
  state.call = stop->call;
  Ask(thread, state);
}

void Tree::Ask(pid_t thread, Thread& state) {
  state.decision = listener_.Enter(*state.call);
  switch (state.decision.kind) {
    case Decision::Kind::kWait:
      waiting_.push_back(thread);
      return;
    case Decision::Kind::kKill:
      ::kill(state.process, SIGKILL);
      return;
    case Decision::Kind::kKillAll:
      return KillAll();
    case Decision::Kind::kGoOn:
    case Decision::Kind::kAnswer:
      break;
  }
  if (state.decision.delay.count() > 0) {
    const pid_t clock = ForkClock(state.decision.delay);
    if (clock > 0) {
      delayed_[clock] = thread;
      return;
    }
  }
  LetGo(thread, state);
}

void Tree::LetGo(pid_t thread, Thread& state) {
  const Decision& decision = state.decision;
  if (decision.kind == Decision::Kind::kAnswer) {
    SkipCall(thread, decision.answer);
    state.call.reset();
  } else {
    if (decision.replace) SetArgument(thread, *decision.replace);
    if (!decision.leave && !decision.replace && !decision.result) state.call.reset();
  }
  Resume(thread);
}

void Tree::HandleLeave(pid_t thread) {
  Thread& state = threads_.at(thread);
  const auto result = ReadResult(thread);
  if (!state.call || !result) return Resume(thread);
  Call call = *state.call;
  state.call.reset();
  call.result = *result;
  // A program may count on the registers of its arguments being as they were.
  if (const auto& replaced = state.decision.replace) {
    SetArgument(thread, {replaced->index, call.arguments.at(static_cast<size_t>(replaced->index))});
  }
  if (state.decision.result) SetResult(thread, *state.decision.result);
  if (state.decision.leave) listener_.Leave(call);
  Resume(thread);
  AskThoseWhoWait();
}

void Tree::AskThoseWhoWait() {
  for (std::deque<pid_t> now = std::exchange(waiting_, {}); !now.empty(); now.pop_front()) {
    const auto found = threads_.find(now.front());
    if (found != threads_.end() && found->second.call) Ask(now.front(), found->second);
  }
}

void Tree::HandleEnd(pid_t thread, int wait_status) {
  const auto found = threads_.find(thread);
  if (found == threads_.end()) return void(before_parent_.insert(thread));
  const pid_t process = found->second.process;
  threads_.erase(found);
  std::erase(waiting_, thread);
  listener_.Gone(thread);
  if (thread == process) {
    processes_.erase(process);
    listener_.Ended(process, wait_status);
  }
  if (process == child_.pid() && thread == process) {
    first_ended_ = true;
    outcome_.wait_status = wait_status;
    if (!threads_.empty() && !is_ending_) linger_ = ForkClock(options_.linger);
  }
  AskThoseWhoWait();
}

void Tree::Resume(pid_t thread, int signal) {
  const bool stops_after = threads_.at(thread).call.has_value();
  ::ptrace(stops_after ? PTRACE_SYSCALL : PTRACE_CONT, thread, 0, signal);
}

void Tree::KillAll() {
  is_ending_ = true;
  for (const pid_t process : processes_) ::kill(process, SIGKILL);
}

}  // namespace shardproof::trace
