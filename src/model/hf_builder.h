// Puts a ModelSpec together, tensor by tensor, in module order.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/model/hf_quantised.h"
#include "src/model/spec.h"

namespace shardproof {

/// What a rotary module computes: the formula, and how many frequencies.
struct Rotary {
  RopeSpec rope;
  int64_t frequencies = 0;
};

/// The names of one expert's three projections.
struct ExpertNames {
  const char* gate;
  const char* up;
  const char* down;
};

class SpecBuilder {
 public:
  explicit SpecBuilder(at::ScalarType dtype, Quantisation quantisation = {})
      : dtype_(dtype), quantisation_(std::move(quantisation)) {}

  TensorSpec& Weight(const std::string& name, std::vector<int64_t> shape);
  /// A norm's weight, and with `bias` its bias.
  void Norm(const std::string& module, int64_t size, bool bias = false);
  /// A linear layer's weight, quantised if it is to be, and with `bias` its bias.
  void Linear(const std::string& module, int64_t out, int64_t in, bool bias);
  /// All experts of a layer, packed: gate_up_proj [count, 2 * inner, hidden] with each expert's
  /// gate before its up, and down_proj [count, hidden, inner]. Checkpoints keep every projection of
  /// every expert under a key of its own.
  void Experts(const std::string& module, int64_t count, int64_t inner, int64_t hidden,
               const ExpertNames& names);
  /// inv_freq, and original_inv_freq, which keeps it as it was when the module was made.
  void InverseFrequencies(const std::string& module, const Rotary& rotary);

  /// From here on checkpoints keep names that begin with `from` under `to` in its place.
  void StoreUnder(std::string from, std::string to) { renamed_ = {std::move(from), std::move(to)}; }

  ModelSpec& spec() { return spec_; }

 private:
  TensorSpec& Add(TensorSpec tensor);
  /// \param stored  the keys that make it; none: its own name. \param form  null: as it is.
  TensorSpec& Matrix(const std::string& name, std::vector<int64_t> shape,
                     std::vector<StoredKey> stored, const QuantisedForm* form);

  at::ScalarType dtype_;
  Quantisation quantisation_;
  std::pair<std::string, std::string> renamed_;
  ModelSpec spec_;
};

}  // namespace shardproof
