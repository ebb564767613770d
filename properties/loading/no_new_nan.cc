// loading.no_new_nan: loading adds no NaN and no Inf, and loses none.
#include <fmt/format.h>

#include <algorithm>

#include "verify/verdict/expectation.h"
#include "verify/verdict/image.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/select.h"
#include "verify/verdict/values.h"

namespace shardproof::loading::no_new_nan {
namespace {

struct Allowed {
  uint64_t nan_count = 0;
  uint64_t inf_count = 0;
  Against from;
  const FileTensor* whole = nullptr;  ///< of the checkpoint: so many there must be, in its places

  std::string Words() const {
    if (from.what == Against::What::kNothing) return "it should have none";
    return fmt::format("{} has {} and {}", from.Words(), nan_count, inf_count);
  }
};

/// How many the tensor may hold: as many as what it is loaded or initialised from; for a buffer
/// that the model made itself, as many as it had then; else none.
Allowed AllowedFor(const Evidence& evidence, const PhaseEvidence& phase, const std::string& name) {
  const Expectation expected = ExpectedOf(evidence.oracle, name);
  if (expected.tensor != nullptr) {
    // Of a subject a mask's Inf are not counted, and loading.equals_source holds it bit for bit.
    const bool is_stored =
        expected.from.what == Against::What::kCheckpoint && IsReference(evidence);
    return {expected.tensor->nan_count, expected.tensor->inf_count, expected.from,
            is_stored ? expected.tensor : nullptr};
  }
  for (const Image& built : ImagesOf(phase, Stage::kBuilt, name)) {
    if (built.defined) {
      return {
          built.nan_count, built.inf_count, {Against::What::kEarlier, phase.phase, Stage::kBuilt}};
    }
  }
  return {};
}

/// What is wrong, in one word; empty if nothing is.
std::string WrongIn(const Image& image, const Allowed& allowed) {
  if (image.nan_count > allowed.nan_count) return "nan";
  if (image.inf_count > allowed.inf_count) return "inf";
  // Of a replica that is not whole other properties say what it lacks.
  if (allowed.whole == nullptr || image.coverage != allowed.whole->coverage) return "";
  const bool has_all = image.nan_count == allowed.nan_count && image.inf_count == allowed.inf_count;
  if (!has_all) return "lost";
  return image.first_nonfinite == allowed.whole->first_nonfinite ? "" : "moved";
}

/// Ranks whose own part holds NaN or Inf; all of the replica if none does.
std::vector<int64_t> Holders(const Image& image) {
  std::vector<int64_t> ranks;
  for (const Part& part : image.parts) {
    if (part.state->nan_count + part.state->inf_count > 0) ranks.push_back(part.rank->rank);
  }
  return ranks.empty() ? image.Ranks() : ranks;
}

void Report(const PhaseEvidence& phase, const std::string& stage, const std::string& name,
            const Image& image, const Allowed& allowed, const std::string& wrong,
            Judgement& judgement) {
  const auto first_of = [&](const std::optional<uint64_t>& first) {
    return first ? fmt::format(", the first at {}", ElementName(*first, image.shape)) : "";
  };
  Finding finding =
      FindingAt(phase, stage, name, wrong, Holders(image),
                fmt::format("{} NaN and {} Inf{}; {}{}", image.nan_count, image.inf_count,
                            first_of(image.first_nonfinite), allowed.Words(),
                            wrong == "moved" ? first_of(allowed.whole->first_nonfinite) : ""),
                {.against = allowed.from});
  // If the source has some too, the first one may well be one of those.
  if (allowed.nan_count + allowed.inf_count == 0 && image.first_nonfinite) {
    finding.index = image.first_nonfinite;
    finding.coordinates = CoordinatesOf(*image.first_nonfinite, image.shape);
  }
  finding.expected = fmt::format("{} NaN, {} Inf", allowed.nan_count, allowed.inf_count);
  finding.seen = fmt::format("{} NaN, {} Inf", image.nan_count, image.inf_count);
  finding.in_message = {.expected = false, .seen = false};
  judgement.Found(std::move(finding));
}

void CheckStage(const Evidence& evidence, const PhaseEvidence& phase, const std::string& stage,
                Judgement& judgement) {
  for (const std::string& name : TensorNames(phase, stage)) {
    const Allowed allowed = AllowedFor(evidence, phase, name);
    for (const Image& image : DefinedImages(phase, stage, name, judgement)) {
      judgement.Compared();
      const std::string wrong = WrongIn(image, allowed);
      if (!wrong.empty()) Report(phase, stage, name, image, allowed, wrong, judgement);
    }
  }
}

bool SourceIsFinite(const Evidence& evidence) {
  const auto& tensors = evidence.oracle.source.tensors;
  return std::all_of(tensors.begin(), tensors.end(), [](const auto& entry) {
    return entry.second.nan_count + entry.second.inf_count == 0;
  });
}

/// At `ready` and `restored` no replica of a tensor has more NaN, or more Inf, than the values
/// that it comes from, nor fewer than a checkpoint that it comes from; and none has any at any
/// stage of training.
void Check(const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    for (const std::string& stage : FinalStages(*phase, judgement)) {
      CheckStage(evidence, *phase, stage, judgement);
    }
  }
  // Steps spread what the source has: then nothing can be said of them.
  if (!SourceIsFinite(evidence)) return;
  for (const auto& [phase, stage] : AllTrainStages(evidence, judgement)) {
    CheckStage(evidence, *phase, stage, judgement);
  }
}

const PropertyRegistration kRegistration{{
    .id = "loading.no_new_nan",
    .claim = "Loading adds no NaN and no Inf to the values of the checkpoint or the formula, and "
             "loses none of the checkpoint's.",
    .reads = {{LoadingPhases(), {Stage::kReady, Stage::kRestored}},
              {TrainingPhases(),
               {Stage::kReady, Stage::kStepped, Stage::kSaved, Stage::kRestored, Stage::kResumed}}},
    .tolerance = "none: counts, and the place of the first",
    .source = "huggingface/transformers#45050 (NaN off rank 0), NVIDIA/Megatron-LM#4155",
    .killed_by = {"loading.placeholder_marked_initialised", "loading.buffers_reallocated",
                  "loading.nan_made_numbers"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::no_new_nan
