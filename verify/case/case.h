// The one input of a run. Everything that every rank does follows from a Case, so a Case is all
// that `replay` needs. A member here is a row of a table in fields.h, which says all else of it;
// the JSON form, fixtures/schema/case.schema.json, is made from there.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/case/phase.h"

namespace shardproof {

/// The Case's `subject` for the reference pipeline; any other value is a Python file.
inline constexpr const char* kReference = "reference";

/// The most ranks of a Case's mesh.
inline constexpr int64_t kRanksMax = 1024;

struct AxisCase {
  std::string name;  ///< "dp_shard", "dp_replicate", "tp", "ep"
  int64_t size = 1;  ///< ranks, >= 1
  /// Axes of the same mesh that it is laid over, whose ranks it divides; none: it multiplies the
  /// world. See verify/case/axes.h.
  std::vector<std::string> over = {};

  bool operator==(const AxisCase&) const = default;
};

/// What decides the inverse frequencies of rotary position embeddings, as the field's
/// configurations name it. Fields that a kind does not use are ignored.
struct RopeCase {
  std::string type = "default";  ///< one of KnownRopes()
  double theta = 10000.0;
  int64_t dim = 0;               ///< rotary dims, the divisor of the exponents; 0: twice the length
  double factor = 1.0;           ///< linear, yarn, llama3, proportional
  double low_freq_factor = 1.0;  ///< llama3
  double high_freq_factor = 4.0;                 ///< llama3
  int64_t original_max_position_embeddings = 0;  ///< yarn, llama3
  double beta_fast = 32.0;                       ///< yarn
  double beta_slow = 1.0;                        ///< yarn
  bool truncate = true;                          ///< yarn: whether the ramp's ends are whole
  std::vector<double> short_factor;              ///< longrope: one a frequency
  int64_t rotated = 0;  ///< proportional: leading frequencies that are not 0

  bool operator==(const RopeCase&) const = default;
};

/// One key of a checkpoint that holds a part of a tensor.
struct StoredCase {
  std::string key;
  std::vector<int64_t> shape;

  bool operator==(const StoredCase&) const = default;
};

/// One tensor of a synthetic model. Dtypes are safetensors' names ("F32", "BF16", "I64", ...).
struct TensorCase {
  std::string name;                ///< FQN; dots make the module tree
  std::string kind = "parameter";  ///< "parameter" or "buffer"
  bool persistent = true;          ///< buffers only: in the state dict or not
  std::string dtype = "F32";
  std::vector<int64_t> shape;  ///< global
  /// Of the model that is built, in elements, one a dim; empty: row-major. No two elements share
  /// memory.
  std::vector<int64_t> strides;
  bool requires_grad = true;                      ///< parameters only
  std::map<std::string, std::string> attributes;  ///< user attributes that must survive
  /// How a key that the checkpoint lacks, or a buffer built on a real device, gets its value:
  /// "uniform", "ones" or "zeros"; see src/model/initial_value.h for the formula.
  std::string init = "uniform";
  /// Synthetic: "normal", no two neighbours alike and none of them 0, NaN or infinite; or
  /// "special": of floating-point ones, some are NaN (of several payloads), infinite, -0.0 or
  /// subnormal.
  std::string values = "normal";
  bool built_real = false;  ///< true: created on the real device although the model is on meta
  /// Set for a buffer of RoPE inverse frequencies, F32 [n], non-persistent.
  std::optional<RopeCase> rope;
  /// How checkpoints keep it if not under its own name: ways in order of preference, each the keys
  /// whose tensors make it, one after the other in row-major order (packed experts, other
  /// prefixes). Its own name is tried last.
  std::vector<std::vector<StoredCase>> stored;
  int64_t stored_as =
      0;  ///< the way that a synthetic checkpoint uses; from their number on: its own name

  bool operator==(const TensorCase&) const = default;
};

/// Low-rank adapters (LoRA) that a run makes of linear layers, without a file of their values.
struct LoraCase {
  int64_t rank = 8;
  /// Whole names of modules, or how they end, from a dot on; or just "all-linear".
  std::vector<std::string> targets;

  bool operator==(const LoraCase&) const = default;
};

/// Where the model and its values come from: exactly one of a checkpoint and tensors. The fields
/// down to from_scratch are of a checkpoint.
struct ModelCase {
  std::string checkpoint;  ///< Hugging Face directory: config.json and safetensors
  /// "FILE.py:FUNCTION" that builds the model of a subject; empty: config.json says which it is.
  std::string factory;
  std::string adapter;              ///< PEFT directory of a LoRA adapter of it, or empty
  std::optional<LoraCase> lora;     ///< or an adapter that begins here
  bool from_scratch = false;        ///< only config.json is read: every tensor begins here
  std::vector<TensorCase> tensors;  ///< synthetic: the verifier writes the checkpoint from `seed`
  std::vector<std::vector<std::string>> ties;  ///< synthetic: names that share one storage
  std::vector<std::string>
      missing;  ///< names that the checkpoint is allowed to lack (a synthetic one does)
  std::vector<std::string>
      unexpected;           ///< names the checkpoint may hold besides (a synthetic one does)
  int64_t files = 1;        ///< synthetic: number of safetensors files
  bool stray_file = false;  ///< synthetic: a file beside them has other values under their keys
  /// Synthetic: of the files that a run reads; "dcp", whose chunks and bytes follow from `seed`.
  std::string format = "safetensors";
  bool every_tied_name =
      false;  ///< synthetic: the files hold tied tensors under each of their names

