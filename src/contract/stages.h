// The leaves of the pipeline in one table, so that pipeline.cc reads as a table of contents and any
// one leaf can be replaced.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/contract/job.h"
#include "src/core/result.h"
#include "src/digest/digest.hpp"
#include "src/model/model.h"
#include "src/seam/device.h"

namespace shardproof {

// What leaves pass to each other, which whoever calls or replaces them includes.
struct AdamWSettings;
struct Batch;
struct Bucket;
struct DcpFile;
struct HostStep;
struct KeyMatch;
struct Optimizer;
struct Parcel;
struct SaveDigests;
struct SavedFile;
struct Source;
struct StateDict;

struct Stages {
  /// The spec of job.model or of config.json, with the dtypes of the source.
  std::function<Result<ModelSpec>(const Job&, const Source&, World&)> describe;
  std::function<Result<Model>(const ModelSpec&, const Job&, World&)> build;
  /// Opens the checkpoint: on rank 0, which tells the others, if only that rank reads; else on
  /// every rank. Collective, and agrees on the outcome itself.
  std::function<Result<Source>(const Job&, World&)> open_source;
  std::function<Result<KeyMatch>(const Model&, const Source&)> match_keys;
  /// Puts the source's full tensors into the model, on the ranks that read.
  std::function<Status(Model&, const KeyMatch&, const Source&, const Job&, World&)> load;
  /// The optimizer of the model as it is now, and how it lets go of that and takes the model as it
  /// is later.
  std::function<Optimizer(const Model&, const Training&)> make_optimizer;
  std::function<Status(Optimizer&, const Model&)> unbind_optimizer;
  std::function<Status(Optimizer&, const Model&)> rebind_optimizer;
  /// What a step computes its gradients from.
  std::function<Batch(Model&, int64_t step, const Job&)> read_batch;
  /// Puts the sum of the gradients of several micro-batches into the optimizer's memory.
  std::function<Status(Model&, const Batch&, const Job&, World&)> accumulate;
  /// The same where ranks share the micro-batches: which of them a rank computes, whose gradients
  /// it adds up along an axis, and all of it. The last is collective, and agrees itself.
  std::function<std::vector<int64_t>(const Batch&, const Mesh&, int64_t rank)> samples_of;
  std::function<std::vector<int64_t>(const Mesh&, const std::string& axis, int64_t rank)>
      ranks_along;
  std::function<Status(Model&, const Batch&, const Stages&, const Job&, World&)> reduce;
  /// Whether any gradient is too large for its dtype. Collective, if the loss is scaled.
  std::function<Result<bool>(const Model&, const Batch&, const Job&, World&)> overflows;
  /// What the gradients of each group are multiplied by in a step.
  std::function<Result<std::vector<float>>(const Model&, const Batch&, const Job&, World&)>
      clip_gradients;
  /// One parameter's step.
  std::function<Status(Slot& parameter, const AdamWSettings&, const Batch&, float gradient_scale,
                       Optimizer&, World&)>
      step_parameter;
  /// The same of all parameters whose state is on the host.
  std::function<Status(const std::vector<HostStep>&, const Batch&, Optimizer&, const Job&, World&)>
      step_on_host;
  /// How what is frozen becomes trainable, and frozen again.
  std::function<Status(Model&)> unfreeze;
  std::function<Status(Model&)> freeze_again;
  /// Makes what a training job needs besides its model, or restores it if the source has it.
  /// Collective.
  std::function<Status(Model&, const Source&, const Stages&, const Job&, World&)> start_training;
  /// Which placement each slot gets on the mesh.
  std::function<std::vector<Placement>(const Slot&, const Mesh&)> place;
  /// What one rank owns of a slot under its placements.
  std::function<Shard(const Slot&, const std::vector<Placement>&, const Mesh&,
                      const std::vector<int64_t>& coordinates)>
      chunk;
  /// Turns every slot into this rank's shard: a slice of what is loaded, or a meta shard.
  std::function<Status(Model&, const KeyMatch&, const Stages&, const Job&, World&)> shard;
  /// Gives every meta slot memory of undefined content; touches nothing else.
  std::function<Status(Model&, World&)> materialize;
  /// Fills the shards from the source, or from the rank that has it open. May take the digests of
  /// what it fills while that is in the cache.
  std::function<Status(Model&, KeyMatch&, const Source&, const Stages&, const Job&, World&)> fill;
  /// The same of a training job's state, for which nothing is loaded before.
  std::function<Status(Model&, KeyMatch&, const Source&, const Stages&, const Job&, World&)>
      fill_state;
  /// Which bytes travel together, and in which order: a pure function, alike on all ranks.
  std::function<std::vector<Bucket>(const KeyMatch&, const Source&, uint64_t capacity)>
      plan_buckets;
  /// The same for what is sent to each rank on its own.
  std::function<std::vector<Parcel>(const KeyMatch&, const Source&,
                                    const std::function<std::vector<Shard>(const Slot&)>&,
                                    uint64_t capacity)>
      plan_parcels;
  /// Copies what this rank owns out of one received payload.
  std::function<void(const std::vector<Piece>&, const std::byte* payload,
                     const std::map<std::string, std::shared_ptr<Slot>>&)>
      unpack;
  /// Holds what was filled against the manifest, if the source has one. Collective, and agrees on
  /// the outcome itself.
  std::function<Status(const KeyMatch&, const Source&, const Stages&, const Job&, World&)>
      verify_loaded;
  /// What the bytes `local` of this rank's shard hold of the bytes `image` of a slot's global
  /// image, as a part of the digest of these.
  std::function<Digest(const Slot&, ByteSpan image, ByteSpan local)> digest;
  std::function<Status(Model&, const KeyMatch&, const Job&, World&)> init_missing;
  std::function<Status(Model&, const Job&, World&)> compute_buffers;
  /// Writes the model, and what trains it, in the job's format and commits it by one rename.
  std::function<Status(const Model&, const Stages&, const Job&, World&)> save;
  /// What an async save writes: the model and what trains it, as they are now, in memory of its
  /// own.
  std::function<Result<Model>(const Model&, World&)> snapshot;
  /// Writes this rank's bytes of planned files of safetensors; durable on return. \returns what it
  /// adds to the manifest.
  std::function<Result<SaveDigests>(const std::vector<SavedFile>&, const Job&, const Stages&,
                                    const std::string& directory, World&)>
      write_shards;
  /// What of the job is saved, under which keys.
  std::function<StateDict(const Model&, const World&)> state_of;
  /// The same, all of it on rank 0: every tensor is whole there, and only there. Collective.
  std::function<Result<StateDict>(StateDict, const Job&, const Stages&, World&)> gather;
  /// The same with fused tensors in parts.
  std::function<StateDict(StateDict)> split_fused;
  /// What a rank writes of it, and where: a pure function, alike on all ranks.
  std::function<DcpFile(const StateDict&, const Job&, const Stages&, int64_t rank)> plan_dcp;
  /// The same of a planned file of DCP.
  std::function<Result<SaveDigests>(const StateDict&, const DcpFile&, const Stages&,
                                    const std::string& directory, World&)>
      write_dcp;
  /// Makes a complete, durable directory the checkpoint of that name.
  std::function<Status(const std::string& staging, const std::string& target, World&)> commit;
  /// Of a job that trains, on rank 0: makes a saved step the one that a restore takes, and removes
  /// older ones than the newest `keep`.
  std::function<Status(const std::string& root, const std::string& step, World&)> move_latest;
  std::function<Status(const std::string& root, int64_t keep, World&)> retain;
};

}  // namespace shardproof
