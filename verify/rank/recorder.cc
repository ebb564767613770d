#include "verify/rank/recorder.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "src/aten/dtype.h"
#include "src/digest/digest.h"
#include "src/model/model.h"
#include "src/optim/optimizer.h"
#include "verify/oracle/oracle.h"
#include "verify/rank/pages.h"

namespace shardproof {
namespace {

sp_float_format FloatFormat(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return SP_F16;
    case at::kBFloat16:
      return SP_BF16;
    case at::kFloat:
    case at::kComplexFloat:
      return SP_F32;  // each part counts
    case at::kDouble:
      return SP_F64;
    case at::kFloat8_e4m3fn:
      return SP_F8_E4M3FN;
    case at::kFloat8_e5m2:
      return SP_F8_E5M2;
    default:
      return SP_NO_FLOAT;
  }
}

std::vector<int64_t> Vector(at::IntArrayRef sizes) { return sizes.vec(); }

/// Tensors that share storage get one number; the numbers follow the order of names.
class AliasGroups {
 public:
  int64_t Of(const at::Tensor& tensor) {
    const void* storage = tensor.storage().unsafeGetStorageImpl();
    return groups_.emplace(storage, static_cast<int64_t>(groups_.size())).first->second;
  }

 private:
  std::map<const void*, int64_t> groups_;
};

const char* KindName(Placement::Kind kind) {
  switch (kind) {
    case Placement::Kind::kReplicate:
      return "replicate";
    case Placement::Kind::kShard:
      return "shard";
    case Placement::Kind::kStridedShard:
      return "strided_shard";
  }
  return "?";
}

/// \param identities  numbers of those that were seen, by their own
TensorDescriptor Describe(const std::string& name, const Slot& slot, AliasGroups& aliases,
                          std::map<int64_t, int64_t>& identities) {
  TensorDescriptor d;
  d.name = name;
  d.kind = slot.spec.kind == TensorKind::kParameter ? "parameter" : "buffer";
  d.persistent = slot.spec.persistent;
  d.dtype = DtypeName(slot.value.scalar_type());
  d.shape = slot.spec.shape;
  d.local_shape = Vector(slot.value.sizes());
  d.local_stride = Vector(slot.value.strides());
  for (const Placement& placement : slot.placements) {
    d.placements.push_back({KindName(placement.kind), placement.dim, placement.split_factor});
  }
  for (const ElementRun& run : slot.shard.runs) {
    d.owned.push_back({run.start, run.length, run.count, run.stride});
  }
  d.alias_group = aliases.Of(slot.value);
  // By when it was first seen: what a process has made before must not show in the facts.
  const auto next = static_cast<int64_t>(identities.size());
  d.identity = identities.try_emplace(slot.identity, next).first->second;
  d.requires_grad = slot.spec.requires_grad;
  d.attributes = slot.spec.attributes;
  return d;
}

/// Whether its bytes are where the host does not read them.
bool IsElsewhere(const Slot& slot) {
  return slot.device != nullptr && slot.device->Holds(slot.value);
}

/// A slot's owned bytes as the digest reads them.
struct OwnedBytes {
  std::vector<sp_run> runs;
  uint64_t local_bytes = 0;   ///< by the runs
  uint64_t global_bytes = 0;  ///< of the whole tensor
};

/// \param data  the bytes of slot.value, where the host reads them.
OwnedBytes BytesOf(const Slot& slot, const std::byte* data) {
  OwnedBytes owned;
  const uint64_t element = slot.ElementBytes();
  for (const ElementRun& run : slot.shard.runs) {
    const uint64_t length = run.length * element;
    owned.runs.push_back({run.start * element, length, run.count, run.stride * element,
                          data + owned.local_bytes, static_cast<int64_t>(length)});
    owned.local_bytes += length * run.count;
  }
  owned.global_bytes = element;
  for (const int64_t size : slot.spec.shape) owned.global_bytes *= size;
  return owned;
}

/// A slot's bytes in row-major order where the host reads them: a copy, if they are elsewhere or
/// lie in another order, and it is `read`.
class HostView {
 public:
  HostView(const Slot& slot, bool read) {
    if (slot.value.is_meta()) return;
    data_ = static_cast<const std::byte*>(slot.value.const_data_ptr());
    if (!read || (slot.value.is_contiguous() && !IsElsewhere(slot))) return;
    copy_.resize(slot.value.nbytes());
    slot.CopyOut(0, copy_.data(), copy_.size());
    data_ = copy_.data();
  }
  const std::byte* data() const { return data_; }

