// loading.derived_buffers: a buffer that a formula defines has the formula's values on every rank.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "verify/verdict/expectation.h"
#include "verify/verdict/explain.h"
#include "verify/verdict/image.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"
#include "verify/verdict/values.h"

namespace shardproof::loading::derived_buffers {
namespace {

/// Distance in units in the last place: how many F32 values lie between. NaN is far from
/// everything.
uint64_t UlpDistance(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return UINT64_MAX;
  const auto ordered = [](float x) -> int64_t {
    const int32_t bits = std::bit_cast<int32_t>(x);
    return bits < 0 ? -static_cast<int64_t>(bits & 0x7fffffff) : bits;
  };
  const int64_t distance = ordered(a) - ordered(b);
  return static_cast<uint64_t>(distance < 0 ? -distance : distance);
}

/// \returns an F32 and its bits, as text.
std::string F32Text(float value) {
  return ElementText("F32", {reinterpret_cast<const char*>(&value), sizeof value});
}

void CheckValues(const PhaseEvidence& phase, const std::string& stage, const std::string& name,
                 const DerivedExpectation& expected, const Image& image, std::string_view bytes,
                 Judgement& judgement) {
  uint64_t wrong = 0;
  Finding finding;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    float seen = 0;
    std::memcpy(&seen, bytes.data() + i * sizeof seen, sizeof seen);
    judgement.Compared();
    if (UlpDistance(seen, expected.values[i]) <= static_cast<uint64_t>(expected.ulp_max)) continue;
    if (wrong++ > 0) continue;
    finding =
        FindingAt(phase, stage, name, "differs", image.Ranks(),
                  fmt::format("element {} is {}, expected {} within {} ulp by {}", i, F32Text(seen),
                              F32Text(expected.values[i]), expected.ulp_max, expected.formula));
    finding.facts = {.against = {Against::What::kFormula}, .ulp_max = expected.ulp_max};
    finding.index = i;
    finding.coordinates = CoordinatesOf(i, image.shape);
    finding.expected = F32Text(expected.values[i]);
    finding.seen = F32Text(seen);
    const auto bits = std::bit_cast<uint32_t>(seen);
    const Explanation why = bits == 0xffffffffu ? NeverWritten()
                            : bits == 0u        ? Zeros()
                                                : Explanation();
    finding.facts.cause = why.cause;
    finding.explanation = why.text;
  }
  if (wrong == 0) return;
  finding.differing = wrong;
  finding.message +=
      fmt::format("; {} elements in all{}", wrong,
                  finding.explanation.empty() ? "" : " (" + finding.explanation + ")");
  judgement.Found(std::move(finding));
}

void CheckImage(const PhaseEvidence& phase, const std::string& stage, const std::string& name,
                const DerivedExpectation& expected, const Image& image, Judgement& judgement) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(expected.values.size())};
  if (image.dtype != "F32" || image.shape != shape) {
    judgement.Compared();
    judgement.Found(FindingAt(phase, stage, name, image.dtype != "F32" ? "dtype" : "shape",
                              image.Ranks(),
                              fmt::format("it is {} {}, its formula gives F32 {}", image.dtype,
                                          ShapeText(image.shape), ShapeText(shape)),
                              {.against = {Against::What::kFormula}}));
    return;
  }
  const KnownBytes known(image);
  const auto bytes = known.Read(0, expected.values.size() * sizeof(float));
  if (bytes) {
    CheckValues(phase, stage, name, expected, image, *bytes, judgement);
  } else if (!expected.values.empty()) {
    judgement.Inconclusive(
        fmt::format("the bytes of {} at `{}` of phase {} were not recorded on {}", name, stage,
                    phase.name(), ScopeLine(phase, image.Ranks())));
  }
}

/// Some models keep a second copy of the buffer as it was at first; the same formula defines it.
std::map<std::string, DerivedExpectation> WithOriginals(const Evidence& evidence,
                                                        const std::vector<std::string>& names) {
  std::map<std::string, DerivedExpectation> all = evidence.oracle.derived;
  for (const auto& [name, expected] : evidence.oracle.derived) {
    const size_t dot = name.rfind('.') == std::string::npos ? 0 : name.rfind('.') + 1;
    const std::string original = name.substr(0, dot) + "original_" + name.substr(dot);
    if (std::binary_search(names.begin(), names.end(), original)) all.emplace(original, expected);
  }
  return all;
}

/// The buffers that no checkpoint holds, as the plain twin has them; not those of `formulas`.
std::map<std::string, const FileTensor*> OfTwin(
    const Evidence& evidence, const std::map<std::string, DerivedExpectation>& formulas) {
  std::map<std::string, const FileTensor*> buffers;
  if (!evidence.oracle.twin) return buffers;
  for (const auto& [name, value] : evidence.oracle.twin->values) {
    if (!IsPersistent(evidence.oracle, name) && !formulas.contains(name)) buffers[name] = &value;
  }
  return buffers;
}

void CheckAgainstTwin(const Evidence& evidence, const PhaseEvidence& phase,
                      const std::string& stage, const std::string& name, const FileTensor& twin,
                      Judgement& judgement) {
  const std::vector<Image> images =
      DefinedImages(phase, stage, name, judgement, Undefined::kFinding);
  judgement.Compared(images.size());
  const Comparison comparison{evidence, phase, stage, name, {Against::What::kTwin}, {}};
  for (Finding& finding : CompareAll(comparison, ImageOf(twin), images)) {
    judgement.Found(std::move(finding));
  }
}

/// |ulp(buffer[i] - formula(i))| <= ulp_max for every element, on every rank; a buffer that no
/// checkpoint holds, and of which the formula is not known here, is bit-equal to the plain twin's.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (evidence.oracle.derived.empty() && OfTwin(evidence, {}).empty()) {
    judgement.Skipped("no formula defines a buffer of this model");
    return;
  }
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    for (const std::string& stage : FinalStages(*phase, judgement)) {
      const auto derived = WithOriginals(evidence, TensorNames(*phase, stage));
      for (const auto& [name, expected] : derived) {
        for (const Image& image :
             DefinedImages(*phase, stage, name, judgement, Undefined::kFinding)) {
          CheckImage(*phase, stage, name, expected, image, judgement);
        }
        if (ImagesOf(*phase, stage, name).empty()) {
          judgement.Inconclusive(fmt::format("no rank has {} at `{}`", name, stage));
        }
      }
      for (const auto& [name, twin] : OfTwin(evidence, derived)) {
        CheckAgainstTwin(evidence, *phase, stage, name, *twin, judgement);
      }
    }
  }
}

const PropertyRegistration kRegistration{{
    .id = "loading.derived_buffers",
    .claim = "A buffer that a formula defines holds the formula's values on every rank; one that "
             "no checkpoint holds has what the plain twin gives it.",
    .reads = {{LoadingPhases(), {Stage::kReady, Stage::kRestored}}},
    .tolerance =
        "the oracle's ulp_max: pow and reciprocal may round differently; of the plain twin "
        "bit-exact: it is computed by the same code on the same machine",
    .source = "huggingface/transformers#45902 (original_inv_freq is 0), unslothai/unsloth#4112, "
              "macwiatrak/Bacformer#36; the definition of rotary position embeddings",
    .killed_by = {"loading.buffer_not_computed", "loading.rope_theta_default"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::derived_buffers
