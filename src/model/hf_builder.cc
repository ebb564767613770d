#include "src/model/hf_builder.h"

namespace shardproof {

TensorSpec& SpecBuilder::Add(TensorSpec tensor) {
  const auto& [from, to] = renamed_;
  if (!from.empty() && tensor.persistent && tensor.name.starts_with(from)) {
    tensor.stored = {{{to + tensor.name.substr(from.size()), tensor.shape}}};
  }
  return spec_.tensors.emplace_back(std::move(tensor));
}

TensorSpec& SpecBuilder::Weight(const std::string& name, std::vector<int64_t> shape) {
  return Add({.name = name, .dtype = dtype_, .shape = std::move(shape)});
}

void SpecBuilder::Norm(const std::string& module, int64_t size, bool bias) {
  Weight(module + ".weight", {size}).init = InitialValue::kOnes;
  if (bias) Weight(module + ".bias", {size}).init = InitialValue::kZeros;
}

TensorSpec& SpecBuilder::Matrix(const std::string& name, std::vector<int64_t> shape,
                                std::vector<StoredKey> stored, const QuantisedForm* form) {
  const size_t index = spec_.tensors.size();
  TensorSpec& matrix = Weight(name, shape);
  if (!stored.empty()) matrix.stored = {stored};
  if (form == nullptr) return matrix;
  matrix.dtype = form->codes;
  matrix.requires_grad = form->trained;
  TensorSpec& factors = Weight(name + form->suffix, form->FactorShape(std::move(shape)));
  factors.dtype = form->factors.value_or(dtype_);
  factors.requires_grad = form->trained;
  factors.init = InitialValue::kOnes;
  for (StoredKey& one : stored) one = {one.key + form->suffix, form->FactorShape(one.shape)};
  if (!stored.empty()) factors.stored = {std::move(stored)};
  return spec_.tensors[index];
}

void SpecBuilder::Linear(const std::string& module, int64_t out, int64_t in, bool bias) {
  const QuantisedForm* form = quantisation_.Of(module);
  Matrix(module + ".weight", {out, in}, {}, form).linear = true;
  if (!bias) return;
  TensorSpec& added = Weight(module + ".bias", {out});
  added.init = InitialValue::kZeros;
  added.requires_grad = form == nullptr || form->trained;
}

void SpecBuilder::Experts(const std::string& module, int64_t count, int64_t inner, int64_t hidden,
                          const ExpertNames& names) {
  std::vector<StoredKey> gate_up;
  std::vector<StoredKey> down;
  for (int64_t expert = 0; expert < count; ++expert) {
    const std::string prefix = module + "." + std::to_string(expert) + ".";
    gate_up.push_back({prefix + names.gate + ".weight", {inner, hidden}});
    gate_up.push_back({prefix + names.up + ".weight", {inner, hidden}});
    down.push_back({prefix + names.down + ".weight", {hidden, inner}});
  }
  const QuantisedForm* form = quantisation_.Of(module);
  Matrix(module + ".gate_up_proj", {count, 2 * inner, hidden}, std::move(gate_up), form);
  Matrix(module + ".down_proj", {count, hidden, inner}, std::move(down), form);
}

void SpecBuilder::InverseFrequencies(const std::string& module, const Rotary& rotary) {
  for (const char* name : {".inv_freq", ".original_inv_freq"}) {
    Add({.name = module + name,
         .kind = TensorKind::kBuffer,
         .persistent = false,
         .shape = {rotary.frequencies},
         .requires_grad = false,
         .rope = rotary.rope});
  }
}

}  // namespace shardproof
