#include "verify/engine/tensors_in_checkpoint.h"

#include <algorithm>
#include <map>

namespace shardproof {
namespace {

using formats::StoredTensor;

constexpr const char* kState = ".state.";

class Keeper {
 public:
  explicit Keeper(const formats::StoredCheckpoint& checkpoint) {
    for (const StoredTensor& stored : checkpoint.tensors) left_.emplace(stored.name, &stored);
  }

  void Take(const TensorCase& declared, const std::vector<StoredCase>& way) {
    if (way.empty()) return;
    for (const char* prefix : {"", "model."}) TakeParts(declared, way, prefix, "");
    // What is kept of it: with the first part's key in the middle.
    const std::string first = kState + way[0].key + ".";
    std::vector<std::string> keys;
    for (const auto& [key, stored] : left_) {
      if (key.find(first) != key.npos) keys.push_back(key);
    }
    for (const std::string& key : keys) {
      const size_t at = key.find(first) + std::string(kState).size();
      TakeParts(declared, way, key.substr(0, at), key.substr(at + way[0].key.size()));
    }
  }

  std::vector<WholeTensor> Finish() {
    for (const auto& [name, stored] : left_) kept_.push_back({name, stored->shape, {stored}});
    return std::move(kept_);
  }

 private:
  void TakeParts(const TensorCase& declared, const std::vector<StoredCase>& way,
                 const std::string& prefix, const std::string& leaf) {
    std::vector<const StoredTensor*> parts;
    bool fit = true, count = true;
    for (const StoredCase& part : way) {
      const auto found = left_.find(prefix + part.key + leaf);
      if (found == left_.end()) return;
      parts.push_back(found->second);
      fit = fit && found->second->shape == part.shape && found->second->dtype == parts[0]->dtype;
      count = count && found->second->shape.empty();
    }
    if (!fit && !count) return;  // each for itself, which nobody expects
    for (const StoredTensor* part : parts) left_.erase(part->name);
    WholeTensor& kept = kept_.emplace_back();
    kept.name = prefix + declared.name + leaf;
    kept.shape = fit ? declared.shape : std::vector<int64_t>();
    if (fit) {
      kept.parts = std::move(parts);
    } else {
      kept.parts = {parts[0]};
      kept.alike.assign(parts.begin() + 1, parts.end());
    }
  }

  std::map<std::string, const StoredTensor*> left_;
  std::vector<WholeTensor> kept_;
};

}  // namespace

std::vector<WholeTensor> TensorsKept(const formats::StoredCheckpoint& checkpoint,
                                     const std::vector<TensorCase>& declared) {
  Keeper keeper(checkpoint);
  for (const TensorCase& tensor : declared) {
    for (const auto& way : tensor.stored) keeper.Take(tensor, way);
  }
  return keeper.Finish();
}

}  // namespace shardproof
