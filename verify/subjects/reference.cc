#include "verify/subjects/reference.h"

#include <cmath>

#include "src/core/dtype.h"

namespace shardproof {
namespace {

InitialValue InitFromName(const std::string& name) {
  if (name == "ones") return InitialValue::kOnes;
  return name == "zeros" ? InitialValue::kZeros : InitialValue::kUniform;
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
    made.requires_grad = tensor.requires_grad && made.kind == TensorKind::kParameter;
    made.attributes = tensor.attributes;
    made.init = InitFromName(tensor.init);
    made.built_real = tensor.built_real;
    if (tensor.rope_theta) made.rope = RopeSpec{*tensor.rope_theta};
    spec.tensors.push_back(std::move(made));
  }
  return spec;
}

}  // namespace

Result<Job> JobFromCase(const Case& test_case, const PhasePlan& phase, const std::string& source,
                        const std::string& save_to) {
  Job job;
  job.checkpoint = source;
  if (!test_case.model.tensors.empty()) {
    SP_ASSIGN(job.model, SpecFromCase(test_case.model));
  }
  for (const AxisCase& axis : phase.mesh) job.mesh.axes.push_back({axis.name, axis.size});
  job.strategy = phase.strategy == "plain" ? Strategy::kPlain : Strategy::kRank0Broadcast;
  job.seed = test_case.seed;
  job.bucket_bytes = test_case.bucket_bytes;
  job.max_file_bytes = test_case.max_file_bytes;
  job.save_to = save_to;
  return job;
}

}  // namespace shardproof
