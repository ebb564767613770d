// CUDA's functions, of the runtime and the driver, as the program sees them.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <string.h>

#include "verify/interpose/preload/pass.h"

#define SHARDPROOF_EXPORT extern "C" __attribute__((visibility("default")))

namespace interpose = shardproof::interpose;
using interpose::Copied;
using interpose::Sized;

#define SHARDPROOF_PASS(error, name, parameters, arguments, facts) \
  SHARDPROOF_EXPORT error name parameters {                        \
    return interpose::Pass<error parameters>(                      \
        interpose::Function::name, [&] { return facts; },          \
        [&](auto* real) { return real arguments; });               \
  }
#define CUDA_FUNCTION(name, kind, parameters, arguments, facts) \
  SHARDPROOF_PASS(cudaError_t, name, parameters, arguments, facts)
#define DRIVER_FUNCTION(name, kind, parameters, arguments, facts) \
  SHARDPROOF_PASS(CUresult, name, parameters, arguments, facts)
#define NCCL_FUNCTION(...)
#include "verify/interpose/functions.inc"

namespace {

// The rule language's names are the headers' numbers.
#define CUDA_ERROR(name, code) static_assert(static_cast<int>(::name) == (code));
#define NCCL_ERROR(...)
#include "verify/interpose/errors.inc"

/// Functions of the driver are asked for by name; what rules are about is answered with this
/// library's own.
void Replace(const char* symbol, void** function) {
  if (symbol == nullptr || function == nullptr || *function == nullptr) return;
#define CUDA_FUNCTION(...)
#define DRIVER_FUNCTION(name, ...)                                             \
  if (::strcmp(symbol, #name) == 0 &&                                          \
      interpose::watched[static_cast<int>(interpose::Function::name)]) {       \
    interpose::found[static_cast<int>(interpose::Function::name)] = *function; \
    *function = reinterpret_cast<void*>(&::name);                              \
  }
#define NCCL_FUNCTION(...)
#include "verify/interpose/functions.inc"
}

/// Passed on, and no function of the table: no rule is about it.
template <typename Signature, typename... Arguments>
cudaError_t AskDriver(const char* asked, const char* symbol, void** function,
                      Arguments... arguments) {
  auto* real = interpose::Named<Signature>(interpose::Family::kCuda, asked);
  if (real == nullptr) return cudaErrorSharedObjectSymbolNotFound;
  const cudaError_t error = real(symbol, function, arguments...);
  if (error == cudaSuccess) Replace(symbol, function);
  return error;
}

}  // namespace

SHARDPROOF_EXPORT cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function,
                                                      unsigned long long flags,
                                                      cudaDriverEntryPointQueryResult* status) {
  using Signature =
      cudaError_t(const char*, void**, unsigned long long, cudaDriverEntryPointQueryResult*);
  return AskDriver<Signature>("cudaGetDriverEntryPoint", symbol, function, flags, status);
}

#if CUDART_VERSION >= 12050
SHARDPROOF_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned int version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* status) {
  using Signature = cudaError_t(const char*, void**, unsigned int, unsigned long long,
                                cudaDriverEntryPointQueryResult*);
  return AskDriver<Signature>("cudaGetDriverEntryPointByVersion", symbol, function, version, flags,
                              status);
}
#endif
