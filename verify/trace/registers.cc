#include "verify/trace/registers.h"

#include <sys/ptrace.h>
#include <sys/user.h>

#include <array>
#include <cstddef>

namespace shardproof::trace {
namespace {

#ifdef __x86_64__
constexpr size_t kNumber = offsetof(user_regs_struct, orig_rax);
constexpr size_t kResult = offsetof(user_regs_struct, rax);
constexpr std::array<size_t, 6> kArguments = {
    offsetof(user_regs_struct, rdi), offsetof(user_regs_struct, rsi),
    offsetof(user_regs_struct, rdx), offsetof(user_regs_struct, r10),
    offsetof(user_regs_struct, r8),  offsetof(user_regs_struct, r9)};

void Set(pid_t thread, size_t where, uint64_t value) {
  ::ptrace(PTRACE_POKEUSER, thread, offsetof(struct user, regs) + where, value);
}
#else  // Run refuses
constexpr size_t kNumber = 0;
constexpr size_t kResult = 0;
constexpr std::array<size_t, 6> kArguments{};
void Set(pid_t, size_t, uint64_t) {}
#endif

std::optional<__ptrace_syscall_info> Info(pid_t thread, int at) {
  __ptrace_syscall_info info{};
  if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) < 0) return std::nullopt;
  if (info.op != at) return std::nullopt;
  return info;
}

}  // namespace

std::optional<CallAtStop> ReadCall(pid_t thread) {
  const auto info = Info(thread, PTRACE_SYSCALL_INFO_SECCOMP);
  if (!info) return std::nullopt;
  CallAtStop stop;
  stop.call.thread = thread;
  stop.call.number = static_cast<long>(info->seccomp.nr);
  for (size_t i = 0; i < stop.call.arguments.size(); ++i) {
    stop.call.arguments[i] = info->seccomp.args[i];
  }
  stop.why = info->seccomp.ret_data;
  return stop;
}

std::optional<int64_t> ReadResult(pid_t thread) {
  const auto info = Info(thread, PTRACE_SYSCALL_INFO_EXIT);
  if (!info) return std::nullopt;
  return info->exit.rval;
}

void SetArgument(pid_t thread, const Decision::Argument& argument) {
  Set(thread, kArguments.at(static_cast<size_t>(argument.index)), argument.value);
}

void SetResult(pid_t thread, int64_t result) {
  Set(thread, kResult, static_cast<uint64_t>(result));
}

void SkipCall(pid_t thread, int64_t result) {
  Set(thread, kNumber, static_cast<uint64_t>(-1));
  SetResult(thread, result);
}

}  // namespace shardproof::trace
