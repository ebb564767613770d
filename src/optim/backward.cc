#include "src/optim/backward.h"

#include <cmath>

#include "src/numeric/exact_sum.h"
#include "src/optim/elements.h"

namespace shardproof {
namespace {

/// Calls visit(gradients, begin, count) for all that this rank has of a parameter.
template <typename Visit>
void VisitGradients(Slot& parameter, Gradients& made, Visit visit) {
  const uint64_t elements = parameter.shard.ElementCount();
  for (uint64_t begin = 0; begin < elements; begin += kChunkElements) {
    const uint64_t count = std::min(kChunkElements, elements - begin);
    const HostChunk own(parameter, begin, count);
    for (uint64_t done = 0; done < count; done += Gradients::kElementsMax) {
      const uint64_t length = std::min(Gradients::kElementsMax, count - done);
      const std::byte* elements_of = own.data() + done * parameter.ElementBytes();
      visit(made.Make(parameter, elements_of, begin + done, length), length);
    }
  }
}

void AddSample(Slot& parameter, int64_t sample, float weight, Gradients& made, Slot& sum) {
  const uint64_t elements = parameter.shard.ElementCount();
  for (uint64_t begin = 0; begin < elements; begin += Gradients::kElementsMax) {
    const uint64_t count = std::min(Gradients::kElementsMax, elements - begin);
    const HostChunk own(parameter, begin, count);
    const HostChunk added(sum, begin, count);
    const float* gradients = made.OfSample(parameter, own.data(), sample, begin, count);
    float* const sums = added.floats();
    for (uint64_t i = 0; i < count; ++i) sums[i] = std::fmaf(gradients[i], weight, sums[i]);
    added.Return();
  }
}

}  // namespace

Status AccumulateGradients(Model& model, const Batch& batch, const Job&, World& world) {
  Optimizer& optimizer = *model.optimizer;
  optimizer.gradients.clear();
  Gradients made(batch, optimizer);
  const float weight = 1.0f / static_cast<float>(batch.samples.size());
  for (const int64_t sample : batch.samples) {
    SP_TRY(VisitStepped(optimizer, batch, [&](Slot& parameter, size_t) -> Status {
      auto& sum = optimizer.gradients[parameter.spec.name];
      if (sum == nullptr) {
        SP_ASSIGN(sum, MakeGradient(parameter, *world.device));
      }
      AddSample(parameter, sample, weight, made, *sum);
      return Ok();
    }));
  }
  return Ok();
}

Result<bool> GradientsOverflow(const Model& model, const Batch& batch, const Job&, World& world) {
  Gradients made(batch, *model.optimizer);
  bool overflows = false;
  SP_TRY(VisitStepped(*model.optimizer, batch, [&](Slot& parameter, size_t) -> Status {
    VisitGradients(parameter, made, [&](const float* gradients, uint64_t count) {
      const auto is_finite = [](float gradient) { return std::isfinite(gradient); };
      overflows = overflows || !std::all_of(gradients, gradients + count, is_finite);
    });
    return Ok();
  }));
  SP_ASSIGN(const int64_t any,
            world.communicator->Max(overflows ? 1 : 0, "gradients that overflow"));
  return any > 0;
}

Result<std::vector<float>> ClipGradients(const Model& model, const Batch& batch, const Job& job,
                                         World& world) {
  const Training& training = job.training;
  const size_t groups = model.optimizer->groups.size();
  if (training.clip_norm <= 0) return std::vector<float>(groups, 1.0f);
  const std::vector<int64_t> coordinates = job.mesh.CoordinatesOf(world.rank());
  std::vector<ExactSquareSum> sums(training.clip_by_group ? groups : 1);
  Gradients made(batch, *model.optimizer);
  SP_TRY(VisitStepped(*model.optimizer, batch, [&](Slot& parameter, size_t group) -> Status {
    if (!IsFirstReplica(parameter.placements, coordinates)) return Ok();
    ExactSquareSum& sum = sums[training.clip_by_group ? group : 0];
    VisitGradients(parameter, made,
                   [&](const float* gradients, uint64_t count) { sum.Add(gradients, count); });
    return Ok();
  }));
  std::vector<int64_t> parts;
  for (const ExactSquareSum& sum : sums) {
    const auto own = sum.Parts();
    parts.insert(parts.end(), own.begin(), own.end());
  }
  SP_ASSIGN(const std::vector<int64_t> all, world.communicator->Sum(parts, "the gradients' norm"));
  std::vector<float> scales;
  for (size_t i = 0; i < sums.size(); ++i) {
    auto whole = sums[i].Parts();
    std::copy_n(all.begin() + static_cast<int64_t>(i * whole.size()), whole.size(), whole.begin());
    const double norm = ExactSquareSum::FromParts(whole).Value();
    scales.push_back(ClippingScale(norm, training.clip_norm));
  }
  if (!training.clip_by_group) scales.resize(groups, scales.front());
  return scales;
}

}  // namespace shardproof
