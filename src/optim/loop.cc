#include "src/optim/loop.h"

#include <numeric>
#include <utility>

#include "src/numeric/mix.h"

namespace shardproof {
namespace {

constexpr int64_t kGrowthInterval = 2;

template <typename Number>
Number Get(const Model& model, const char* key) {
  Number number{};
  model.loop.at(key)->CopyOut(0, &number, sizeof number);
  return number;
}

template <typename Number>
void Set(const Model& model, const char* key, Number number) {
  model.loop.at(key)->CopyIn(0, &number, sizeof number);
}

template <typename Number>
Status Begin(Model& model, const char* key, Number number, at::ScalarType dtype, const Job& job,
             World& world) {
  auto slot = std::make_shared<Slot>(
      TensorSpec{.name = key, .kind = TensorKind::kBuffer, .dtype = dtype, .requires_grad = false});
  slot->placements.resize(job.mesh.axes.size());  // whole on every rank
  slot->device = world.device->IsHost() ? nullptr : world.device.get();
  SP_ASSIGN(slot->value, slot->Allocate({}, *world.device));
  slot->content = SlotContent::kDefined;
  model.loop[key] = std::move(slot);
  Set(model, key, number);
  return Ok();
}

std::vector<int64_t> OrderOf(int64_t epoch, int64_t samples) {
  std::vector<int64_t> order(static_cast<size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  for (uint64_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i], order[Mix(Mix(static_cast<uint64_t>(epoch)) ^ i) % (i + 1)]);
  }
  return order;
}

bool HasGradient(const std::string& name, int64_t step, double share_without) {
  const uint64_t drawn = Mix(Mix(static_cast<uint64_t>(step)) ^ ~HashOfName(name)) >> 40;
  return static_cast<double>(drawn) >= share_without * 0x1p24;
}

}  // namespace

Status BeginLoop(Model& model, const Job& job, World& world) {
  const Training& training = job.training;
  if (training.samples > 0) {
    SP_TRY(Begin<int64_t>(model, kSamplerPosition, 0, at::kLong, job, world));
  }
  if (training.loss_scale <= 0) return Ok();
  const auto scale = static_cast<float>(training.loss_scale);
  SP_TRY(Begin(model, kLossScale, scale, at::kFloat, job, world));
  return Begin<int64_t>(model, kGrowthTracker, 0, at::kLong, job, world);
}

Batch ReadBatch(Model& model, int64_t step, const Job& job) {
  const Training& training = job.training;
  Batch batch{.step = step};
  const bool has_sampler = model.loop.contains(kSamplerPosition);
  int64_t position =
      has_sampler ? Get<int64_t>(model, kSamplerPosition) : (step - 1) * training.micro_batches;
  for (int64_t m = 0; m < training.micro_batches; ++m, ++position) {
    if (!has_sampler) {
      batch.samples.push_back(position + 1);
      continue;
    }
    const auto order = OrderOf(position / training.samples, training.samples);
    batch.samples.push_back(1 + order[position % training.samples]);
  }
  if (has_sampler) Set(model, kSamplerPosition, position);
  if (model.loop.contains(kLossScale)) batch.loss_scale = Get<float>(model, kLossScale);
  if (training.without_gradient <= 0) return batch;
  for (const auto& slot : model.Slots()) {
    const std::string& name = slot->spec.name;
    if (!HasGradient(name, step, training.without_gradient)) batch.without_gradient.insert(name);
  }
  return batch;
}

void UpdateLossScale(Model& model, bool overflowed) {
  const auto scale = Get<float>(model, kLossScale);
  const int64_t good = overflowed ? 0 : Get<int64_t>(model, kGrowthTracker) + 1;
  if (overflowed) Set(model, kLossScale, scale * 0.5f);
  if (good == kGrowthInterval) Set(model, kLossScale, scale * 2.0f);
  Set<int64_t>(model, kGrowthTracker, good % kGrowthInterval);
}

}  // namespace shardproof
