// Evidence: what a run left behind, read back. Closed and read-only: properties are pure functions
// of it. The on-disk form (two JSON Lines streams a rank) is in verify/evidence/FORMAT.md and
// fixtures/schema/evidence.schema.json; verify/evidence/reader.h turns it into these structs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/digest/digest.hpp"
#include "verify/case/case.h"
#include "verify/evidence/held.h"
#include "verify/evidence/stage_key.h"

namespace shardproof {

/// Tensors of at most so many bytes are on record in full.
inline constexpr uint64_t kInlineBytesMax = 4096;

/// Whether a tensor's value means anything yet. Value properties judge only what is defined; at
/// stage `ready` everything must be.
enum class Content { kNone, kUndefined, kDefined };

/// How a tensor lies on one mesh axis.
struct PlacementRecord {
  std::string kind;          ///< as FORMAT.md lists them
  int64_t dim = 0;           ///< tensor dim, for the shard kinds
  int64_t split_factor = 1;  ///< strided_shard only
};

/// `count` equal stretches of elements of the global row-major order that a rank owns. Elements.
struct OwnedRun {
  uint64_t start = 0;
  uint64_t length = 0;
  uint64_t count = 1;
  uint64_t stride = 0;
};

/// A mesh that tensors of a rank lie on.
struct MeshRecord {
  std::vector<AxisCase> axes;
  std::vector<int64_t> coordinates;  ///< of the rank, one per axis
};

/// Which ranks hold a tensor together with this one. Each list is sorted and has this rank.
struct GroupsRecord {
  std::vector<int64_t> whole;    ///< their parts make up the tensor
  std::vector<int64_t> alike;    ///< they have the same part
  std::vector<int64_t> members;  ///< all that have a part of it or of a replica
  bool stated = true;       ///< false: nobody said which ranks, so none is held against another
  bool named_once = false;  ///< no other tensor of the job has its name
};

/// What a tensor is, as one rank saw it; written once and referred to by `id`. A change (sharding,
/// say) makes a new descriptor.
struct TensorDescriptor {
  int64_t id = 0;
  std::string name;  ///< canonical FQN
  std::string kind;  ///< "parameter" or "buffer"
  bool persistent = true;
  std::string dtype;           ///< safetensors' name
  std::vector<int64_t> shape;  ///< global
  std::vector<int64_t> local_shape;
  std::vector<int64_t> local_stride;
  std::vector<PlacementRecord> placements;  ///< one per axis of its mesh; empty: not distributed
  int64_t mesh = -1;                        ///< of RankEvidence::meshes; -1: the rank's own mesh
  int64_t groups = -1;  ///< of RankEvidence::groups; -1: as placements and coordinates have it
  std::vector<OwnedRun> owned;
  int64_t alias_group = -1;  ///< tensors of one rank and stage with the same number share storage
  int64_t identity = -1;     ///< stable handle of the parameter object; changes if it was rebuilt
  bool requires_grad = false;
  bool also =
      false;  ///< the framework's own, which no checkpoint has: only ranks are compared in it
  std::map<std::string, std::string> attributes;
  /// A part, as the job told, of a tensor whose shape nobody did: `shape` is the part's own, times
  /// the number of parts, and so is right only if all of them are of one size.
  bool in_turn = false;
  /// Why ranks may have other values in it: "batches", it is a statistic of those that each has
  /// seen; "own", it is each rank's own, as a state of random numbers is; "rewritten", it was
  /// written in place again and again, as statistics are. Or empty.
  std::string varies;

