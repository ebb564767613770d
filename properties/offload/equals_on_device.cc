// offload.equals_on_device: where the optimizer's work is done changes nothing of what it does.
#include "verify/verdict/compare_stages.h"
#include "verify/verdict/select.h"

namespace shardproof::offload::equals_on_device {
namespace {

/// Every step of a job that has the host do some of its optimizer's work leaves model and
/// optimizer as the same step leaves them where all of it is done on the device.
void Check(const Evidence& evidence, Judgement& judgement) {
  const PhaseEvidence* on_device = PhaseToJudge(evidence, Phase::kTrainOnDevice, judgement);
  if (on_device == nullptr) return;
  for (const Phase offloaded : {Phase::kTrain, Phase::kAgain}) {
    const PhaseEvidence* phase = PhaseToJudge(evidence, offloaded, judgement);
    if (phase == nullptr) continue;
    bool stepped = false;
    for (const char* of : {"model", "optimizer"}) {
      for (const std::string& key : TrainStages(*on_device, of, judgement)) {
        if (!IsAt(key, Stage::kStepped)) continue;
        stepped = true;
        if (!StageToJudge(*phase, key, judgement)) continue;
        for (Finding& finding : CompareStages(evidence, *on_device, key, *phase, key, judgement)) {
          judgement.Found(std::move(finding));
        }
      }
    }
    if (!stepped) judgement.Inconclusive("no rank of phase train_on_device reached `stepped`");
  }
}

const PropertyRegistration kRegistration{{
    .id = "offload.equals_on_device",
    .claim = "A step partly offloaded to the host is bit-identical to the same step on the "
             "device.",
    .reads = {{{Phase::kTrain, Phase::kAgain, Phase::kTrainOnDevice}, {Stage::kStepped}}},
    .tolerance = "bit-exact: the same operations on the same values in the same order",
    .source = "pytorch/pytorch#180666, deepspeedai/DeepSpeed#7805, NVIDIA/Megatron-LM#5071",
    .killed_by = {"offload.fetched_not_waited_for", "offload.returned_not_waited_for",
                  "offload.buffer_in_flight_reused"},
    .check = Check,
    .capabilities = {"train"},
}};

}  // namespace
}  // namespace shardproof::offload::equals_on_device
