#include "verify/trace/filter.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace shardproof::trace {
namespace {

constexpr uint32_t kX32Bit = 0x40000000;

sock_filter Load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
sock_filter Return(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
/// The next statement is done if it holds, else the one behind that.
sock_filter If(uint16_t how, uint32_t value) {
  return BPF_JUMP(static_cast<uint16_t>(BPF_JMP | how | BPF_K), value, 0, 1);
}

}  // namespace

std::vector<sock_filter> FilterFor(const std::vector<long>& calls) {
  const uint32_t foreign = SECCOMP_RET_TRACE | kForeign;
  std::vector<sock_filter> filter = {
      Load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      Return(foreign),
      Load(offsetof(seccomp_data, nr)),
      If(BPF_JGE, kX32Bit),
      Return(foreign),
  };
  for (const long call : calls) {
    filter.push_back(If(BPF_JEQ, static_cast<uint32_t>(call)));
    filter.push_back(Return(SECCOMP_RET_TRACE | kAskedFor));
  }
  filter.push_back(Return(SECCOMP_RET_ALLOW));
  return filter;
}

int InstallFilter(const std::vector<sock_filter>& filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()),
                           const_cast<sock_filter*>(filter.data())};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) return errno;
  return 0;
}

}  // namespace shardproof::trace