  uint64_t ElementCount() const;  ///< of the global shape
  uint64_t OwnedElements() const;
};

/// Partial digests of a tensor on a fixed grid of its global byte image.
struct BlockDigests {
  uint64_t block_bytes = 0;
  uint64_t first_block = 0;
  std::vector<Digest> blocks;
};

/// A stretch of raw bytes of the global image, recorded for small tensors and on request.
struct ByteRange {
  uint64_t start = 0;
  std::string bytes;
};

/// One tensor on one rank at one stage.
struct TensorState {
  int64_t descriptor = 0;
  std::string device;  ///< "cpu", "cuda:0", "meta"
  bool is_meta = false;
  Content content = Content::kNone;
  std::string unreadable;  ///< why its bytes cannot be read in place, or empty; then not defined
  Digest digest;           ///< of the owned bytes; zero unless content is defined
  Digest coverage;         ///< of the owned bytes
  uint64_t nan_count = 0;
  uint64_t inf_count = 0;
  std::optional<uint64_t> first_nonfinite;  ///< global element index of the first NaN or Inf owned
  BlockDigests blocks;
  std::vector<ByteRange> bytes;
  /// Memory runs only: bytes of storage behind it and how many of them are committed pages.
  std::optional<uint64_t> storage_bytes;
  std::optional<uint64_t> committed_bytes;
};

/// Parameters that an optimizer treats alike.
struct OptimizerGroup {
  std::map<std::string, std::string> options;  ///< "lr" -> "0.001": as Python shows them
  std::vector<std::string> parameters;         ///< FQNs of the model's own
};

/// What an optimizer holds and the model does not.
struct Stranger {
  int64_t group = 0;
  int64_t index = 0;  ///< within its group
  std::string was;    ///< the FQN that this very object had at an earlier stage, or empty
  std::vector<int64_t> shape;
};

/// All of an optimizer but the tensors of its state.
struct OptimizerRecord {
  std::vector<OptimizerGroup> groups;
  std::vector<Stranger> strangers;
  std::map<std::string, std::string> values;  ///< state that is no tensor: "<FQN>.<key>" -> value
  bool claims = true;  ///< false: nobody said that it holds the whole model, and nothing else
};

/// What did not change over the steps that were taken since a rank last looked, where that says
/// something: a parameter, "<FQN>", or a tensor of an optimizer's state, "<FQN>.<key>".
struct StillRecord {
  std::string name;
  std::string why;        ///< "due", "counter" or "moment": it had to change; "undecided"
  std::string detail;     ///< in words: what says that it had to, or why that cannot be told
  uint64_t elements = 0;  ///< of the rank's part, that had to change
  std::optional<uint64_t> index = {};  ///< of the first of them, in the global row-major order
};

/// What steps did to a rank's part of the model, as the rank itself could tell.
struct StepsRecord {
  int64_t taken = 0;   ///< calls of an optimizer's step() since that stage
  std::string since;   ///< key of the stage that the model was last observed at
  int64_t held = 0;    ///< parameters that were held against it
  std::string unsure;  ///< why what did not change may be sound all the same, or empty
  std::vector<StillRecord> still;
};

/// All tensors of one rank at one stage, keyed by FQN (every name of a tied tensor has an entry).
/// The state of an optimizer at a stage is a record of its own, its tensors keyed "<FQN>.<key>".
struct StageRecord {
  std::string name;  ///< built, loaded, sharded, materialized, ready, stepped, saved, restored, ...
  int64_t step = 0;
  std::string of =
      "model";            ///< or "optimizer", or "state_dict": as the framework gives it for saving
  bool complete = false;  ///< false: the rank ended while writing it
  std::map<std::string, TensorState> tensors;
  std::optional<OptimizerRecord> optimizer;  ///< only of "optimizer"
  std::optional<StepsRecord> steps;  ///< of the model: by what is not observed; not always recorded
  std::string rng;  ///< digest of the CPU random number generator's state; empty: not recorded
  /// Whether the job has asked for that state, as one that keeps it does; told where it is known.
  bool keeps_rng = true;

