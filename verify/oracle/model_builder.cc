#include "verify/oracle/model_builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "verify/oracle/dtype.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

/// Ten times what the largest models have.
constexpr int64_t kExpertPartsMax = 1 << 20;
constexpr int kElementBitsMax = 56;

}  // namespace

ModelBuilder::ModelBuilder(const std::string& dtype, double initializer_range,
                           QuantisedConfig quantised)
    : dtype_(dtype.empty() ? "F32" : dtype), quantised_(std::move(quantised)) {
  model_.init_scale = initializer_range * std::sqrt(3.0);
}

TensorCase& ModelBuilder::Add(const std::string& name, std::vector<int64_t> shape,
                              const std::string& init) {
  TensorCase& tensor = model_.tensors.emplace_back();
  tensor.name = name;
  tensor.dtype = dtype_;
  tensor.init = init;
  for (const auto& [prefix, stored] : prefixes_) {
    if (name.starts_with(prefix)) {
      tensor.stored.push_back({{stored + name.substr(prefix.size()), shape}});
    }
  }
  tensor.shape = std::move(shape);
  return tensor;
}

TensorCase& ModelBuilder::AddBuffer(const std::string& name, std::vector<int64_t> shape) {
  TensorCase& buffer = Add(name, std::move(shape), "uniform");
  buffer.kind = "buffer";
  buffer.dtype = "F32";
  buffer.requires_grad = false;
  return buffer;
}

void ModelBuilder::Weight(const std::string& name, std::vector<int64_t> shape) {
  Add(name, std::move(shape), "uniform");
}

void ModelBuilder::Norm(const std::string& name, int64_t size) { Add(name, {size}, "ones"); }

void ModelBuilder::Bias(const std::string& name, int64_t size) { Add(name, {size}, "zeros"); }

void ModelBuilder::Linear(const std::string& name, int64_t in, int64_t out, bool bias) {
  const bool quantised = quantised_.Has(name);
  model_.linears.insert(name);
  Packed(name + ".weight", {out, in}, {}, quantised);
  if (!bias) return;
  Bias(name + ".bias", out);
  if (quantised) model_.tensors.back().requires_grad = quantised_.weight().requires_grad;
}

void ModelBuilder::Packed(const std::string& name, std::vector<int64_t> shape,
                          const std::vector<StoredCase>& parts, bool quantised) {
  TensorCase& codes = Add(name, shape, "uniform");
  if (!parts.empty()) codes.stored = {parts};
  if (!quantised) return;
  const QuantisedWeight& weight = quantised_.weight();
  codes.dtype = weight.dtype;
  codes.requires_grad = weight.requires_grad;
  TensorCase& scales = Add(name + weight.scale_ending, weight.ScaleShape(std::move(shape)), "ones");
  if (!weight.scale_dtype.empty()) scales.dtype = weight.scale_dtype;
  scales.requires_grad = weight.requires_grad;
  if (parts.empty()) return;
  scales.stored = {{}};
  for (const StoredCase& part : parts) {
    scales.stored[0].push_back({part.key + weight.scale_ending, weight.ScaleShape(part.shape)});
  }
}

void ModelBuilder::LayerNorm(const std::string& name, int64_t size) {
  Norm(name + ".weight", size);
  Bias(name + ".bias", size);
}

void ModelBuilder::Experts(const std::string& name, const ExpertSizes& sizes,
                           const ExpertNames& names) {
  expert_parts_ += 3 * sizes.count;
  if (expert_parts_ > kExpertPartsMax) return;
  const int64_t hidden = sizes.hidden_size;
  const int64_t intermediate = sizes.intermediate_size;
  std::vector<StoredCase> gate_up;
  std::vector<StoredCase> down;
  for (int64_t expert = 0; expert < sizes.count; ++expert) {
    const auto key = [&](const char* part) {
      return fmt::format("{}.{}.{}.weight", name, expert, part);
    };
    gate_up.push_back({key(names.gate), {intermediate, hidden}});
    gate_up.push_back({key(names.up), {intermediate, hidden}});
    down.push_back({key(names.down), {hidden, intermediate}});
  }
  const bool quantised = quantised_.Has(name);
  if (quantised) quantised_expert_height_ = intermediate;
  Packed(name + ".gate_up_proj", {sizes.count, 2 * intermediate, hidden}, gate_up, quantised);
  Packed(name + ".down_proj", {sizes.count, hidden, intermediate}, down, quantised);
}

void ModelBuilder::ExpertBias(const std::string& name, int64_t size) {
  AddBuffer(name, {size}).init = "zeros";
}

void ModelBuilder::Rotary(const std::string& name, const RotaryConfig& rotary) {
  for (const char* buffer : {".inv_freq", ".original_inv_freq"}) {
    TensorCase& tensor = AddBuffer(name + buffer, {rotary.count});
    tensor.persistent = false;
    tensor.rope = rotary.rope;
    tensor.stored.clear();
  }
}

void ModelBuilder::Tie(const std::string& first, const std::string& second) {
  model_.ties.push_back({first, second});
}

void ModelBuilder::StoreUnder(const std::string& prefix, const std::string& stored) {
  prefixes_.emplace_back(prefix, stored);
}

Status ModelBuilder::CheckQuantised(const Fields& config) const {
  const int64_t block = quantised_.weight().block_height;
  if (quantised_expert_height_ % block != 0) {
    return config.Wrong("moe_intermediate_size",
                        fmt::format("a multiple of weight_block_size[0] {}, so that the scales of "
                                    "gate and up can be packed",
                                    block),
                        quantised_expert_height_);
  }
  if (model_.ties.empty() || !quantised_.Has("lm_head")) return Unit{};
  return BadInput(
      fmt::format("{}: quantization_config: {}: expected lm_head in it, which is tied to "
                  "the embeddings, found it left out",
                  config.where(), quantised_.ListOfKept()));
}

Result<DeclaredModel> ModelBuilder::Finish(const Fields& config) {
  if (expert_parts_ > kExpertPartsMax) {
    return BadInput(
        fmt::format("{}: num_experts: expected at most {} tensors of experts in all "
                    "layers, found {}",
                    config.where(), kExpertPartsMax, expert_parts_));
  }
  SP_TRY(CheckQuantised(config));
  for (const TensorCase& tensor : model_.tensors) {
    const auto elements = CheckedElements(tensor.shape.data(), tensor.shape.size());
    if (elements && *elements >> kElementBitsMax == 0) continue;
    return BadInput(fmt::format(
        "{}: expected sizes that give tensors of fewer than 2^{} elements, "
        "found {} of shape [{}]",
        config.where(), kElementBitsMax, Quote(tensor.name), fmt::join(tensor.shape, ", ")));
  }
  return std::move(model_);
}

}  // namespace shardproof::oracle
