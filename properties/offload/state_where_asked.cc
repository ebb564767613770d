// offload.state_where_asked: the optimizer's state is on the host as far as was asked, and no
// further.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "verify/verdict/select.h"

namespace shardproof::offload::state_where_asked {
namespace {

/// Of one parameter's state, over all ranks.
struct Place {
  uint64_t elements = 0;            ///< of the whole parameter
  std::optional<bool> on_host;      ///< of the first part that was seen
  std::string first;                ///< which that was: "rank 0 has w.exp_avg"
  std::vector<std::string> others;  ///< what is in the other place
  std::vector<int64_t> ranks;       ///< that have those
};

constexpr const char* kParts[] = {".exp_avg", ".exp_avg_sq", ".master", ".average", ".step"};

/// The parameter whose state a tensor is; empty if it is none.
std::string ParameterOf(const std::string& tensor) {
  for (const std::string part : kParts) {
    if (tensor.ends_with(part)) return tensor.substr(0, tensor.size() - part.size());
  }
  return "";
}

std::map<std::string, Place> PlacesAt(const PhaseEvidence& phase, const std::string& key,
                                      Judgement& judgement) {
  std::map<std::string, Place> places;
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(key);
    if (record == nullptr) continue;
    for (const auto& [name, state] : record->tensors) {
      const TensorDescriptor& descriptor = rank.Descriptor(state);
      const std::string parameter = ParameterOf(name);
      // What has no bytes here is nowhere.
      if (parameter.empty() || descriptor.OwnedElements() == 0) continue;
      Place& place = places[parameter];
      if (!name.ends_with(".step")) place.elements = descriptor.ElementCount();
      judgement.Compared();
      const bool on_host = state.device == "cpu";
      const std::string what = fmt::format("rank {} has {} on {}", rank.rank, name, state.device);
      if (!place.on_host) {
        place.on_host = on_host;
        place.first = what;
      } else if (*place.on_host != on_host) {
        place.others.push_back(what);
        place.ranks.push_back(rank.rank);
      }
    }
  }
  return places;
}

void CheckStage(const PhaseEvidence& phase, const std::string& key, double fraction,
                Judgement& judgement) {
  uint64_t all = 0;
  uint64_t on_host = 0;
  uint64_t largest = 0;
  for (auto& [parameter, place] : PlacesAt(phase, key, judgement)) {
    if (!place.others.empty()) {
      judgement.Found(FindingAt(
          phase, key, parameter, "apart", place.ranks,
          fmt::format("its state is in two places: {}, {}", place.first, place.others.front())));
    }
    all += place.elements;
    largest = std::max(largest, place.elements);
    if (place.on_host.value_or(false)) on_host += place.elements;
  }
  if (all == 0) return;
  judgement.Compared();
  const double asked = fraction * static_cast<double>(all);
  const double most = fraction == 0 ? 0 : asked + static_cast<double>(largest);
  if (static_cast<double>(on_host) >= asked && static_cast<double>(on_host) <= most) return;
  Finding finding = FindingAt(
      phase, key, "", on_host < asked ? "too-little" : "too-much", {},
      fmt::format("state of {} of {} elements is on the host, where {:g} of it was asked for",
                  on_host, all, fraction));
  finding.expected = fmt::format("from {:g} to {:g} elements", asked, most);
  finding.seen = fmt::format("{} elements", on_host);
  finding.in_message = {.expected = false, .seen = false};
  judgement.Found(std::move(finding));
}

/// After every step, the optimizer's state of a parameter is in one place on all ranks; on the
/// host is at least the fraction that was asked for, and at most one parameter more; in phase
/// train_on_device nothing is.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (PhaseToJudge(evidence, Phase::kTrainOnDevice, judgement) == nullptr) return;
  if (evidence.test_case.device == "cpu") {
    judgement.Skipped("every tensor is in the host's memory");
    return;
  }
  for (const PhaseEvidence* phase : TrainPhases(evidence)) {
    const double fraction = phase->facts().offloads ? evidence.test_case.training.offload : 0;
    for (const std::string& key : TrainStages(*phase, "optimizer", judgement)) {
      CheckStage(*phase, key, fraction, judgement);
    }
  }
  judgement.Skipped("the optimizer keeps no state");
}

const PropertyRegistration kRegistration{{
    .id = "offload.state_where_asked",
    .claim = "The host holds the requested fraction of the optimizer state.",
    .reads = {{TrainingPhases(), {Stage::kStepped, Stage::kResumed}}},
    .tolerance = "one parameter: none is split",
    .source = "NVIDIA/Megatron-LM's hybrid device optimizer (--optimizer-offload-fraction)",
    .killed_by = {"offload.fraction_ignored"},
    .check = Check,
    .capabilities = {"train"},
    .judged_on = JudgedOn::kDevice,
}};

}  // namespace
}  // namespace shardproof::offload::state_where_asked