  /// What names it among a rank's stages: "ready", "stepped@3", "stepped@3.optimizer".
  std::string Key() const;
  /// The key of the model at the same moment.
  std::string ModelKey() const;
  bool Is(const std::string& key) const;
};

struct CollectiveRecord {
  int64_t sequence = 0;  ///< counts up within the group
  std::string op;        ///< "broadcast", "allreduce", "allgather", "barrier"
  int64_t root = -1;
  std::string dtype;
  uint64_t count = 0;                ///< elements
  std::vector<std::string> tensors;  ///< the logical tensors that travel in it
  std::vector<int64_t> group = {};   ///< ranks that take part; empty: all
};

/// What a fault did. Fields that are empty or unset do not apply.
struct FaultRecord {
  std::string id = {};
  std::string where = {};
  std::string detail = {};  ///< in words: "bit 0 of byte 4096 of model.safetensors"
  /// What must come of it: "seen", "go-on", "recover", "refuse", "abort", "end-the-run",
  /// "tell-all" or "end-in-time" (as in `list faults`).
  std::string model = {};
  std::string call = {};                  ///< what was called: "fsync of f", "ncclAllReduce"
  std::string error = {};                 ///< what the call failed with: "Input/output error"
  std::string file = {};                  ///< that is damaged, within its checkpoint
  std::optional<uint64_t> byte = {};      ///< whose lowest bit that was, from the file's begin
  std::vector<std::string> tensors = {};  ///< that are changed: several if they are tied
  std::vector<int64_t> rows = {};         ///< of the tensor that changed places
  /// Of a training job, whose save is damaged; of `latest`, which it names, if that is there.
  std::optional<int64_t> step = {};
  bool absent = false;    ///< whether the file is not there
  bool harmless = false;  ///< whether what is damaged says the same, or a restore may do without it
};

struct ErrorRecord {
  std::string code;   ///< "bad-input", "failed", "peer", "internal"
  std::string stage;  ///< the last stage reached or being worked on
  std::string message;
  std::string type = {};  ///< of a subject's exception: "ValueError"
};

/// What the pipeline itself said about keys, to be held against what the oracle sees.
struct KeyReport {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
};

/// Elements [start, start + count), in row-major order, of a key of a checkpoint.
struct StoredPiece {
  std::string key;
  uint64_t start = 0;
  uint64_t count = 0;
};

/// What the plain twin says of itself (verify/oracle/twin.h).
struct TwinRecord {
  std::string made_by;  ///< "GPT2LMHeadModel.from_pretrained of transformers 5.23.0"
  /// Of tensors that no key of their name holds: the pieces that make them up, as it claims.
  std::map<std::string, std::vector<StoredPiece>> pieces;
  /// Attributes of its parameters that the model's own code reads, each with "file.py:line".
  std::map<std::string, std::string> used_attributes;
};

/// Something in a step of the subject that the plain twin does otherwise, from the same values.
struct TwinStepDeviation {
  std::string kind;    ///< "gradient", "norm", "differs", "steps", "batch", "average"
  std::string tensor;  ///< empty: of the step as a whole
  std::vector<int64_t> ranks;
  std::optional<uint64_t> index;  ///< of the first element that differs
  uint64_t differing = 0;         ///< elements
  std::string expected;
  std::string seen;
  std::string what;   ///< for people, after the tensor's name
  std::string cause;  ///< the likely cause, for people, or empty
};

/// An observed stage of a subject that trains, held against what the plain twin makes of the stage
/// before it.
struct TwinStep {
  StageKey stage;
  uint64_t compared = 0;  ///< elements
  uint64_t exact = 0;     ///< of which so many are equal to the bit
  std::string why_not;    ///< why what should be held against the twin could not be, or empty
  std::string left_out;   ///< what nobody could hold against it, and why, or empty
  /// Frozen parameters that became means of what they were and of a trainable one.
  std::vector<std::string> averages;
  /// Of a resumed step: whether its gradients are those of the same step of the job that went on,
  /// of the same losses, but for the order in which they were added up.
  bool adds_otherwise = false;
  std::vector<TwinStepDeviation> deviations;
};

struct MemorySample {
  double time_ms = 0;  ///< since the rank's first sample
  uint64_t anonymous_bytes = 0;
  uint64_t device_bytes = 0;  ///< allocated on the rank's device
  std::string stage;          ///< the stage being worked on
};

/// Memory runs only.
struct MemoryRecord {
  uint64_t idle_bytes = 0;  ///< anonymous, group connected, before the pipeline starts
  uint64_t peak_bytes = 0;  ///< highest anonymous total seen
  std::string peak_stage;
  uint64_t own_shard_bytes = 0;    ///< what the rank must hold at the end, by the descriptors
  uint64_t device_peak_bytes = 0;  ///< most that was allocated at once on a device; 0: none was
  uint64_t device_own_shard_bytes = 0;          ///< what the rank must hold of it at the end
  std::vector<int64_t> after_saves_bytes = {};  ///< anonymous, after each save, in order
  std::vector<MemorySample> samples;
};

struct RankEvidence {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::vector<int64_t> coordinates;  ///< on the mesh, one per axis
  std::string host;
  int64_t process_id = 0;
  std::vector<TensorDescriptor> descriptors;  ///< index = id
  std::vector<MeshRecord> meshes;             ///< likewise; those that are not the rank's own
  std::vector<GroupsRecord> groups;           ///< likewise
  std::vector<StageRecord> stages;            ///< in the order they were reached
  std::vector<CollectiveRecord> collectives;
  std::vector<FaultRecord> faults;
  std::vector<ErrorRecord> errors;
  std::optional<KeyReport> keys;
  std::optional<TwinRecord> twin;
  std::vector<TwinStep> twin_steps;
  std::optional<MemoryRecord> memory;
  std::vector<HeldRecord> held;  ///< at stages of a job that was observed
  /// What the rank had and had not given back when its part was over: descriptors, threads;
  /// nothing: it did not look.
  std::optional<std::vector<std::string>> leaks;
  Digest facts;             ///< of the bytes of its facts, as far as they could be read
  bool closed = false;      ///< the rank wrote its last record
  std::string damage;       ///< how the stream is damaged, or empty; file and line named
  std::string exit;         ///< by the launcher: "ok", "exit 3", "signal 9", "hang"
  std::string stderr_tail;  ///< last lines, for a rank that did not end well

