#include <sys/mman.h>
#include <unistd.h>

#include "src/load/load.h"

namespace shardproof {

// Below this a system call costs more than it saves.
constexpr size_t kCommitBytesMin = 256 << 10;

void CommitPages(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.nbytes() < kCommitBytesMin) return;
  const uintptr_t page = ::sysconf(_SC_PAGESIZE);
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t first = address / page * page;
  // A kernel that refuses leaves them to the copy.
  (void)::madvise(reinterpret_cast<void*>(first), address + tensor.nbytes() - first,
                  MADV_POPULATE_WRITE);
}

}  // namespace shardproof