 private:
  std::vector<std::byte> copy_;
  const std::byte* data_ = nullptr;
};

/// Calls visit(global start, data, length) for every stretch that overlaps [begin, end).
template <typename Visit>
void VisitStretches(const OwnedBytes& owned, uint64_t begin, uint64_t end, Visit visit) {
  for (const sp_run& run : owned.runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      const uint64_t start = run.global_start + i * run.global_stride;
      const uint64_t from = std::max(begin, start);
      const uint64_t to = std::min(end, start + run.length);
      if (from >= to) continue;
      visit(from, static_cast<const char*>(run.data) + i * run.data_stride + (from - start),
            to - from);
    }
  }
}

void RecordBytes(const OwnedBytes& owned, uint64_t begin, uint64_t end, TensorState& state) {
  VisitStretches(owned, begin, end, [&](uint64_t start, const char* data, uint64_t length) {
    // Stretches that touch become one range, so that a reader need not join them.
    if (!state.bytes.empty() &&
        state.bytes.back().start + state.bytes.back().bytes.size() == start) {
      state.bytes.back().bytes.append(data, length);
    } else {
      state.bytes.push_back({start, std::string(data, length)});
    }
  });
}

/// Of which at once it is asked whether there is any NaN or Inf.
constexpr uint64_t kAskedBytes = 64u << 10;

/// The global index of the first NaN or Inf owned: by counting in pieces, then element by element.
std::optional<uint64_t> FirstNonfinite(const OwnedBytes& owned, uint64_t element,
                                       sp_float_format format) {
  const auto has_any = [&](const char* data, uint64_t length) {
    sp_summary sum{};
    sp_count_non_finite(&sum, data, length, format);
    return sum.nan_count + sum.inf_count > 0;
  };
  std::optional<uint64_t> first;
  VisitStretches(owned, 0, owned.global_bytes,
                 [&](uint64_t start, const char* data, uint64_t length) {
                   const auto is_later = [&](uint64_t at) {
                     return at >= length || (first && (start + at) / element >= *first);
                   };
                   for (uint64_t piece = 0; !is_later(piece); piece += kAskedBytes) {
                     const uint64_t end = std::min(length, piece + kAskedBytes);
                     if (!has_any(data + piece, end - piece)) continue;
                     uint64_t at = piece;
                     while (at < end && !has_any(data + at, element)) at += element;
                     if (at < end && !is_later(at)) first = (start + at) / element;
                     return;
                   }
                 });
  return first;
}

void RecordValue(const Slot& slot, const OwnedBytes& owned, TensorState& state) {
  const sp_float_format format = FloatFormat(slot.value.scalar_type());
  const uint64_t side = oracle::GridBlockBytes(owned.global_bytes);
  uint64_t first_block = UINT64_MAX;
  uint64_t last_block = 0;
  for (const sp_run& run : owned.runs) {
    first_block = std::min(first_block, run.global_start / side);
    const uint64_t end = run.global_start + (run.count - 1) * run.global_stride + run.length;
    last_block = std::max(last_block, (end - 1) / side);
  }
  sp_summary summary{};
  if (!owned.runs.empty()) {
    std::vector<sp_digest> blocks(last_block - first_block + 1);
    // Not of these blocks' sum: what is digested in one go takes other ways through the kernel.
    sp_digest_runs(&summary, owned.runs.data(), owned.runs.size(), format);
    sp_summary of_blocks{};
    sp_digest_blocks(&of_blocks, blocks.data(), first_block, blocks.size(), side, owned.runs.data(),
                     owned.runs.size(), SP_NO_FLOAT);
    state.blocks = {side, first_block, {}};
    for (const sp_digest& block : blocks) state.blocks.blocks.emplace_back(block);
  }
  state.digest = Digest(summary.digest);
  state.nan_count = summary.nan_count;
  state.inf_count = summary.inf_count;
  if (summary.nan_count + summary.inf_count > 0) {
    state.first_nonfinite = FirstNonfinite(owned, slot.ElementBytes(), format);
  }
  if (owned.local_bytes <= kInlineBytesMax) RecordBytes(owned, 0, owned.global_bytes, state);
}

/// What can be recorded of a slot's value without asking what it should be.
TensorState Observe(const Slot& slot, RunMode mode, const std::vector<CaptureRequest>& captures,
                    const std::string& name) {
  TensorState state;
  state.is_meta = slot.value.is_meta();
  state.device = IsElsewhere(slot) && slot.value.is_cpu() ? "isolated" : slot.value.device().str();
  state.content = slot.content == SlotContent::kDefined     ? Content::kDefined
                  : slot.content == SlotContent::kUndefined ? Content::kUndefined
                                                            : Content::kNone;
  const HostView view(slot, mode == RunMode::kValues && state.content == Content::kDefined);
  // What a shard holds is judged by its real size, not by what it says it owns.
  const OwnedBytes owned = state.is_meta ? OwnedBytes{} : BytesOf(slot, view.data());
  if (state.is_meta || owned.local_bytes != slot.value.nbytes()) return state;
  sp_digest coverage{};
  sp_coverage_runs(&coverage, owned.runs.data(), owned.runs.size());
  state.coverage = Digest(coverage);
  if (mode == RunMode::kMemory || state.content != Content::kDefined) return state;
  RecordValue(slot, owned, state);
  for (const CaptureRequest& capture : captures) {
    if (capture.tensor != name || owned.local_bytes <= kInlineBytesMax) continue;
    RecordBytes(owned, capture.byte_start, capture.byte_start + capture.byte_length, state);
  }
  return state;
}

