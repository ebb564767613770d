#include "verify/trace/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "verify/trace/filter.h"

extern char** environ;

namespace shardproof::trace {
namespace {

enum class Step : int { kDirectory, kFilter, kProgram };

struct Failure {
  Step step;
  int error_number;
};

/// Made before the fork, since nothing may be allocated between that and exec.
struct Prepared {
  std::vector<char*> words;
  std::vector<char*> environment;
  std::vector<sock_filter> filter;
};

Prepared Prepare(const Options& options) {
  Prepared prepared;
  for (const std::string& word : options.words) {
    prepared.words.push_back(const_cast<char*>(word.c_str()));
  }
  prepared.words.push_back(nullptr);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view theirs(*variable);
    bool is_replaced = false;
    for (const std::string& ours : options.environment) {
      is_replaced = is_replaced || theirs.starts_with(ours.substr(0, ours.find('=') + 1));
    }
    if (!is_replaced) prepared.environment.push_back(*variable);
  }
  for (const std::string& ours : options.environment) {
    prepared.environment.push_back(const_cast<char*>(ours.c_str()));
  }
  prepared.environment.push_back(nullptr);
  prepared.filter = FilterFor(options.calls);
  return prepared;
}

void Use(int descriptor, int as) {
  if (descriptor >= 0 && descriptor != as) ::dup2(descriptor, as);
}

[[noreturn]] void BeProgram(const Options& options, const Prepared& prepared, int go, int why) {
  char begin = 0;
  while (::read(go, &begin, 1) < 0 && errno == EINTR) {
  }
  const int nothing = options.in < 0 ? ::open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
  Use(options.in < 0 ? nothing : options.in, STDIN_FILENO);
  Use(options.out, STDOUT_FILENO);
  Use(options.err, STDERR_FILENO);
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  Failure failure{Step::kDirectory, 0};
  const auto give_up = [&](int error_number) {
    failure.error_number = error_number;
    (void)!::write(why, &failure, sizeof failure);
    ::_exit(127);
  };
  if (!options.directory.empty() && ::chdir(options.directory.c_str()) != 0) give_up(errno);
  failure.step = Step::kFilter;
  if (const int error_number = InstallFilter(prepared.filter); error_number != 0) {
    give_up(error_number);
  }
  failure.step = Step::kProgram;
  ::execvpe(prepared.words[0], prepared.words.data(), prepared.environment.data());
  give_up(errno);
  ::_exit(127);
}

}  // namespace

Status Child::Fork() {
  std::array<int, 2> go;
  std::array<int, 2> why;
  if (::pipe2(go.data(), O_CLOEXEC) != 0) return Internal(fmt::format("pipe: {}", strerror(errno)));
  if (::pipe2(why.data(), O_CLOEXEC) != 0) {
    ::close(go[0]);
    ::close(go[1]);
    return Internal(fmt::format("pipe: {}", strerror(errno)));
  }
  const Prepared prepared = Prepare(options_);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(go[1]);
    BeProgram(options_, prepared, go[0], why[1]);
  }
  const int error_number = errno;
  ::close(go[0]);
  ::close(why[1]);
  go_ = go[1];
  why_ = why[0];
  if (pid_ < 0) return Internal(fmt::format("forking a process: {}", strerror(error_number)));
  return Ok();
}

Child::~Child() {
  if (go_ >= 0) ::close(go_);
  if (why_ >= 0) ::close(why_);
}

void Child::Go() { (void)!::write(go_, "g", 1); }

Error Child::WhyNot() {
  Failure failure{};
  ssize_t got = 0;
  while ((got = ::read(why_, &failure, sizeof failure)) < 0 && errno == EINTR) {
  }
  const std::string& program = options_.words[0];
  if (got != sizeof failure) return Internal(fmt::format("starting {}: it was killed", program));
  const char* reason = std::strerror(failure.error_number);
  switch (failure.step) {
    case Step::kDirectory:
      return BadInput(fmt::format("{}: {}", options_.directory, reason));
    case Step::kFilter:
      return Unsupported(fmt::format("seccomp filters: not permitted here: {}", reason));
    case Step::kProgram:
      break;
  }
  return BadInput(fmt::format("starting {}: {}", program, reason));
}

pid_t ForkClock(std::chrono::milliseconds delay) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // What waits for the end of a pipe does not wait for this. (glibc names it from 2.34 on.)
  ::syscall(SYS_close_range, 0, ~0U, 0);
  const auto count = delay.count();
  timespec left{static_cast<time_t>(count / 1000), static_cast<long>(count % 1000 * 1000000)};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
  ::_exit(0);
}

}  // namespace shardproof::trace
