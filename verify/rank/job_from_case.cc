#include "verify/rank/job_from_case.h"

#include <cmath>
#include <map>
#include <string>
#include <variant>

#include "src/aten/dtype.h"
#include "verify/case/fields.h"

namespace shardproof {
namespace {

InitialValue InitFromName(const std::string& name) {
  if (name == "ones") return InitialValue::kOnes;
  return name == "zeros" ? InitialValue::kZeros : InitialValue::kUniform;
}

RopeSpec RopeFrom(const RopeCase& rope) {
  return {.kind = RopeKindFromName(rope.type).value_or(RopeKind::kDefault),
          .theta = rope.theta,
          .dim = rope.dim,
          .factor = rope.factor,
          .low_freq_factor = rope.low_freq_factor,
          .high_freq_factor = rope.high_freq_factor,
          .original_length = rope.original_max_position_embeddings,
          .beta_fast = rope.beta_fast,
          .beta_slow = rope.beta_slow,
          .truncate = rope.truncate,
          .short_factor = rope.short_factor,
          .rotated = rope.rotated};
}

Result<ModelSpec> SpecFromCase(const ModelCase& model) {
  ModelSpec spec;
  spec.ties = model.ties;
  spec.init_scale = 0.02 * std::sqrt(3.0);
  for (const TensorCase& tensor : model.tensors) {
    const auto dtype = DtypeFromName(tensor.dtype);
    if (!dtype) {
      return BadInput("tensor '" + tensor.name + "': dtype " + tensor.dtype +
                      " is unknown: known are " + KnownDtypes());
    }
    TensorSpec made;
    made.name = tensor.name;
    made.kind = tensor.kind == "buffer" ? TensorKind::kBuffer : TensorKind::kParameter;
    made.persistent = tensor.persistent;
    made.dtype = *dtype;
    made.shape = tensor.shape;
    made.strides = tensor.strides;
    made.requires_grad = tensor.requires_grad && made.kind == TensorKind::kParameter;
    made.attributes = tensor.attributes;
    made.init = InitFromName(tensor.init);
    made.built_real = tensor.built_real;
    for (const auto& way : tensor.stored) {
      auto& keys = made.stored.emplace_back();
      for (const StoredCase& part : way) keys.push_back({part.key, part.shape});
    }
    if (tensor.rope) made.rope = RopeFrom(*tensor.rope);
    spec.tensors.push_back(std::move(made));
  }
  return spec;
}

using JobMember = std::variant<bool*, int64_t*, uint64_t*, double*, std::string*>;

/// Where a job has what it takes from a case as it is.
std::map<std::string, JobMember> CopiedTo(Job& job) {
  Training& training = job.training;
  return {{"seed", &job.seed},
          {"bucket_bytes", &job.bucket_bytes},
          {"max_file_bytes", &job.max_file_bytes},
          {"model/adapter", &job.adapter},
          {"model/from_scratch", &job.from_scratch},
          {"training/clip_norm", &training.clip_norm},
          {"training/clip_by_group", &training.clip_by_group},
          {"training/masters", &training.masters},
          {"training/unfreeze_after", &training.unfreeze_after},
          {"training/unfrozen_steps", &training.unfrozen_steps},
          {"training/without_gradient", &training.without_gradient},
          {"training/micro_batches", &training.micro_batches},
          {"training/samples", &training.samples},
          {"training/loss_scale", &training.loss_scale},
          {"training/average", &training.average},
          {"training/overlap", &training.overlap},
          {"training/keep", &training.keep},
          {"training/async", &training.async},
          {"training/gathered", &training.gathered},
          {"training/split_fused", &training.split_fused},
          {"training/learning_rate", &training.learning_rate},
          {"training/rate_decay", &training.rate_decay},
          {"training/weight_decay", &training.weight_decay},
          {"training/epsilon", &training.epsilon}};
}

}  // namespace

void CopyFields(const Case& test_case, Job& job) {
  const std::map<std::string, JobMember> members = CopiedTo(job);
  Case from = test_case;
  for (const FieldOfCase& field : FieldsOf(from)) {
    if (!field.row->copied) continue;
    const auto copy = [&](auto* member) { *member = *std::get<decltype(member)>(field.value); };
    std::visit(copy, members.at(field.path));
  }
}

Result<Job> JobFromCase(const Case& test_case, const PhasePlan& phase, const std::string& source,
                        const std::string& save_to) {
  Job job;
  job.checkpoint = source;
  if (!test_case.model.tensors.empty()) {
    SP_ASSIGN(job.model, SpecFromCase(test_case.model));
  }
  CopyFields(test_case, job);
  if (const auto& lora = test_case.model.lora) job.lora = LoraSpec{lora->rank, {lora->targets}};
  job.optimizer_first = test_case.optimizer == "before-sharding";
  for (const AxisCase& axis : phase.mesh) job.mesh.axes.push_back({axis.name, axis.size});
  const auto strategy = StrategyFromName(phase.strategy);
  if (!strategy) return BadInput("strategy '" + phase.strategy + "' is none of the reference's");
  job.strategy = *strategy;
  job.save_to = save_to;
  const TrainingCase& training = test_case.training;
  if (phase.trains) job.training.steps = test_case.steps;
  job.training.moments = training.moments == "BF16" ? at::kBFloat16 : at::kFloat;
  if (training.reduce != "none") {
    job.training.reduce = training.reduce == "BF16" ? at::kBFloat16 : at::kFloat;
  }
  job.training.offload = phase.facts().offloads ? training.offload : 0;
  const bool is_dcp = phase.trains && training.format == "dcp";
  job.format = is_dcp ? SaveFormat::kDcp : SaveFormat::kSafetensors;
  return job;
}

}  // namespace shardproof
