#include "verify/interpose/preload/real.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "verify/interpose/preload/log.h"

namespace shardproof::interpose {

std::atomic<void*> found[kFunctions];

namespace {

constexpr const char* kLibraries[] = {"libcudart.so", "libcuda.so", "libnccl.so"};
constexpr int kMissing[] = {302 /* cudaErrorSharedObjectSymbolNotFound */,
                            500 /* CUDA_ERROR_NOT_FOUND */, 2 /* ncclSystemError */};
constexpr size_t kPathBytes = 1024;

/// Of the loaded objects with this name, the first; and how many there are.
struct Search {
  const char* library;
  char path[kPathBytes] = "";
  int count = 0;
};

int Look(dl_phdr_info* object, size_t, void* argument) {
  Search& search = *static_cast<Search*>(argument);
  const char* slash = ::strrchr(object->dlpi_name, '/');
  const char* name = slash == nullptr ? object->dlpi_name : slash + 1;
  if (::strncmp(name, search.library, ::strlen(search.library)) != 0) return 0;
  if (++search.count == 1) ::strncpy(search.path, object->dlpi_name, kPathBytes - 1);
  return 0;
}

/// In a library that dlopen has brought without RTLD_GLOBAL, as Python does with its extensions and
/// all that these need. The handle is kept: what was found stays where it is.
void* FindInLoaded(Family family, const char* name) {
  Search search{kLibraries[static_cast<int>(family)]};
  ::dl_iterate_phdr(Look, &search);
  if (search.count == 0) return nullptr;
  static std::atomic<bool> told{false};
  if (search.count > 1 && !told.exchange(true)) {
    Tell("the program has loaded %d libraries named %s*; calls go to %s", search.count,
         search.library, search.path);
  }
  void* library = ::dlopen(search.path, RTLD_NOLOAD | RTLD_LAZY);
  return library == nullptr ? nullptr : ::dlsym(library, name);
}

}  // namespace

void* Find(Family family, const char* name) {
  void* next = ::dlsym(RTLD_NEXT, name);
  return next != nullptr ? next : FindInLoaded(family, name);
}

int Missing(Function function) {
  const FunctionInfo& info = InfoOf(function);
  const int family = static_cast<int>(info.family);
  static std::atomic<bool> told[3];
  if (!told[family].exchange(true)) {
    Tell("%s was called, and the program has loaded no %s that has it: it returns %d", info.name,
         kLibraries[family], kMissing[family]);
  }
  return kMissing[family];
}

}  // namespace shardproof::interpose
