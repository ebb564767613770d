// AdamW on stretches of memory, bit for bit alike however a tensor is cut and on whichever
// processor.
#pragma once

#include <cstdint>

#include "src/numeric/adamw_element.h"

namespace shardproof {

struct AdamWSettings {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

/// \param step  counts from 1.
/// \param gradient_scale  what clipping multiplies every gradient by.
AdamWScalars ScalarsOf(const AdamWSettings& settings, int64_t step, float gradient_scale);

/// Numbers in one of the dtypes that state may be kept in.
struct FloatBuffer {
  void* data = nullptr;
  bool is_bf16 = false;  ///< else F32
};

/// The same elements of everything that belongs to a parameter. None overlaps another.
struct AdamWElements {
  FloatBuffer parameter;
  const float* gradient = nullptr;
  FloatBuffer first;  ///< moments; in bf16 they are rounded at every step
  FloatBuffer second;
  uint64_t count = 0;
};

/// One step on the host, on the calling thread.
void StepAdamW(const AdamWScalars& scalars, const AdamWElements& elements);

}  // namespace shardproof
