// For tests: a small body of evidence in which everything holds, and means to break one thing of
// it. Three phases (values, plain, resume) and a memory phase; an uneven tensor, an empty shard, a
// 0-dim tensor, a tie, buffers of every kind, and one tensor too large for its bytes to be
// recorded.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "verify/verdict/property.h"
#include "verify/verdict/values.h"

namespace shardproof::testing {

/// SPECIFICATION.md word for word, byte by byte.
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline void AddByte(Digest& sum, uint64_t position, unsigned char value) {
  const uint64_t word = position / 4 % 1024;
  const uint64_t block = position / 4096;
  const auto part = [&](uint64_t lane) {
    const uint64_t key = Mix(0x5368617264000000 + 1024 * lane + word) >> 32 | 1;
    const uint64_t factor = Mix(0x70726f6f66000000 + (lane << 63) + block) | 1;
    return (uint64_t{value} << 8 * (position % 4)) * key * factor;
  };
  sum.lane0 += part(0);
  sum.lane1 += part(1);
}

struct Made {
  TensorCase spec;
  std::string image;  ///< its bytes
  bool in_source = true;
  bool defined_built = false;
};

inline constexpr uint64_t kBlockBytes = 4096;

/// Digest, coverage, counts, blocks and small bytes of the runs of an image.
inline void Measure(const std::string& image, const std::string& dtype, uint64_t element_bytes,
                    const std::vector<OwnedRun>& runs, TensorState& state) {
  state.digest = state.coverage = {};
  state.nan_count = state.inf_count = 0;
  state.first_nonfinite.reset();
  state.bytes.clear();
  state.blocks = {kBlockBytes, 0,
                  std::vector<Digest>((image.size() + kBlockBytes - 1) / kBlockBytes)};
  for (const OwnedRun& run : runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      const uint64_t begin = (run.start + i * run.stride) * element_bytes;
      const uint64_t end = begin + run.length * element_bytes;
      if (image.size() <= kInlineBytesMax)
        state.bytes.push_back({begin, image.substr(begin, end - begin)});
      for (uint64_t at = begin; at < end; ++at) {
        AddByte(state.digest, at, static_cast<unsigned char>(image[at]));
        AddByte(state.coverage, at, 1);
        AddByte(state.blocks.blocks[at / kBlockBytes], at, static_cast<unsigned char>(image[at]));
      }
      for (uint64_t at = begin; at < end && IsFloat(dtype); at += element_bytes) {
        const double value =
            *ElementValue(dtype, std::string_view(image).substr(at, element_bytes));
        state.nan_count += std::isnan(value) ? 1 : 0;
        state.inf_count += std::isinf(value) ? 1 : 0;
        if (!std::isfinite(value) && !state.first_nonfinite)
          state.first_nonfinite = at / element_bytes;
      }
    }
  }
}

class SoundEvidence {
 public:
  Evidence evidence;
  std::map<std::string, Made> made;

  explicit SoundEvidence(int64_t ranks = 3, int64_t resume_ranks = 2) {
    MakeModel();
    MakeCase(ranks, resume_ranks);
    MakeOracle();
    AddPhase("values", "rank0-broadcast", ranks);
    AddPhase("plain", "plain", ranks);
    AddPhase("resume", "rank0-broadcast", resume_ranks);
    AddMemoryPhase(ranks);
  }

  PhaseEvidence& Phase(const std::string& name) {
    for (PhaseEvidence& phase : evidence.phases) {
      if (phase.name() == name) return phase;
    }
    throw std::out_of_range(name);
  }

  StageRecord& Stage(const std::string& phase, int64_t rank, const std::string& stage) {
    for (StageRecord& record : Phase(phase).ranks.at(rank).stages) {
      if (record.name == stage) return record;
    }
    throw std::out_of_range(stage);
  }

  TensorState& State(const std::string& phase, int64_t rank, const std::string& stage,
                     const std::string& tensor) {
    return Stage(phase, rank, stage).tensors.at(tensor);
  }

  /// A descriptor of this state's own, to be changed.
  TensorDescriptor& Descriptor(const std::string& phase, int64_t rank, const std::string& stage,
                               const std::string& tensor) {
    return Descriptor(Phase(phase).ranks.at(rank), State(phase, rank, stage, tensor));
  }
  static TensorDescriptor& Descriptor(RankEvidence& rank, TensorState& state) {
    TensorDescriptor copy = rank.descriptors.at(state.descriptor);
    copy.id = state.descriptor = static_cast<int64_t>(rank.descriptors.size());
    rank.descriptors.push_back(copy);
    return rank.descriptors.back();
  }