std::string DigestOfRng(const at::Generator& rng) {
  const at::Tensor state = rng.get_state();
  const sp_run run{0, state.nbytes(), 1, 0, state.const_data_ptr(), 0};
  sp_summary summary{};
  sp_digest_runs(&summary, &run, 1, SP_NO_FLOAT);
  return Digest(summary.digest).Hex();
}

}  // namespace

void Recorder::Keep(Status status) {
  if (status_.ok() && !status.ok()) status_ = std::move(status);
}

void Recorder::Enter(Stage stage) {
  working_on_ = NameOf(stage);
  writer_.SetStage(working_on_);
}

void Recorder::Reached(Stage stage, int64_t step, const Model& model) {
  AliasGroups aliases;
  std::set<const void*> counted;
  own_bytes_ = 0;
  own_device_bytes_ = 0;
  Keep(writer_.BeginStage(NameOf(stage), step));
  for (const auto& [name, slot] : model.Named()) {
    TensorState state = Observe(*slot, mode_, captures_, name);
    state.descriptor = writer_.Describe(Describe(name, *slot, aliases, identities_));
    Keep(writer_.State(name, state));
    if (state.is_meta) continue;
    const bool elsewhere = IsElsewhere(*slot);
    if (counted.insert(slot->value.storage().unsafeGetStorageImpl()).second) {
      (elsewhere ? own_device_bytes_ : own_bytes_) += slot->value.nbytes();
    }
    if (mode_ == RunMode::kMemory && !elsewhere) {
      const auto committed = CommittedBytes(slot->value.const_data_ptr(), slot->value.nbytes());
      if (committed)
        Keep(writer_.Pages(NameOf(stage), step, name, slot->value.nbytes(), *committed));
    }
  }
  if (model.rng && mode_ == RunMode::kValues) Keep(writer_.Rng(DigestOfRng(*model.rng)));
  Keep(writer_.EndStage());
  if (model.optimizer && model.optimizer->bound) RecordOptimizer(stage, step, model);
  for (const auto& slot : model.Slots()) {
    earlier_[slot->value.unsafeGetTensorImpl()] = slot->spec.name;
  }
}

void Recorder::RecordOptimizer(Stage stage, int64_t step, const Model& model) {
  AliasGroups aliases;
  Keep(writer_.BeginStage(NameOf(stage), step, "optimizer"));
  const auto record = [&](const Slot& slot) {
    TensorState seen = Observe(slot, mode_, captures_, slot.spec.name);
    seen.descriptor = writer_.Describe(Describe(slot.spec.name, slot, aliases, identities_));
    Keep(writer_.State(slot.spec.name, seen));
    (IsElsewhere(slot) ? own_device_bytes_ : own_bytes_) += slot.value.nbytes();
  };
  for (const auto& [parameter, state] : model.optimizer->state) {
    for (const auto& [key, slot] : state.Parts()) record(*slot);
  }
  for (const auto& [key, slot] : model.loop) record(*slot);
  Keep(writer_.Optimizer(Holdings(*model.optimizer, model)));
  Keep(writer_.EndStage());
}

OptimizerRecord Recorder::Holdings(const Optimizer& optimizer, const Model& model) const {
  std::map<const void*, std::string> names;
  for (const auto& slot : model.Slots()) {
    names[slot->value.unsafeGetTensorImpl()] = slot->spec.name;
  }
  OptimizerRecord record;
  for (const ParameterGroup& group : optimizer.groups) {
    OptimizerGroup& made = record.groups.emplace_back();
    made.options = OptionsOf(group);
    for (size_t i = 0; i < group.tensors.size(); ++i) {
      const void* object = group.tensors[i].unsafeGetTensorImpl();
      if (const auto name = names.find(object); name != names.end()) {
        made.parameters.push_back(name->second);
        continue;
      }
      const auto was = earlier_.find(object);
      record.strangers.push_back({static_cast<int64_t>(record.groups.size()) - 1,
                                  static_cast<int64_t>(i), was == earlier_.end() ? "" : was->second,
                                  Vector(group.tensors[i].sizes())});
    }
  }
  return record;
}

void Recorder::Keys(const std::vector<std::string>& missing,
                    const std::vector<std::string>& unexpected) {
  Keep(writer_.Keys({missing, unexpected}));
}

}  // namespace shardproof
