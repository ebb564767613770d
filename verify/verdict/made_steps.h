// What a step of the reference is computed from, said once more and apart from the pipeline: which
// samples it reads, which parameters have gradients in it, and what these are. The formulas stand
// in src/optim/loop.h, src/optim/gradient.h and src/optim/reduce.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/case/case.h"

namespace shardproof {

class MadeStep {
 public:
  /// \param step        counts from 1.
  /// \param loss_scale  before it; 0: the loss is not scaled.
  MadeStep(const TrainingCase& training, int64_t step, float loss_scale);

  /// Whether what the model has frozen is trained in it.
  bool TrainsFrozen() const;
  bool HasGradient(const std::string& name) const;
  /// Of one element, before clipping; infinite if it overflows.
  /// \param index  of the global row-major order.
  float GradientOf(const std::string& name, uint64_t index, float value) const;
  /// How many samples the job has read after it.
  int64_t SamplesRead() const;

 private:
  /// What gradients are a multiple of, where they are added up over ranks.
  float Grain() const;

  const TrainingCase& training_;
  const int64_t step_;
  const float loss_scale_;
  std::vector<int64_t> samples_;
};

/// The number of steps in turn without an overflow after which the loss scale is doubled.
inline constexpr int64_t kScaleGrowthInterval = 2;

/// The bits of a value that F16 rounds to nearest.
uint16_t HalfBits(float value);

}  // namespace shardproof
