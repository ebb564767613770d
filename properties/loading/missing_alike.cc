// loading.missing_alike: what the checkpoint lacks is initialised, and alike on all ranks.
#include <fmt/format.h>

#include <vector>

#include "verify/verdict/expectation.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/select.h"

namespace shardproof::loading::missing_alike {
namespace {

/// Names of which the checkpoint has no value, not under a tied name either.
std::vector<std::string> MissingNames(const OracleRecord& oracle) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : oracle.declared) {
    const bool computed = !IsPersistent(oracle, name) || oracle.derived.contains(name);
    const Against::What from = ExpectedOf(oracle, name).from.what;
    const bool has_value = from == Against::What::kCheckpoint || from == Against::What::kTwin;
    if (!computed && !has_value) names.push_back(name);
  }
  return names;
}

/// Against the initial value, where it is known; else every replica against the first.
void CheckTensor(const Evidence& evidence, const PhaseEvidence& phase, const std::string& stage,
                 const std::string& name, Judgement& judgement) {
  if (ImagesOf(phase, stage, name).empty()) {
    judgement.Inconclusive(
        fmt::format("no rank has {} at `{}` of phase {}", name, stage, phase.name()));
  }
  const std::vector<Image> defined =
      DefinedImages(phase, stage, name, judgement, Undefined::kFinding);
  if (defined.empty()) return;
  judgement.Compared(defined.size());
  const Expectation initial = ExpectedOf(evidence.oracle, name);
  const bool known = initial.tensor != nullptr;
  const Against replica{Against::What::kReplica, phase.phase, stage, defined[0].Ranks().front()};
  const Comparison comparison{evidence, phase, stage, name, known ? initial.from : replica, {}};
  const Image expected = known ? ImageOf(*initial.tensor) : defined[0];
  for (Finding& finding : CompareAll(comparison, expected, defined)) {
    judgement.Found(std::move(finding));
  }
}

/// Every key that the model has and the checkpoint lacks has a value, the same on every
/// replica; in the reference pipeline the one that initialisation gives it from seed, name and
/// index. (How a framework initialises is its own matter.)
void Check(const Evidence& evidence, Judgement& judgement) {
  const std::vector<std::string> names = MissingNames(evidence.oracle);
  if (names.empty()) {
    judgement.Skipped("the checkpoint lacks no key of the model");
    return;
  }
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    for (const std::string& stage : FinalStages(*phase, judgement)) {
      for (const std::string& name : names) CheckTensor(evidence, *phase, stage, name, judgement);
    }
  }
}

const PropertyRegistration kRegistration{{
    .id = "loading.missing_alike",
    .claim = "Tensors that the checkpoint lacks hold their initial values, the same on "
             "every rank.",
    .reads = {{LoadingPhases(), {Stage::kReady, Stage::kRestored}}},
    .tolerance = "bit-exact: a pure function of seed, name and index",
    .source = "huggingface/transformers#28245, deepspeedai/Megatron-DeepSpeed#193, "
              "pytorch/torchtitan#166; src/model/initial_value.h states the formula",
    .killed_by = {"loading.init_seed_of_rank", "loading.missing_not_initialised"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::missing_alike
