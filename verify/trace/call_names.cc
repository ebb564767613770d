#include "verify/trace/call_names.h"

#include <fmt/format.h>

#include <map>

#include "verify/trace/calls_of_x86.h"

namespace shardproof::trace {
namespace {

const std::map<long, const char*>& Names() {
#define SP_CALL(name) \
  { SYS_##name, #name }
  static const std::map<long, const char*> names = {
      SP_CALL(chdir),          SP_CALL(chroot),
      SP_CALL(close),          SP_CALL(close_range),
      SP_CALL(connect),        SP_CALL(copy_file_range),
      SP_CALL(creat),          SP_CALL(dup),
      SP_CALL(dup2),           SP_CALL(dup3),
      SP_CALL(execve),         SP_CALL(execveat),
      SP_CALL(exit_group),     SP_CALL(fallocate),
      SP_CALL(fchdir),         SP_CALL(fcntl),
      SP_CALL(fdatasync),      SP_CALL(fsync),
      SP_CALL(ftruncate),      SP_CALL(io_submit),
      SP_CALL(io_setup),       SP_CALL(setns),
      SP_CALL(syncfs),         SP_CALL(io_uring_enter),
      SP_CALL(io_uring_setup), SP_CALL(ioctl),
      SP_CALL(link),           SP_CALL(linkat),
      SP_CALL(lseek),          SP_CALL(mkdir),
      SP_CALL(mkdirat),        SP_CALL(mknod),
      SP_CALL(mknodat),        SP_CALL(mmap),
      SP_CALL(mount),          SP_CALL(mprotect),
      SP_CALL(mremap),         SP_CALL(msync),
      SP_CALL(munmap),         SP_CALL(open),
      SP_CALL(openat),         SP_CALL(openat2),
      SP_CALL(pivot_root),     SP_CALL(pread64),
      SP_CALL(preadv),         SP_CALL(preadv2),
      SP_CALL(pwrite64),       SP_CALL(pwritev),
      SP_CALL(pwritev2),       SP_CALL(read),
      SP_CALL(readv),          SP_CALL(recvmsg),
      SP_CALL(rename),         SP_CALL(renameat),
      SP_CALL(renameat2),      SP_CALL(rmdir),
      SP_CALL(sendfile),       SP_CALL(sendmsg),
      SP_CALL(splice),         SP_CALL(statfs),
      SP_CALL(symlink),        SP_CALL(symlinkat),
      SP_CALL(sync),           SP_CALL(sync_file_range),
      SP_CALL(syncfs),         SP_CALL(tee),
      SP_CALL(truncate),       SP_CALL(umount2),
      SP_CALL(unlink),         SP_CALL(unlinkat),
      SP_CALL(unshare),        SP_CALL(vmsplice),
      SP_CALL(write),          SP_CALL(writev),
  };
#undef SP_CALL
  return names;
}

}  // namespace

std::string NameOf(long call) {
  const auto found = Names().find(call);
  return found == Names().end() ? fmt::format("call {}", call) : found->second;
}

}  // namespace shardproof::trace
