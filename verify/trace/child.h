// The processes that a tracer forks: the program that it is to run, and clocks, whose end wakes it.
// Internal to the folder.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "src/core/result.h"
#include "verify/trace/tracer.h"

namespace shardproof::trace {

/// The program, not begun: it waits until it is told to.
class Child {
 public:
  explicit Child(const Options& options) : options_(options) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  /// Forks it. \error kInternal if there can be no process.
  Status Fork();
  pid_t pid() const { return pid_; }
  /// Lets it go, to be called once it is traced.
  void Go();
  /// Once it has ended without becoming the program: why. \error kBadInput, kUnsupported.
  Error WhyNot();

 private:
  const Options& options_;
  pid_t pid_ = -1;
  int go_ = -1;   ///< written to: begin
  int why_ = -1;  ///< read from: what failed, closed by exec
};

/// A child of this thread that ends after `delay`; it goes with the thread. -1 if there can be
/// none.
pid_t ForkClock(std::chrono::milliseconds delay);

}  // namespace shardproof::trace
