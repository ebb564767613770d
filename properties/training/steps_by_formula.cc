// training.steps_by_formula: every optimizer step of the reference is AdamW's, to the bit, on one
// process and whole tensors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"
#include "verify/verdict/values.h"

namespace shardproof::training::steps_by_formula {
namespace {

// 113 bits of mantissa, by the name that the architecture has for them.
#ifdef __SIZEOF_FLOAT128__
using Quad = __float128;
#else
using Quad = long double;
static_assert(__LDBL_MANT_DIG__ == 113);
#endif

/// The values of a tensor at a stage, from its recorded bytes.
struct Values {
  std::string dtype;
  uint64_t element = 4;  ///< bytes
  std::string bytes;
  std::vector<int64_t> ranks;

  uint64_t count() const { return bytes.size() / element; }
  float at(uint64_t index) const {
    const std::string_view raw(bytes.data() + index * element, element);
    return static_cast<float>(ElementValue(dtype, raw).value_or(0));
  }
};

/// Why a tensor cannot be judged, or its values.
struct Lookup {
  std::string why_not;
  Values values;
  bool is_there = false;  ///< defined, whether or not all of its bytes are on record
};

Lookup ValuesAt(const PhaseEvidence& phase, const std::string& stage, const std::string& name) {
  const std::vector<Image> images = ImagesOf(phase, stage, name);
  if (images.empty()) return {.why_not = "no rank has it"};
  const Image& image = images[0];
  if (!image.defined || image.partial) return {.why_not = "it is not defined"};
  Lookup found;
  found.values.dtype = image.dtype;
  found.values.element = ElementBytes(image.dtype).value_or(1);
  const uint64_t bytes = ImageBytes(image.dtype, image.shape).value_or(0);
  const KnownBytes known(image);
  const auto read = bytes == 0 ? std::string_view() : known.Read(0, bytes).value_or("");
  if (read.size() != bytes) return {.why_not = "its bytes are not all on record", .is_there = true};
  found.values.bytes = std::string(read);
  for (const Image& each : images) {
    for (const int64_t rank : each.Ranks()) found.values.ranks.push_back(rank);
  }
  return found;
}

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// src/optim/gradient.h has the formula.
float GradientOf(const std::string& name, int64_t step, uint64_t index, float value) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3;
  const uint64_t drawn = Mix((Mix(static_cast<uint64_t>(step)) ^ hash) + index) >> 40;
  const float u = (static_cast<float>(drawn) - 0x1p23f) * 0x1p-23f;
  const float v = std::isnan(value) ? 0 : value > 1 ? 1 : value < -1 ? -1 : value;
  return std::fmaf(v, 0x1p-3f, u * 0x1p-4f);
}

double PowerOf(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

/// The options of the group that a parameter is in.
struct Options {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
};

/// \param later  the optimizer after the step: what has just been unfrozen was in no group before.
std::optional<Options> OptionsOf(const OptimizerRecord& record, const OptimizerRecord& later,
                                 const std::string& name) {
  for (size_t i = 0; i < std::min(record.groups.size(), later.groups.size()); ++i) {
    const auto& members = later.groups[i].parameters;
    if (std::find(members.begin(), members.end(), name) == members.end()) continue;
    const OptimizerGroup& group = record.groups[i];
    const auto text = [&](const char* key) {
      const auto found = group.options.find(key);
      return found == group.options.end() ? std::string() : found->second;
    };
    Options options;
    options.lr = std::strtod(text("lr").c_str(), nullptr);
    options.eps = std::strtod(text("eps").c_str(), nullptr);
    options.weight_decay = std::strtod(text("weight_decay").c_str(), nullptr);
    if (std::sscanf(text("betas").c_str(), "(%lf, %lf)", &options.beta1, &options.beta2) != 2) {
      return std::nullopt;
    }
    return options;
  }
  return std::nullopt;
}

/// A step of the whole job: from `before` to `after`.
class StepCheck {
 public:
  StepCheck(const Evidence& evidence, const PhaseEvidence& phase, std::string before,
            std::string after, int64_t step, Judgement& judgement)
      : training_(evidence.test_case.training),
        ties_(evidence.oracle.ties),
        phase_(phase),
        before_(std::move(before)),
        after_(std::move(after)),
        step_(step),
        judgement_(judgement) {}

  void Run() {
    for (const std::string& name : TensorNames(phase_, after_)) {
      if (!IsStepped(name)) continue;
      const Lookup now = ValuesAt(phase_, after_, name);
      const Lookup was = ValuesAt(phase_, before_, name);
      if (!now.why_not.empty() || !was.why_not.empty()) {
        const std::string& why = now.why_not.empty() ? was.why_not : now.why_not;
        why_not_ = fmt::format("{} at `{}` of phase {}: {}", name, after_, phase_.name(), why);
        if (training_.clip_norm > 0) return;  // it is in the norm, on which all depend
        continue;
      }
      stepped_[name] = {was.values, now.values};
    }
    const double scale = ScaleOf();
    for (const auto& [name, values] : stepped_)
      CheckParameter(name, values.first, values.second, scale);
  }
  /// Why nothing could be computed, or empty.
  const std::string& why_not() const { return why_not_; }

 private:
  bool IsStepped(const std::string& name) const {
    for (const RankEvidence& rank : phase_.ranks) {
      const TensorOnRank found = FindTensor(rank, after_, name);
      if (found.descriptor == nullptr) continue;
      const std::string& dtype = found.descriptor->dtype;
      return found.descriptor->kind == "parameter" && found.descriptor->requires_grad &&
             IsFirstName(name) && (dtype == "F32" || dtype == "BF16" || dtype == "F16");
    }
    return false;
  }

  /// One tensor under several names is stepped once, under the first that the case ties.
  bool IsFirstName(const std::string& name) const {
    for (const auto& tie : ties_) {
      if (std::find(tie.begin() + 1, tie.end(), name) != tie.end()) return false;
    }
    return true;
  }

  /// What clipping multiplies by. The sum of squares has 113 bits here: it rounds to the same
  /// double as the exact one, but in one of 2^60 cases.
  double ScaleOf() const {
    if (training_.clip_norm <= 0) return 1;
    Quad sum = 0;
    for (const auto& [name, values] : stepped_) {
      for (uint64_t i = 0; i < values.first.count(); ++i) {
        const auto g = static_cast<Quad>(GradientOf(name, step_, i, values.first.at(i)));
        sum += g * g;
      }
    }
    const double scale = training_.clip_norm / (std::sqrt(static_cast<double>(sum)) + 1e-6);
    return scale < 1 ? static_cast<double>(static_cast<float>(scale)) : 1;
  }

  Lookup StateBefore(const std::string& name, const char* key) const {
    return ValuesAt(phase_, before_ + ".optimizer", name + "." + key);
  }

  void CheckParameter(const std::string& name, const Values& was, const Values& now, double scale) {
    const StageRecord* record = phase_.ranks[0].Stage(before_ + ".optimizer");
    const StageRecord* later = phase_.ranks[0].Stage(after_ + ".optimizer");
    const bool is_known = record && later && record->optimizer && later->optimizer;
    const auto options =
        is_known ? OptionsOf(*record->optimizer, *later->optimizer, name) : std::nullopt;
    if (!options) {
      why_not_ = fmt::format("{} is in no group at `{}` of phase {}", name, after_, phase_.name());
      return;
    }
    const Options& given = *options;
    const Lookup count = StateBefore(name, "step");
    const bool is_first = !count.why_not.empty();
    const int64_t taken = 1 + (is_first ? 0 : static_cast<int64_t>(count.values.at(0)));
    const bool bf16_moments = training_.moments == "BF16";
    const bool has_master = was.dtype == "F16" || (was.dtype == "BF16" && training_.masters);
    const Lookup first = StateBefore(name, "exp_avg");
    const Lookup second = StateBefore(name, "exp_avg_sq");
    const Lookup master = StateBefore(name, "master");
    if (!is_first && (!first.why_not.empty() || !second.why_not.empty() ||
                      (has_master && !master.why_not.empty()))) {
      why_not_ = fmt::format("the state of {} at `{}` of phase {} is not on record", name, before_,
                             phase_.name());
      return;
    }

    const auto f32 = [](double value) { return static_cast<float>(value); };
    const float decay = f32(1 - given.lr * given.weight_decay);
    const float rest1 = f32(1 - given.beta1);
    const float beta2 = f32(given.beta2);
    const float rest2 = f32(1 - given.beta2);
    const float root_scale = f32(1 / std::sqrt(1 - PowerOf(given.beta2, taken)));
    const float step_size = f32(given.lr / (1 - PowerOf(given.beta1, taken)));
    std::map<std::string, std::string> expected;  // by the name of the tensor: bytes
    for (uint64_t i = 0; i < was.count(); ++i) {
      const float g = GradientOf(name, step_, i, was.at(i)) * f32(scale);
      float m = is_first ? 0 : first.values.at(i);
      float v = is_first ? 0 : second.values.at(i);
      float p = has_master && !is_first ? master.values.at(i) : was.at(i);
      m = std::fmaf(rest1, g - m, m);
      v = std::fmaf(rest2 * g, g, beta2 * v);
      p = std::fmaf(-step_size, m / std::fmaf(std::sqrt(v), root_scale, f32(given.eps)), p * decay);
      const char* moments = bf16_moments ? "BF16" : "F32";
      Append(expected[name], was.dtype, p);
      Append(expected[name + ".exp_avg"], moments, m);
      Append(expected[name + ".exp_avg_sq"], moments, v);
      if (has_master) Append(expected[name + ".master"], "F32", p);
    }
    Append(expected[name + ".step"], "F32", static_cast<float>(taken));
    Hold(name, after_, now, expected[name]);
    expected.erase(name);
    for (const auto& [key, bytes] : expected) {
      const Lookup seen = ValuesAt(phase_, after_ + ".optimizer", key);
      if (was.count() == 0 && seen.why_not.empty() && key != name + ".step") continue;
      if (seen.why_not.empty()) {
        Hold(key, after_ + ".optimizer", seen.values, bytes);
      } else if (seen.is_there) {  // of a narrow parameter, which itself is on record
        why_not_ =
            fmt::format("{} at `{}` of phase {}: {}", key, after_, phase_.name(), seen.why_not);
      } else if (!bytes.empty()) {
        judgement_.Compared();
        judgement_.Found(FindingAt(phase_, after_ + ".optimizer", key, "absent", {}, seen.why_not));
      }
    }
  }

  static void Append(std::string& bytes, std::string_view dtype, float value) {
    const auto append = [&bytes](auto bits) {
      char raw[sizeof bits];
      std::memcpy(raw, &bits, sizeof bits);
      bytes.append(raw, sizeof bits);
    };
    if (dtype == "F32")
      append(value);
    else
      append(dtype == "BF16" ? RoundToBf16(value) : HalfBits(value));
  }

  /// F16, rounded to nearest.
  static uint16_t HalfBits(float value) {
    const float rounded = RoundThroughF16(value);
    const uint16_t sign = std::signbit(rounded) ? 0x8000 : 0;
    if (std::isnan(rounded)) return sign | 0x7e00;
    if (std::isinf(rounded)) return sign | 0x7c00;
    const float size = std::fabs(rounded);
    if (size < 0x1p-14f) return sign | static_cast<uint16_t>(size * 0x1p24f);
    int exponent = 0;
    const float fraction = std::frexp(size, &exponent);  // of [0.5, 1)
    const auto mantissa = static_cast<uint16_t>((fraction * 2 - 1) * 0x1p10f);
    return static_cast<uint16_t>(sign | (exponent + 14) << 10 | mantissa);
  }

  void Hold(const std::string& tensor, const std::string& stage, const Values& seen,
            const std::string& expected) {
    judgement_.Compared(std::max<uint64_t>(1, seen.count()));
    const auto bytes = static_cast<size_t>(seen.element);
    uint64_t wrong = 0;
    Finding finding;
    for (size_t i = 0; i < std::min(seen.bytes.size(), expected.size()) / bytes; ++i) {
      const std::string_view is(seen.bytes.data() + i * bytes, bytes);
      const std::string_view should(expected.data() + i * bytes, bytes);
      const std::string& name = seen.dtype;
      const auto is_nan = [&](std::string_view raw) {
        return std::isnan(ElementValue(name, raw).value_or(0));
      };
      // Which NaN comes of another is nobody's promise.
      if (is == should || (is_nan(is) && is_nan(should)) || wrong++ > 0) continue;
      finding = FindingAt(phase_, stage, tensor, "differs", Sorted(seen.ranks),
                          fmt::format("element {} is {}, AdamW makes {} of what was there at `{}`",
                                      i, ElementText(name, is), ElementText(name, should), before_),
                          {.against = {Against::What::kFormula, phase_.phase, before_}});
      finding.index = i;
      finding.expected = ElementText(name, should);
      finding.seen = ElementText(name, is);
    }
    if (wrong == 0) return;
    finding.differing = wrong;
    judgement_.Found(std::move(finding));
  }

  const TrainingCase& training_;
  const std::vector<std::vector<std::string>>& ties_;
  const PhaseEvidence& phase_;
  const std::string before_;
  const std::string after_;
  const int64_t step_;
  Judgement& judgement_;
  std::map<std::string, std::pair<Values, Values>> stepped_;  ///< before and after, by name
  std::string why_not_;
};

int64_t StepOf(const std::string& key) {
  const size_t at = key.find('@');
  return at == std::string::npos ? 0 : std::stoll(key.substr(at + 1));
}

/// Every optimizer step of the reference leaves parameters, moments, masters and step counters
/// as AdamW makes them of what was there before, with the gradients of src/optim/gradient.h,
/// clipped by their norm over all ranks, in the order of operations of
/// src/numeric/adamw_element.h; computed here on whole tensors, in scalar code of its own.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!IsReference(evidence)) {
    judgement.Skipped("the subject's gradients are not known");
    return;
  }
  if (PhaseToJudge(evidence, Phase::kTrain, judgement) == nullptr) return;
  std::string why_not;
  for (const PhaseEvidence* phase : TrainPhases(evidence)) {
    if (!phase->facts().trains) continue;
    std::string before;
    for (const std::string& stage : TrainStages(*phase, "model", judgement)) {
      const bool is_step = IsAt(stage, Stage::kStepped) || IsAt(stage, Stage::kResumed);
      if (is_step && !before.empty()) {
        StepCheck check(evidence, *phase, before, stage, StepOf(stage), judgement);
        check.Run();
        if (why_not.empty()) why_not = check.why_not();
      }
      before = stage;
    }
  }
  judgement.Skipped(why_not.empty() ? "the model has nothing that AdamW steps" : why_not);
}

const PropertyRegistration kRegistration{{
    .id = "training.steps_by_formula",
    .claim = "Every optimizer step of the reference is bit-identical to AdamW.",
    .reads = {{TrainingPhases(),
               {Stage::kReady, Stage::kRestored, Stage::kStepped, Stage::kResumed}}},
    .tolerance = "bit-exact",
    .source = "Loshchilov and Hutter, Decoupled Weight Decay Regularization, algorithm 2",
    .killed_by = {"training.norm_of_own_shard", "training.decay_of_all",
                  "training.unfrozen_counts_from_start", "offload.fetched_not_waited_for",
                  "offload.returned_not_waited_for", "offload.buffer_in_flight_reused"},
    .check = Check,
    .capabilities = {"train"},
}};

}  // namespace
}  // namespace shardproof::training::steps_by_formula