  /// Lets `edit` change the rank's version of the whole image, and measures anew what it owns.
  void Rewrite(const std::string& phase, int64_t rank, const std::string& stage,
               const std::string& tensor, const std::function<void(std::string&)>& edit) {
    std::string& image = images_[{phase, rank, stage, tensor}];
    if (image.empty()) image = made.at(tensor).image;
    edit(image);
    TensorState& state = State(phase, rank, stage, tensor);
    const TensorDescriptor& descriptor = Phase(phase).ranks.at(rank).Descriptor(state);
    Measure(image, descriptor.dtype, *ElementBytes(descriptor.dtype), descriptor.owned, state);
  }

  /// Does what a second run would do: records the bytes that were asked for, everywhere.
  void Capture(const std::vector<CaptureRequest>& captures) {
    for (const CaptureRequest& capture : captures) {
      for (auto* tensors : {&evidence.oracle.source.tensors, &evidence.oracle.missing,
                            &evidence.oracle.saved[Phase::kValues].tensors}) {
        const auto found = tensors->find(capture.tensor);
        if (found == tensors->end()) continue;
        found->second.bytes.push_back(
            {capture.byte_start,
             FileImage(found->second).substr(capture.byte_start, capture.byte_length)});
      }
      for (RankEvidence& rank : Phase(NameOf(capture.phase)).ranks) {
        for (StageRecord& stage : rank.stages) CaptureState(capture, rank, stage);
      }
    }
  }

  /// Writes a saved tensor's bytes anew.
  void RewriteSaved(const std::string& tensor, const std::function<void(std::string&)>& edit) {
    std::string image = made.at(tensor).image;
    edit(image);
    saved_images_[tensor] = image;
    evidence.oracle.saved[Phase::kValues].tensors[tensor] = FileOf(made.at(tensor), image);
  }

 private:
  static std::string F32Image(const std::string& name, uint64_t count) {
    std::string image(count * 4, '\0');
    for (uint64_t i = 0; i < count; ++i) {
      const float value = 1.0f + static_cast<float>(i) / 4096 + static_cast<float>(name.size());
      std::memcpy(image.data() + 4 * i, &value, 4);
    }
    return image;
  }

  void AddTensor(const std::string& name, std::vector<int64_t> shape, Made like) {
    like.spec.name = name;
    like.spec.shape = std::move(shape);
    if (like.spec.kind == "buffer") like.spec.requires_grad = false;
    const uint64_t bytes = *ImageBytes(like.spec.dtype, like.spec.shape);
    if (like.image.empty()) like.image = F32Image(name, (bytes + 3) / 4).substr(0, bytes);
    made[name] = std::move(like);
  }

  void MakeModel() {
    AddTensor("w", {5, 3}, {});
    made["w"].spec.attributes = {{"no_weight_decay", "1"}};
    AddTensor("tiny", {1}, {});
    AddTensor("scale", {}, {});
    AddTensor("big", {3000}, {});
    Made bf16;
    bf16.spec.dtype = "BF16";
    AddTensor("embed", {4, 2}, bf16);
    made["head"] = made["embed"];
    made["head"].spec.name = "head";
    made["head"].in_source = false;
    Made missing;
    missing.in_source = false;
    AddTensor("lost", {4}, missing);
    Made buffer;
    buffer.spec.kind = "buffer";
    AddTensor("norm", {3}, buffer);
    Made own = buffer;
    own.spec.persistent = false;
    own.in_source = false;
    AddTensor("rope.inv_freq", {2}, own);
    own.defined_built = true;
    own.spec.built_real = true;
    AddTensor("expert_bias", {2}, own);
  }

  void MakeCase(int64_t ranks, int64_t resume_ranks) {
    evidence.test_case.mesh = {{"dp_shard", ranks}};
    evidence.test_case.resume_mesh = {{"dp_shard", resume_ranks}};
    evidence.test_case.bucket_bytes = 1 << 20;
    evidence.test_case.host_slack_bytes = 1 << 20;
  }

