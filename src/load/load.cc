#include "src/load/load.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "src/aten/torch_try.h"
#include "src/load/buckets.h"
#include "src/load/dcp_source.h"
#include "src/load/training_source.h"
#include "src/load/verify.h"
#include "src/model/initial_value.h"
#include "src/model/lora.h"
#include "src/model/rope.h"

namespace shardproof {
namespace {

/// PEFT keeps a copy of some layers that have an adapter (lm_head) in the adapter's file, and puts
/// it in the base's place when it loads. A copy of a layer without one has no place.
void TakeBaseLayers(Source& source) {
  constexpr std::string_view kPrefix = kAdapterKeyPrefix;
  constexpr std::string_view kLayer = ".base_layer.";
  std::vector<std::string> copies;
  for (const auto& [key, tensor] : source.tensors) {
    const size_t layer = key.rfind(kLayer);
    if (!key.starts_with(kPrefix) || layer == std::string::npos || layer < kPrefix.size()) continue;
    const std::string leaf = key.substr(layer + kLayer.size());
    const bool adapted = source.tensors.contains(key.substr(0, layer) + ".lora_A.weight");
    if (adapted && (leaf == "weight" || leaf == "bias")) copies.push_back(key);
  }
  for (const std::string& key : copies) {
    const size_t layer = key.rfind(kLayer);
    const std::string base = key.substr(kPrefix.size(), layer - kPrefix.size()) + "." +
                             key.substr(layer + kLayer.size());
    SourceTensor copy = source.tensors.at(key);
    if (copy.key.empty()) copy.key = key;
    source.tensors.insert_or_assign(base, std::move(copy));
    source.tensors.erase(key);
  }
}

/// The checkpoint, and the adapter that goes with it; nothing if there is nothing to load.
Result<Source> OpenSourceOf(const Job& job, FileSystem& files) {
  Source source;
  if (!job.from_scratch) {
    const bool is_dcp = HoldsDcp(files, job.checkpoint);
    SP_ASSIGN(source,
              is_dcp ? OpenDcpSource(files, job.checkpoint) : OpenSource(files, job.checkpoint));
    if (!is_dcp) SP_TRY(AddTrainingState(files, job.checkpoint, source));
    SP_TRY(HoldAgainstManifest(files, job.checkpoint, 0, source));
    if (is_dcp) return source;  // an adapter is among the model's own tensors
  }
  if (!job.adapter.empty()) {
    const size_t first_file = source.files.size();
    SP_TRY(AddFile(files, job.adapter, kAdapterFileName, source));
    SP_TRY(HoldAgainstManifest(files, job.adapter, first_file, source));
    TakeBaseLayers(source);
  }
  return source;
}

/// A read-only view of a tensor in the mapping.
at::Tensor MappedTensor(const Source& source, const SourceTensor& tensor,
                        const std::vector<int64_t>& shape) {
  // ATen has no const views; nothing writes to a loaded slot before it is replaced by a shard.
  void* data = const_cast<std::byte*>(source.BytesOf(tensor));
  return at::from_blob(data, shape, at::TensorOptions().dtype(tensor.dtype));
}

}  // namespace

Result<Source> OpenSourceOnEveryRank(const Job& job, World& world) {
  Result<Source> source = OpenSourceOf(job, *world.files);
  SP_TRY(Agree(*world.communicator, source.ok() ? Ok() : Status(source.error()),
               "opening the checkpoint"));
  return source;
}

Result<Source> OpenSourceOnRank0(const Job& job, World& world) {
  Result<Source> source = Source{};
  if (world.rank() == 0) source = OpenSourceOf(job, *world.files);
  SP_TRY(Agree(*world.communicator, source.ok() ? Ok() : Status(source.error()),
               "opening the checkpoint"));
  SP_ASSIGN(const std::string text,
            ShareText(*world.communicator, world.rank() == 0 ? DescribeSource(source.value()) : "",
                      0, "the checkpoint's tensors"));
  if (world.rank() == 0) return source;
  return SourceFromDescription(text);
}

Status LoadViews(Model&, const KeyMatch& keys, const Source& source, const Job&, World&) {
  for (const auto& [slot, parts] : keys.loads) {
    slot->content = SlotContent::kNone;  // a value made at build is only a placeholder now
    if (!source.mapped() || parts.size() != 1) continue;
    const SourceTensor& tensor = source.tensors.at(parts[0].key);
    if (!tensor.IsOneStretch()) continue;
    slot->value = MappedTensor(source, tensor, slot->spec.shape);
    slot->content = SlotContent::kDefined;
  }
  return Ok();
}

Status LoadCopies(Model&, const KeyMatch& keys, const Source& source, const Job&, World& world) {
  for (const auto& [slot, parts] : keys.loads) {
    SP_ASSIGN(slot->value, slot->Allocate(slot->spec.shape, *world.device));
    for (const KeyPart& part : parts) {
      const auto copy = [&](uint64_t start, int64_t file, uint64_t offset, uint64_t length) {
        slot->CopyIn(part.start + start, source.BytesAt(file, offset), length);
      };
      source.tensors.at(part.key).VisitStretches(0, part.length, copy);
    }
    slot->content = SlotContent::kDefined;
  }
  return Ok();
}

Status FillNothing(Model&, KeyMatch&, const Source&, const Stages&, const Job&, World&) {
  return Ok();
}

Status InitMissing(Model& model, const KeyMatch& keys, const Job& job, World&) {
  for (const auto& slot : keys.missing) {
    // A buffer that the model made itself on the real device has its value already.
    if (!slot->spec.built_real) FillInitialValue(*slot, job.seed, model.init_scale);
  }
  return Ok();
}

Status ComputeBuffers(Model& model, const Job& job, World&) {
  for (const auto& slot : model.Slots()) {
    if (slot->spec.persistent || slot->content == SlotContent::kDefined) continue;
    if (!slot->spec.rope) {
      FillInitialValue(*slot, job.seed, model.init_scale);
      continue;
    }
    FillInverseFrequencies(*slot);
  }
  return Ok();
}

}  // namespace shardproof
