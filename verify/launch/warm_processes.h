// Ranks of a Python subject as forks of one standing Python process that has torch imported.
#pragma once

#include <memory>
#include <string>

#include "verify/launch/rank_processes.h"
#include "verify/launch/subject.h"

namespace shardproof {

/// The standing process (shardproof/_rank/_warm.py). It ends when this object goes.
class WarmPython {
 public:
  /// \error kFailed if it does not come up within a minute, or says that it cannot fork safely.
  static Result<std::unique_ptr<WarmPython>> Start(const PythonOptions& options,
                                                   const std::string& scratch);
  ~WarmPython();
  WarmPython(const WarmPython&) = delete;
  WarmPython& operator=(const WarmPython&) = delete;

  /// Forks the rank that carries out an order. \error kFailed if the process is gone.
  Status Begin(const PhaseRun& run, const std::string& order, int64_t rank);
  /// The wait status of a rank that has ended; all ranks count as killed if the process is gone.
  std::optional<int> Ended(int64_t rank);
  /// Ends a rank and waits until it is gone.
  void End(int64_t rank);
  /// The process of a rank that has begun; -1 if that is not known yet.
  pid_t Pid(int64_t rank) const;

 private:
  WarmPython() = default;
  void Read(std::chrono::milliseconds patience);
  bool Write(const std::string& line);

  pid_t pid_ = -1;
  int orders_ = -1;
  int news_ = -1;
  std::string unread_;
  bool ready_ = false;
  bool gone_ = false;
  std::string refusal_;
  std::map<int64_t, int> ended_;
  std::map<int64_t, pid_t> pids_;
};

}  // namespace shardproof