  const StageRecord* Stage(const StageKey& key) const;  ///< by StageRecord::Key
  const TensorDescriptor& Descriptor(const TensorState& state) const;
  /// Null where placements and coordinates say it.
  const GroupsRecord* Groups(const TensorDescriptor& descriptor) const;
};

/// One launch of the subject: one mesh, one strategy.
struct PhaseEvidence {
  Phase phase = Phase::kValues;
  std::string strategy;
  std::vector<AxisCase> mesh;                 ///< the axes that multiply to the world
  std::vector<AxisCase> laid_over = {};       ///< those that are laid over some of them
  std::string skipped;                        ///< why this phase did not run, or empty
  std::vector<std::string> saved_files = {};  ///< names in the checkpoint that it left, sorted
  std::vector<RankEvidence> ranks;

  const char* name() const { return NameOf(phase); }
  const PhaseFacts& facts() const { return FactsOf(phase); }
  int64_t WorldSize() const { return static_cast<int64_t>(ranks.size()); }
};

/// A tensor as the verifier's own reader sees it in a checkpoint directory.
struct FileTensor {
  std::string name;
  std::string file;          ///< within the directory; of several keys, the first one's
  uint64_t file_offset = 0;  ///< likewise
  std::string dtype;
  std::vector<int64_t> shape;
  Digest digest;
  Digest coverage;
  uint64_t nan_count = 0;
  uint64_t inf_count = 0;
  std::optional<uint64_t> first_nonfinite;
  BlockDigests blocks;
  std::vector<ByteRange> bytes;  ///< small tensors, and ranges asked for
  /// The keys that hold it, one after the other, if not the one of its own name.
  std::vector<std::string> keys = {};
};

/// A safetensors file of a checkpoint, apart from the values in it.
struct FileForm {
  uint64_t data_start = 0;  ///< where its header ends, bytes
  uint64_t data_bytes = 0;  ///< of all its tensors
  int64_t tensors = 0;
};

/// A checkpoint directory as the oracle sees it; `error` if it cannot be read. Tensors that the
/// model declares go by its names, whatever keys hold them; other keys by themselves.
struct CheckpointRecord {
  std::string error;
  std::map<std::string, FileTensor> tensors;
  std::map<std::string, FileForm> files = {};  ///< those that hold a tensor, by name
  bool indexed = false;                        ///< whether an index names the files
  std::optional<uint64_t> total_size = {};     ///< as the index's metadata has it
};

/// One saved step of a training job, as the verifier's own audit finds it.
struct SavedStep {
  std::string name;     ///< of its directory
  bool sealed = false;  ///< whether it has a manifest
  int64_t tensors = 0;
  std::vector<std::string> damage;  ///< a line each, what differs from the manifest among them
};

/// The directory below which a training job saves its steps; `error` if it cannot be read.
struct SavedRoot {
  std::string error;
  bool was_empty = true;           ///< before the job began
  std::string latest;              ///< the text of the file `latest`
  std::vector<std::string> names;  ///< all that is in it, sorted
  std::vector<SavedStep> steps;    ///< those directories that are named as steps, sorted
};

/// A checkpoint that lies where a phase saves, when the phase is over.
struct LeftCheckpoint {
  std::string name;                 ///< of a step's directory; empty: all there is
  bool is_previous = false;         ///< whether it is what an earlier job left there
  std::string content;              ///< alike for two that hold the same tensors and values
  std::vector<std::string> damage;  ///< a line each
};

/// All that lies there, read by the verifier's own readers.
struct LeftRecord {
  bool had_previous = false;  ///< whether an earlier job had left a checkpoint before the phase
  std::vector<LeftCheckpoint> checkpoints;
  std::optional<std::string> latest;  ///< the text of that file, of a root of steps
  std::vector<std::string> drafts;    ///< names of what saves have begun and not ended
};

/// What must be true of a buffer that a formula defines. Values are the formula's, rounded to F32.
struct DerivedExpectation {
  std::string formula;  ///< for people: "rope default, theta 10000, dim 64"
  std::vector<float> values;
  int64_t ulp_max = 0;  ///< derived bound, see verify/oracle/derived.cc
};

/// Something in which the plain twin and the files disagree.
struct TwinDeviation {
  std::string tensor;
  std::string kind;  ///< "differs", "shape", "missing"
  std::string what;  ///< for people, after the tensor's name
};

/// What the plain twin adds to what the files say.
struct TwinOracle {
  std::string made_by;
  std::string why_none;  ///< why there is no twin: all else is empty then
  uint64_t held = 0;     ///< tensors that were held against the files
  std::vector<TwinDeviation> deviations;
  std::vector<std::string> unheld;  ///< tensors of which the files were found to have nothing
  /// What is expected where no file says it: buffers that no checkpoint holds, what is unheld, and
  /// where the twin deviates.
  std::map<std::string, FileTensor> values;
  KeyReport keys;  ///< what it calls missing and unexpected
  std::map<std::string, std::string> used_attributes;
  std::vector<OptimizerGroup> groups;  ///< of its optimizer, if the subject has it make one
};

/// What the oracle says, from the Case and the files alone, without the pipeline; of a subject's
/// model also from its plain twin.
struct OracleRecord {
  CheckpointRecord source;
  std::map<Phase, CheckpointRecord> saved;     ///< what that phase saved last
  std::map<Phase, SavedRoot> roots = {};       ///< where that phase, which trains, saved
  std::map<Phase, LeftRecord> left = {};       ///< of what a fault struck, and of what follows
  std::vector<std::vector<std::string>> ties;  ///< expected alias groups of two or more names
  std::map<std::string, DerivedExpectation> derived;
  /// Keys the model has and the source lacks: the bytes that initialisation must give, as tensors.
  std::map<std::string, FileTensor> missing;
  std::vector<std::string> missing_allowed;     ///< by the Case
  std::vector<std::string> unexpected_allowed;  ///< by the Case
  /// Every tensor that the model must have, by the Case or by the config.json's architecture; dtype
  /// is the source's where the source has the key.
  std::map<std::string, TensorCase> declared;
  std::optional<TwinOracle> twin = {};
  /// What the plain twin made of a subject's steps, stage by stage; and why it made none.
  std::vector<TwinStep> twin_steps = {};
  std::string why_no_twin_steps = {};
};

struct Evidence {
  Case test_case;
  /// What the subject said, before it ran, that it cannot do: capability -> why.
  std::map<std::string, std::string> cannot;
  /// What it said must be seen if it really does what it is for: "placements", "collectives",
  /// "files" or "stages" -> their names.
  std::map<std::string, std::vector<std::string>> shows;
  bool mesh_is_asked = false;  ///< by name, not only a number of ranks
  bool is_quick = false;       ///< only the first phase was to run
  OracleRecord oracle;
  std::vector<PhaseEvidence> phases;

  const PhaseEvidence* Phase(shardproof::Phase phase) const;
  /// Why the subject lacks a capability; null if it did not say that it does.
  const std::string* WhyCannot(const std::string& capability) const;
};

}  // namespace shardproof