  bool operator==(const ModelCase&) const = default;
};

/// A fault to inject: `id` as in `list faults`, `where` as that fault reads it.
struct FaultCase {
  std::string id;
  std::string where;

  bool operator==(const FaultCase&) const = default;
};

/// Bytes [byte_start, byte_start + byte_length) of a tensor's global image that this run must
/// record, so that a difference found by block digests can be named to the element.
struct CaptureRequest {
  Phase phase = Phase::kValues;
  std::string tensor;
  uint64_t byte_start = 0;
  uint64_t byte_length = 0;
};

/// Optimizer steps of the reference, by AdamW.
struct TrainingCase {
  double clip_norm = 1.0;       ///< of all gradients; 0: they are not clipped
  bool clip_by_group = false;   ///< whether each group of parameters is clipped by its own norm
  std::string moments = "F32";  ///< dtype of the moments: or "BF16"
  bool masters = true;          ///< F32 masters of BF16 parameters
  int64_t unfreeze_after = 0;  ///< the step after which frozen parameters are trained too; 0: never
  int64_t unfrozen_steps = 0;  ///< for so many steps, then they are frozen again; 0: to the end
  double without_gradient = 0;  ///< the share of parameters that have no gradient in a step
  int64_t micro_batches = 1;    ///< whose gradients are added up to that of a step
  std::string reduce = "none";  ///< dtype in which gradients of shared micro-batches travel
  int64_t samples = 0;          ///< that a sampler shuffles anew in every epoch; 0: all data is new
  double loss_scale = 0;        ///< what a scaler of the loss begins with; 0: there is none
  double average = 0;           ///< decay of an exponential average of each parameter; 0: none
  double offload = 0;      ///< the fraction of the optimizer's work that the host does, of [0, 1]
  bool overlap = true;     ///< whether the host steps one piece while another is being copied
  int64_t save_every = 0;  ///< steps from one save to the next; 0: one save, halfway through
  int64_t keep = 2;        ///< so many of the newest saves stay on disk
  bool async = false;      ///< whether files are written while the job takes its steps
  std::string format = "dcp";  ///< what it saves: or "safetensors"
  bool gathered = false;       ///< whether rank 0 gathers what is saved, and writes it alone
  bool split_fused =
      false;  ///< whether DCP has the parts of fused tensors, as safetensors always has
  double learning_rate = 1e-3;  ///< of matrices; all else has half of it
  double rate_decay = 0.9375;   ///< what a step multiplies every group's rate by, for the next
  double weight_decay = 0.1;    ///< of matrices; all else has none
  double epsilon = 1e-8;

  bool operator==(const TrainingCase&) const = default;
};

struct Case {
  int64_t schema = 1;
  std::string why;  ///< one line: what this case is for
  uint64_t seed = 0;
  std::string subject = "reference";
  ModelCase model;
  std::vector<AxisCase> mesh;                ///< as verify/case/axes.h reads it
  std::string strategy = "rank0-broadcast";  ///< or "plain"
  /// Of the reference: "gloo", ranks are processes; "sim", they are threads of one process, in an
  /// order that follows from `seed`.
  std::string transport = "gloo";
  std::string device = "cpu";         ///< of the reference: "cpu", "apart" or "cuda"
  std::string optimizer = "none";     ///< of the reference: or "before-sharding"
  uint64_t bucket_bytes = 16u << 20;  ///< staging bytes a rank may hold at once
  uint64_t device_bytes = 0;          ///< of the reference: memory that its device has; 0: no limit
  uint64_t max_file_bytes = 0;        ///< saved file size limit; 0: about one file a rank
  /// Of the reference: whether an earlier job has left a checkpoint where this one saves, and a
  /// part of one that it was killed in.
  bool leftovers = false;
  int64_t saves = 1;  ///< of the reference: how often a run that takes no steps saves
  std::vector<AxisCase> resume_mesh;  ///< mesh to restore on besides; empty: skip that phase
  int64_t steps = 0;                  ///< optimizer steps of the train phases; 0: none
  TrainingCase training;              ///< of the reference: how it takes them
  std::map<std::string, std::string>
      options;  ///< what the subject declares in OPTIONS: name, value
  std::vector<FaultCase> faults;
  /// Whether what is judged is what comes of the faults, as each of them states it, and nothing
  /// else: a job that ends as it must under them then passes.
  bool as_stated = false;
  std::string bug;                       ///< id of a planted bug, or empty
  uint64_t host_slack_bytes = 8u << 20;  ///< what host peak may exceed shards + bucket by
  uint64_t deadline_ms = 60000;          ///< a rank that shows no progress for so long hangs

  int64_t WorldSize() const;
  /// The steps after which a job that trains saves, in order; the last step is none of them, so
  /// that something is left to do after a resume.
  std::vector<int64_t> SavedSteps() const;

  bool operator==(const Case&) const = default;
};

/// The directory that a run of the reference reads: `source`, or one below it that holds a
/// synthetic model in another format, beside the safetensors that it is judged by.
std::string ReadFrom(const ModelCase& model, const std::string& source);

/// Reads and validates a Case. Unknown fields are errors, so that a typo is not a silent default.
/// \error kBadInput naming the field (JSON pointer), what was expected and what was found; a mesh
///   whose sizes are < 1, overflow or exceed 1024 ranks; no model, or both kinds of model.
Result<Case> ParseCaseText(const std::string& text);
Result<Case> ParseCase(const nlohmann::json& json);
Result<Case> ReadCaseFile(const std::string& path);

/// The JSON form; ParseCase(CaseToJson(c)) equals c.
nlohmann::json CaseToJson(const Case& c);

}  // namespace shardproof