  static FileTensor FileOf(const Made& made, const std::string& image) {
    const uint64_t element_bytes = *ElementBytes(made.spec.dtype);
    TensorState state;
    Measure(image, made.spec.dtype, element_bytes, {{0, image.size() / element_bytes, 1, 0}},
            state);
    return {made.spec.name,        "model.safetensors", 0,
            made.spec.dtype,       made.spec.shape,     state.digest,
            state.coverage,        state.nan_count,     state.inf_count,
            state.first_nonfinite, state.blocks,        state.bytes};
  }

  void MakeOracle() {
    OracleRecord& oracle = evidence.oracle;
    for (const auto& [name, tensor] : made) {
      oracle.declared[name] = tensor.spec;
      if (tensor.in_source) oracle.source.tensors[name] = FileOf(tensor, tensor.image);
    }
    oracle.ties = {{"embed", "head"}};
    oracle.missing["lost"] = FileOf(made["lost"], made["lost"].image);
    oracle.missing_allowed = {"lost"};
    std::vector<float> values(2);
    std::memcpy(values.data(), made["rope.inv_freq"].image.data(), 8);
    oracle.derived["rope.inv_freq"] = {"rope default", values, 1};
    CheckpointRecord saved = oracle.source;
    saved.tensors["lost"] = oracle.missing["lost"];
    saved.files["model-00001-of-00002.safetensors"] = {320, 12064, 5};
    saved.files["model-00002-of-00002.safetensors"] = {256, 44, 3};
    saved.indexed = true;
    saved.total_size = 12108;
    oracle.saved[Phase::kValues] = saved;
  }

  static TensorDescriptor DescribeWhole(const TensorCase& spec) {
    TensorDescriptor descriptor;
    descriptor.name = spec.name;
    descriptor.kind = spec.kind;
    descriptor.persistent = spec.persistent;
    descriptor.dtype = spec.dtype;
    descriptor.shape = descriptor.local_shape = spec.shape;
    descriptor.requires_grad = spec.requires_grad;
    descriptor.attributes = spec.attributes;
    descriptor.owned = {{0, descriptor.ElementCount(), 1, 0}};
    return descriptor;
  }

  static TensorDescriptor DescribeShard(const TensorCase& spec, int64_t ranks, int64_t rank) {
    TensorDescriptor descriptor = DescribeWhole(spec);
    if (spec.kind == "buffer" || spec.shape.empty()) {
      descriptor.placements = {{"replicate", 0, 1}};
      return descriptor;
    }
    descriptor.placements = {{"shard", 0, 1}};
    const int64_t rows = spec.shape[0];
    const int64_t chunk = (rows + ranks - 1) / ranks;
    const int64_t begin = std::min(rows, rank * chunk);
    const int64_t end = std::min(rows, begin + chunk);
    const uint64_t row = descriptor.ElementCount() / static_cast<uint64_t>(rows);
    descriptor.local_shape[0] = end - begin;
    descriptor.owned.clear();
    if (end > begin) {
      descriptor.owned = {
          {static_cast<uint64_t>(begin) * row, static_cast<uint64_t>(end - begin) * row, 1, 0}};
    }
    return descriptor;
  }

  /// The content that a tensor has at a stage of the efficient or the plain path.
  static Content ContentAt(const Made& tensor, const std::string& stage, bool reads) {
    if (tensor.defined_built || stage == "ready" || stage == "restored") return Content::kDefined;
    if (stage == "built") return Content::kNone;
    if (stage == "loaded" && reads && (tensor.in_source || tensor.spec.name == "head")) {
      return Content::kDefined;
    }
    return stage == "materialized" ? Content::kUndefined : Content::kNone;
  }

  void AddStage(RankEvidence& rank, int64_t ranks, const std::string& stage, bool reads) {
    StageRecord record;
    record.name = stage;
    record.complete = true;
    int64_t identity = 0;
    for (const auto& [name, tensor] : made) {
      const bool whole = stage == "built" || stage == "loaded";
      TensorDescriptor descriptor =
          whole ? DescribeWhole(tensor.spec) : DescribeShard(tensor.spec, ranks, rank.rank);
      descriptor.id = static_cast<int64_t>(rank.descriptors.size());
      const bool tied = name == "head" || name == "embed";
      descriptor.identity = tied ? 100 : identity++;
      if (tied && descriptor.OwnedElements() > 0) descriptor.alias_group = 0;
      TensorState state;
      state.descriptor = descriptor.id;
      state.content = ContentAt(tensor, stage, reads);
      state.is_meta = state.content == Content::kNone;
      state.device = state.is_meta ? "meta" : "cpu";
      if (state.content == Content::kDefined) {
        Measure(tensor.image, descriptor.dtype, *ElementBytes(descriptor.dtype), descriptor.owned,
                state);
      }
      rank.descriptors.push_back(std::move(descriptor));
      record.tensors[name] = std::move(state);
    }
    rank.stages.push_back(std::move(record));
  }

