// Another program that is told lines and answers each with a line.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

/// Ends when this does, if it ends with its stdin.
class LineProgram {
 public:
  /// Starts `words[0]`, looked up in PATH; its stderr goes nowhere. \error kBadInput if it cannot
  /// be.
  static Result<LineProgram> Start(const std::vector<std::string>& words);
  LineProgram(LineProgram&& other) noexcept { *this = std::move(other); }
  LineProgram& operator=(LineProgram&& other) noexcept;
  /// Ends its stdin, and it if that does not do so within two seconds: it may have children to end.
  ~LineProgram();

  /// \error kFailed if it is gone.
  Status Tell(const std::string& line);
  /// The next line, without its end. \error kFailed if it is gone, or says nothing in time.
  Result<std::string> Hear(std::chrono::milliseconds patience);
  /// Fills `bytes` with what follows the line that was heard. \error likewise
  Status HearBytes(std::string& bytes, std::chrono::milliseconds patience);

 private:
  LineProgram() = default;
  /// Waits for more to come. \error as Hear
  Status HearMore(std::chrono::steady_clock::time_point deadline,
                  std::chrono::milliseconds patience);

  std::string name_;
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string heard_;
};

}  // namespace shardproof
