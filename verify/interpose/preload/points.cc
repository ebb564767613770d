#include "verify/interpose/preload/points.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "verify/interpose/preload/decide.h"
#include "verify/interpose/preload/log.h"

namespace shardproof::interpose {
namespace {

constexpr const char* kPreload = "fiu_posix_preload.so";

// As fiu-control.h has them. libfiu is not linked: whoever has rules for CUDA alone does not need
// it to be installed where the program runs, and the preload brings it.
using Ask = int(const char* name, int* failnum, void** failinfo, unsigned int* flags);
using Initialise = int(unsigned int flags);
using EnableExternal = int(const char* name, int failnum, void* failinfo, unsigned int flags,
                           Ask* ask);

int AskRules(const char* name, int*, void** failinfo, unsigned int*) {
  const int error = DecidePoint(name);
  if (error == 0) return 0;
  *failinfo = reinterpret_cast<void*>(static_cast<intptr_t>(error));
  return 1;
}

struct Search {
  const char* point;
  bool is_there = false;
  bool has_point = false;
};

/// Whether the preload's own text has the name, as a whole.
int Look(dl_phdr_info* object, size_t, void* argument) {
  Search& search = *static_cast<Search*>(argument);
  if (::strstr(object->dlpi_name, kPreload) == nullptr) return 0;
  search.is_there = true;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) != 0) continue;
    const char* begin = reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr);
    const void* name = ::memmem(begin, part.p_memsz, search.point, ::strlen(search.point) + 1);
    const bool is_whole =
        name != nullptr && (name == begin || static_cast<const char*>(name)[-1] == 0);
    search.has_point = search.has_point || is_whole;
  }
  return 1;
}

}  // namespace

void EnablePoint(const Rule& rule) {
  Search search{rule.point.c_str()};
  ::dl_iterate_phdr(Look, &search);
  if (!search.is_there) {
    Refuse(
        "rule %.200s: libfiu's POSIX preload is not loaded: expected %s in LD_PRELOAD beside "
        "this library (Debian package libfiu0, /usr/lib/fiu)",
        rule.text.c_str(), kPreload);
  }
  if (!search.has_point) {
    Refuse("rule %.200s: %s has no point of this name (fiu-ls, or posix.html of libfiu-dev)",
           rule.text.c_str(), kPreload);
  }
  auto* initialise = reinterpret_cast<Initialise*>(::dlsym(RTLD_DEFAULT, "fiu_init"));
  auto* enable = reinterpret_cast<EnableExternal*>(::dlsym(RTLD_DEFAULT, "fiu_enable_external"));
  if (initialise == nullptr || enable == nullptr || initialise(0) != 0 ||
      enable(rule.point.c_str(), 1, nullptr, 0, AskRules) != 0) {
    Refuse("rule %.200s: libfiu cannot enable the point", rule.text.c_str());
  }
}

}  // namespace shardproof::interpose
