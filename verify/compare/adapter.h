// A LoRA adapter in PEFT's files, merged into the tensors that it adapts.
#pragma once

#include <map>
#include <string>

#include "verify/compare/checkpoint.h"

namespace shardproof::compare {

/// What an adapter makes of tensors: weight + alpha / r * B @ A, and those that it has whole.
class Adapter {
 public:
  /// \param files  of the directory; outlives this. \param a  the base model.
  /// \error kBadInput: no adapter_config.json of LoRA, a tensor of another kind than lora_A, lora_B
  /// or one of the model, a tensor that A does not have, half of a pair; kUnsupported: DoRA.
  static Result<Adapter> Of(const std::string& directory, const Checkpoint& files,
                            const Checkpoint& a);

  /// What stands for a tensor of A. \error kBadInput: shapes that do not fit.
  Result<maps::ViewPtr> View(const formats::StoredTensor& tensor) const;

 private:
  struct Part {
    const formats::StoredTensor* a = nullptr;
    const formats::StoredTensor* b = nullptr;
    const formats::StoredTensor* base = nullptr;  ///< what it is merged into, in place of A's
    const formats::StoredTensor* whole = nullptr;
    bool embeds = false;
  };

  Status Add(const formats::StoredTensor& tensor, const Checkpoint& base);
  Status ReadConfig(const std::string& path);
  double FactorOf(const std::string& name, int64_t rank) const;

  std::string where_;
  std::map<std::string, Part> parts_;     ///< by the name in A
  std::map<std::string, double> alphas_;  ///< by the end of a module's name; "" for all others
  bool by_root_ = false;                  ///< alpha / sqrt(r)
  bool turned_ = false;                   ///< weights are [in, out]
};

}  // namespace shardproof::compare