  void AddPhase(const std::string& name, const std::string& strategy, int64_t ranks) {
    PhaseEvidence phase;
    phase.phase = ParsePhase(name).value();
    phase.strategy = strategy;
    phase.mesh = {{"dp_shard", ranks}};
    for (int64_t r = 0; r < ranks; ++r) {
      RankEvidence rank;
      rank.rank = r;
      rank.world_size = ranks;
      rank.coordinates = {r};
      rank.host = "node" + std::to_string(r / 2);
      rank.closed = true;
      rank.exit = "ok";
      rank.keys = KeyReport{{"lost"}, {}};
      rank.collectives = {{0, "broadcast", 0, "U8", 60, {"w"}},
                          {1, "broadcast", 0, "U8", 60, {"big"}}};
      for (const char* stage :
           {"built", "loaded", "sharded", "materialized", "ready", "restored"}) {
        AddStage(rank, ranks, stage, r == 0 || strategy == "plain");
      }
      phase.ranks.push_back(std::move(rank));
    }
    evidence.phases.push_back(std::move(phase));
  }

  void AddMemoryPhase(int64_t ranks) {
    AddPhase("memory", "rank0-broadcast", ranks);
    PhaseEvidence& phase = evidence.phases.back();
    for (RankEvidence& rank : phase.ranks) {
      MemoryRecord memory;
      memory.idle_bytes = 10 << 20;
      memory.own_shard_bytes = 3 << 20;
      memory.peak_bytes = memory.idle_bytes + (4 << 20);
      memory.peak_stage = "ready";
      rank.memory = memory;
      for (auto& [name, state] : rank.stages.at(3).tensors) {
        state.storage_bytes = 1 << 20;
        state.committed_bytes = 4096;
      }
    }
  }

  std::string FileImage(const FileTensor& tensor) const {
    const auto saved = saved_images_.find(tensor.name);
    const bool is_source = evidence.oracle.source.tensors.contains(tensor.name) &&
                           &evidence.oracle.source.tensors.at(tensor.name) == &tensor;
    return saved == saved_images_.end() || is_source ? made.at(tensor.name).image : saved->second;
  }

  void CaptureState(const CaptureRequest& capture, const RankEvidence& rank, StageRecord& stage) {
    TensorState& state = stage.tensors.at(capture.tensor);
    if (state.content != Content::kDefined) return;
    const auto edited =
        images_.find({NameOf(capture.phase), rank.rank, stage.name, capture.tensor});
    const std::string& image =
        edited == images_.end() ? made.at(capture.tensor).image : edited->second;
    const TensorDescriptor& descriptor = rank.Descriptor(state);
    const uint64_t element_bytes = *ElementBytes(descriptor.dtype);
    for (const OwnedRun& run : descriptor.owned) {
      const uint64_t begin = std::max(run.start * element_bytes, capture.byte_start);
      const uint64_t end = std::min((run.start + run.length) * element_bytes,
                                    capture.byte_start + capture.byte_length);
      if (begin < end) state.bytes.push_back({begin, image.substr(begin, end - begin)});
    }
  }

  std::map<std::tuple<std::string, int64_t, std::string, std::string>, std::string> images_;
  std::map<std::string, std::string> saved_images_;
};

inline PropertyResult JudgeOne(const Evidence& evidence, const std::string& id) {
  return Judge(evidence, {id}).at(0);
}

/// What was found first; a test that looks at it fails if nothing was.
inline const Finding& FirstFinding(const PropertyResult& result) {
  static const Finding kNone;
  EXPECT_FALSE(result.judgement.findings().empty()) << result.judgement.reason();
  return result.judgement.findings().empty() ? kNone : result.judgement.findings()[0];
}

/// Fills element `index` of an image of 4-byte elements.
inline std::function<void(std::string&)> SetF32(uint64_t index, float value) {
  return [=](std::string& image) { std::memcpy(image.data() + 4 * index, &value, 4); };
}

inline std::function<void(std::string&)> FillBytes(char byte) {
  return [=](std::string& image) { std::fill(image.begin(), image.end(), byte); };
}

}  // namespace shardproof::testing
