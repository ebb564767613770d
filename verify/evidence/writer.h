// Writes one rank's evidence while the rank runs: facts, which two runs of one seed must write byte
// for byte alike, and measures, which differ from run to run. FORMAT.md is the specification.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/evidence/evidence.h"
#include "verify/evidence/line_file.h"

namespace shardproof {

/// What the first record of a rank says.
struct RankHeader {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::vector<AxisCase> mesh;
  std::vector<int64_t> coordinates;  ///< one per axis
  std::string subject;
  RunMode mode = RunMode::kValues;
  std::string strategy;
  uint64_t seed = 0;
};

/// Every method's error is kBadInput (exit code 2) naming the file if the line could not be
/// written, or kInternal if the calls are out of order. Collective, Fault, Error and all measures
/// may be called from any thread; the rest from one.
class EvidenceWriter {
 public:
  /// Makes the directory if need be, and the rank's two files in it, which must not exist.
  static Result<std::unique_ptr<EvidenceWriter>> Create(const std::string& directory, int64_t rank);

  Status Rank(const RankHeader& header);

  /// The id to put into TensorState::descriptor; equal descriptors (but for `id`) get one id. The
  /// descriptor is written when a state first refers to it.
  int64_t Describe(TensorDescriptor descriptor);

  /// A stage as it is observed: every name that exists goes through State once. What did not change
  /// since the name's last state is not written again; names not seen again are written as gone.
  /// \param of  "model" or "optimizer": what did not change is told for each by itself.
  Status BeginStage(const std::string& name, int64_t step, const std::string& of = "model");
  Status State(const std::string& name, const TensorState& state);
  /// Within a stage: what an optimizer holds, and the digest of a random number generator's state.
  Status Optimizer(const OptimizerRecord& record);
  Status Steps(const StepsRecord& record);
  Status Rng(const std::string& digest);
  Status EndStage();
  /// The first three for a stage that is already collected.
  Status Stage(const StageRecord& stage);

  Status Collective(const CollectiveRecord& record);
  /// To be called before the fault acts, so that a fault that kills the rank is on record.
  Status Fault(const FaultRecord& record);
  Status Error(const ErrorRecord& record);
  Status Keys(const KeyReport& record);
  /// The last record: what follows it is refused.
  Status End();

  Status Process(int64_t process_id, const std::string& host);
  /// What the rank has not given back, a line each; none, if it looked and found nothing.
  Status Leaks(const std::vector<std::string>& what);
  /// A sample without a stage gets the one last told to SetStage.
  Status Memory(const MemorySample& sample);
  Status MemorySummary(const MemoryRecord& record);  ///< all but the samples
  Status Pages(const std::string& stage, int64_t step, const std::string& name,
               uint64_t storage_bytes, uint64_t committed_bytes);
  /// The stage being worked on from now on; BeginStage does not tell, since observing a stage comes
  /// after the work that reached it.
  void SetStage(const std::string& name);

 private:
  EvidenceWriter(std::unique_ptr<LineFile> facts, std::unique_ptr<LineFile> measures)
      : facts_(std::move(facts)), measures_(std::move(measures)) {}

  Status WriteDescriptor(int64_t id);

  const std::unique_ptr<LineFile> facts_;
  const std::unique_ptr<LineFile> measures_;

  std::vector<TensorDescriptor> descriptors_;  // by the id given out
  std::map<std::string, int64_t> ids_by_content_;
  std::vector<int64_t> written_ids_;  // by the id given out; -1: not yet written
  int64_t next_written_id_ = 0;
  using Fingerprints = std::map<std::string, uint64_t>;  // of each name's last state line
  std::map<std::string, Fingerprints> last_states_;      // by what stages are of
  std::set<std::string> seen_;                           // names of the open stage
  std::string stage_;                                    // of the open stage
  int64_t step_ = 0;
  std::string of_;
  bool stage_open_ = false;
  bool ended_ = false;

  std::mutex stage_mutex_;
  std::string working_on_;
};

}  // namespace shardproof
