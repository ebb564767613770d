#include "verify/trace/tracer.h"

#include <thread>

#include "verify/trace/tree.h"

namespace shardproof::trace {

Result<Outcome> RunTraced(const Options& options, Listener& listener) {
#ifdef __x86_64__
  if (options.words.empty() || options.words[0].empty()) {
    return BadInput("expected a program to run, found none");
  }
  Result<Outcome> outcome = Internal("nothing ran");
  // What this thread forks it alone waits for; and what it traces ends with it.
  std::thread([&] { outcome = Tree(options, listener).Run(); }).join();
  return outcome;
#else
  return Unsupported("system calls are traced only on x86-64");
#endif
}

}  // namespace shardproof::trace
