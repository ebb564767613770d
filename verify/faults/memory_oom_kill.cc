// The kernel kills a rank for want of memory.
#include <sys/mman.h>

#include <csignal>
#include <cstddef>

#include "src/core/check.h"
#include "verify/confine/memory_cgroup.h"
#include "verify/faults/rank_moment.h"

namespace shardproof::faults::memory_oom_kill {
namespace {

constexpr size_t kLimitBytes = size_t{16} << 20;
constexpr size_t kTouchedBytes = 4 * kLimitBytes;
constexpr size_t kPageBytes = 4096;

/// In a memory cgroup of its own, with a little room, until the kernel has had enough.
void TakeMemory(const FaultSite&) {
  const Status entered = EnterMemoryCgroup(kLimitBytes);
  SP_CHECK(entered.ok(), "%s", entered.ok() ? "" : entered.error().message.c_str());
  void* const pages =
      ::mmap(nullptr, kTouchedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  SP_CHECK(pages != MAP_FAILED, "mmap of %zu bytes", kTouchedBytes);
  auto* bytes = static_cast<volatile char*>(pages);
  for (size_t at = 0; at < kTouchedBytes; at += kPageBytes) bytes[at] = 1;
  SP_CHECK(false, "%zu bytes were touched under a limit of %zu", kTouchedBytes, kLimitBytes);
}

Fault OomKill() {
  Fault fault = RankFault(
      {.id = "memory/oom-kill",
       .what = "a rank takes more memory than its cgroup allows, and the kernel kills it",
       .example = {"1@ready",
                   "rank 1 is killed by the kernel for want of memory when it has reached stage "
                   "`ready`"},
       .model = FaultModel::kMustEndTheRun,
       .becomes = "is killed by the kernel for want of memory",
       .act = TakeMemory,
       .needs = {.process = true, .child = true}});
  fault.cannot = WhyNoMemoryCgroup;
  return fault;
}

const FaultRegistration kRegistration{OomKill()};

}  // namespace
}  // namespace shardproof::faults::memory_oom_kill
