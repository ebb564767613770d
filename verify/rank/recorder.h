// The observer that turns what the pipeline reaches into evidence: descriptors, digests, counts
// and, in a memory run, committed pages. It reads tensors in place and allocates nothing of their
// size.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/seam/observer.h"
#include "verify/case/case.h"
#include "verify/evidence/writer.h"
#include "verify/plan/plan.h"

namespace shardproof {

struct Optimizer;

class Recorder : public Observer {
 public:
  /// \param captures stretches whose bytes are to be recorded.
  Recorder(EvidenceWriter& writer, RunMode mode, std::vector<CaptureRequest> captures)
      : writer_(writer), mode_(mode), captures_(std::move(captures)) {}

  void Enter(Stage stage) override;
  void Reached(Stage stage, int64_t step, const Model& model) override;
  void Keys(const std::vector<std::string>& missing,
            const std::vector<std::string>& unexpected) override;

  /// The first write that failed, if any: the rank must then not be called sound.
  Status status() const { return status_; }
  /// The stage being worked on.
  const std::string& working_on() const { return working_on_; }
  /// Bytes that this rank's tensors take at the last stage observed, each storage once: of the
  /// host's memory, and of a device's.
  uint64_t own_bytes() const { return own_bytes_; }
  uint64_t own_device_bytes() const { return own_device_bytes_; }

 private:
  void Keep(Status status);
  void RecordOptimizer(Stage stage, int64_t step, const Model& model);
  /// What the optimizer holds, by the names of the model's tensors now and at earlier stages.
  OptimizerRecord Holdings(const Optimizer& optimizer, const Model& model) const;

  EvidenceWriter& writer_;
  RunMode mode_;
  std::vector<CaptureRequest> captures_;
  Status status_ = Ok();
  std::string working_on_ = "start";
  uint64_t own_bytes_ = 0;
  uint64_t own_device_bytes_ = 0;
  std::map<int64_t, int64_t> identities_;       ///< of slots, numbered as they were first seen
  std::map<const void*, std::string> earlier_;  ///< names by object, for whoever holds one on
};

}  // namespace shardproof
