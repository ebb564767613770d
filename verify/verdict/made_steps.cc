#include "verify/verdict/made_steps.h"

#include <cmath>
#include <utility>

#include "verify/verdict/values.h"

namespace shardproof {
namespace {

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t HashOf(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

/// The sample at `position`, from 0 on, of all that are read of a set of `samples`; from 1 on.
int64_t SampleAt(int64_t position, int64_t samples) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < samples; ++i) order.push_back(i);
  const uint64_t epoch = Mix(static_cast<uint64_t>(position / samples));
  for (int64_t i = samples - 1; i > 0; --i) {
    const auto place = static_cast<uint64_t>(i);
    std::swap(order[place], order[Mix(epoch ^ place) % (place + 1)]);
  }
  return 1 + order[static_cast<size_t>(position % samples)];
}

}  // namespace

MadeStep::MadeStep(const TrainingCase& training, int64_t step, float loss_scale)
    : training_(training), step_(step), loss_scale_(loss_scale) {
  for (int64_t i = 0; i < training.micro_batches; ++i) {
    const int64_t position = (step - 1) * training.micro_batches + i;
    samples_.push_back(training.samples > 0 ? SampleAt(position, training.samples) : position + 1);
  }
}

bool MadeStep::TrainsFrozen() const {
  if (training_.unfreeze_after == 0 || step_ <= training_.unfreeze_after) return false;
  return training_.unfrozen_steps == 0 ||
         step_ <= training_.unfreeze_after + training_.unfrozen_steps;
}

bool MadeStep::HasGradient(const std::string& name) const {
  const uint64_t drawn = Mix(Mix(static_cast<uint64_t>(step_)) ^ ~HashOf(name)) >> 40;
  return static_cast<double>(drawn) >= training_.without_gradient * 0x1p24;
}

float MadeStep::GradientOf(const std::string& name, uint64_t index, float value) const {
  const uint64_t hash = HashOf(name);
  const float v = std::isnan(value) ? 0 : value > 1 ? 1 : value < -1 ? -1 : value;
  const auto of_sample = [&](int64_t sample) {
    const uint64_t drawn = Mix((Mix(static_cast<uint64_t>(sample)) ^ hash) + index) >> 40;
    const float u = (static_cast<float>(drawn) - 0x1p23f) * 0x1p-23f;
    const float gradient = std::fmaf(v, 0x1p-3f, u * 0x1p-4f);
    return loss_scale_ > 0 ? RoundThroughF16(gradient * loss_scale_) * (1.0f / loss_scale_)
                           : gradient;
  };
  if (training_.reduce != "none") {
    const float grain = Grain();
    float sum = 0;  // which is exact
    for (const int64_t sample : samples_) sum += std::trunc(of_sample(sample) / grain) * grain;
    return sum * (1.0f / static_cast<float>(samples_.size()));
  }
  if (samples_.size() == 1) return of_sample(samples_[0]);
  const float weight = 1.0f / static_cast<float>(samples_.size());
  float sum = 0;
  for (const int64_t sample : samples_) sum = std::fmaf(of_sample(sample), weight, sum);
  return sum;
}

float MadeStep::Grain() const {
  const double largest = 3.0 / 16 * static_cast<double>(samples_.size());
  int exponent = 0;
  while (std::ldexp(0.25, exponent) <= largest) ++exponent;
  return std::ldexp(0.25f, exponent - (training_.reduce == "BF16" ? 8 : 24));
}

int64_t MadeStep::SamplesRead() const { return step_ * training_.micro_batches; }

uint16_t HalfBits(float value) {
  const float rounded = RoundThroughF16(value);
  const uint16_t sign = std::signbit(rounded) ? 0x8000 : 0;
  if (std::isnan(rounded)) return sign | 0x7e00;
  if (std::isinf(rounded)) return sign | 0x7c00;
  const float size = std::fabs(rounded);
  if (size < 0x1p-14f) return sign | static_cast<uint16_t>(size * 0x1p24f);
  int exponent = 0;
  const float fraction = std::frexp(size, &exponent);  // of [0.5, 1)
  const auto mantissa = static_cast<uint16_t>((fraction * 2 - 1) * 0x1p10f);
  return static_cast<uint16_t>(sign | (exponent + 14) << 10 | mantissa);
}

}  // namespace shardproof
