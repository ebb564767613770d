#include "verify/evidence/evidence.h"

#include <stdexcept>

namespace shardproof {

uint64_t TensorDescriptor::ElementCount() const {
  uint64_t count = 1;
  for (const int64_t size : shape) count *= static_cast<uint64_t>(size);
  return count;
}

uint64_t TensorDescriptor::OwnedElements() const {
  uint64_t count = 0;
  for (const OwnedRun& run : owned) count += run.length * run.count;
  return count;
}

std::string StageRecord::Key() const { return ModelKey() + (of == "model" ? "" : "." + of); }

std::string StageRecord::ModelKey() const {
  return name + (step > 0 ? "@" + std::to_string(step) : "");
}

bool StageRecord::Is(const std::string& key) const {
  const bool plain = step == 0 && of == "model";  // nearly all are: no string is made for them
  return plain ? name == key : Key() == key;
}

const StageRecord* RankEvidence::Stage(const StageKey& key) const {
  // The last one: a stage that is reached again (the next step, say) replaces the earlier.
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    if (stage->Is(key)) return &*stage;
  }
  return nullptr;
}

const GroupsRecord* RankEvidence::Groups(const TensorDescriptor& descriptor) const {
  return descriptor.groups < 0 ? nullptr : &groups.at(static_cast<size_t>(descriptor.groups));
}

const TensorDescriptor& RankEvidence::Descriptor(const TensorState& state) const {
  if (state.descriptor < 0 || state.descriptor >= static_cast<int64_t>(descriptors.size())) {
    throw std::out_of_range("rank " + std::to_string(rank) + " refers to descriptor " +
                            std::to_string(state.descriptor) + ", of which there are " +
                            std::to_string(descriptors.size()));
  }
  return descriptors[state.descriptor];
}

const PhaseEvidence* Evidence::Phase(shardproof::Phase phase) const {
  for (const PhaseEvidence& each : phases) {
    if (each.phase == phase) return &each;
  }
  return nullptr;
}

const std::string* Evidence::WhyCannot(const std::string& capability) const {
  const auto found = cannot.find(capability);
  return found == cannot.end() ? nullptr : &found->second;
}

}  // namespace shardproof
