// A forked child of this process that is told lines and answers each with a line.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

class LineChild {
 public:
  using Answer = std::function<std::string(const std::string& line)>;

  /// None yet.
  LineChild() = default;
  ~LineChild() { End(); }
  LineChild(LineChild&& other) noexcept { *this = std::move(other); }
  LineChild& operator=(LineChild&& other) noexcept;

  /// Forks it; this process must have no threads. It ends when this one does.
  /// \param prepare  called in the child, before the first line. \param answer  called there for
  /// each. \error kInternal if there can be no child.
  Status Fork(const std::function<void()>& prepare, const Answer& answer);

  bool IsThere() const { return pid_ >= 0; }
  pid_t pid() const { return pid_; }      ///< -1 without a child
  int socket() const { return socket_; }  ///< to be polled for reading; -1 without a child
  /// Who is gone does not hear it; Hear says so.
  void Tell(const std::string& line);
  /// Appends the whole lines that have come. \returns false if the child is gone; its end is not
  /// reaped yet.
  bool Hear(std::vector<std::string>& lines);
  /// Ends it, if it has not ended. \returns its wait status; 0 without a child.
  int End();

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string heard_;  ///< of a line that is not whole yet
};

}  // namespace shardproof
