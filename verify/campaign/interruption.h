// SIGTERM and SIGINT as a wish to end, not an end.
#pragma once

#include <signal.h>

namespace shardproof {

/// For the time that it exists, both signals are noted instead of ending the process.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  /// Whether one came, ever: whoever asked for the end of one thing does not want the next to
  /// begin.
  static bool WasSeen();

 private:
  struct sigaction old_term_ {};
  struct sigaction old_int_ {};
};

}  // namespace shardproof
