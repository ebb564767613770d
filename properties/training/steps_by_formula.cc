// training.steps_by_formula: every optimizer step of the reference is AdamW's, to the bit, on one
// process and whole tensors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "verify/verdict/made_steps.h"
#include "verify/verdict/recorded_values.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"
#include "verify/verdict/values.h"

namespace shardproof::training::steps_by_formula {
namespace {

using Values = RecordedValues;
using Lookup = RecordedLookup;

// 113 bits of mantissa, by the name that the architecture has for them.
#ifdef __SIZEOF_FLOAT128__
using Quad = __float128;
#else
using Quad = long double;
static_assert(__LDBL_MANT_DIG__ == 113);
#endif

/// What the optimizer keeps of a parameter.
constexpr const char* kParts[] = {".step", ".exp_avg", ".exp_avg_sq", ".master", ".average"};

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
  size_t group = 0;
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
    Options options{.group = i};
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

/// A parameter that a step trains.
struct Stepped {
  Values was;
  Values now;
  Options options;
};

/// A step of the whole job: from `before` to `after`.
class StepCheck {
 public:
  StepCheck(const Evidence& evidence, const PhaseEvidence& phase, std::string before,
            std::string after, int64_t step, Judgement& judgement)
      : evidence_(evidence),
        training_(evidence.test_case.training),
        phase_(phase),
        before_(std::move(before)),
        after_(std::move(after)),
        step_(step),
        judgement_(judgement),
        loss_scale_(LossScaleBefore()),
        made_(training_, step, loss_scale_) {}

  void Run() {
    const bool on_all = training_.clip_norm > 0 || training_.loss_scale > 0;
    for (const std::string& name : TensorNames(phase_, after_)) {
      if (!IsTrained(name)) continue;
      const Lookup now = ValuesAt(phase_, after_, name);
      const Lookup was = ValuesAt(phase_, before_, name);
      const std::optional<Options> options = GroupOf(name);
      if (!now.why_not.empty() || !was.why_not.empty()) {
        const std::string& why = now.why_not.empty() ? was.why_not : now.why_not;
        why_not_ = fmt::format("{} at `{}` of phase {}: {}", name, after_, phase_.name(), why);
      } else if (!made_.HasGradient(name)) {
        HoldUnchanged(name, {was.values, now.values, {}}, "a step without a gradient of it");
      } else if (!options) {
        why_not_ =
            fmt::format("{} is in no group at `{}` of phase {}", name, after_, phase_.name());
      } else {
        stepped_[name] = {was.values, now.values, *options};
        continue;
      }
      // It is in the norm, or its gradient might overflow, on which all depend.
      if (on_all && made_.HasGradient(name)) return;
    }
    const bool is_skipped = training_.loss_scale > 0 && Overflows();
    std::map<size_t, double> scales;  // by the group
    for (const auto& [name, stepped] : stepped_) {
      if (is_skipped) {
        HoldUnchanged(name, stepped, "a step that is skipped, since gradients overflow,");
        continue;
      }
      const size_t group = stepped.options.group;
      if (!scales.contains(group)) scales[group] = ScaleOf(group);
      CheckParameter(name, stepped, scales.at(group));
    }
    CheckLoop(is_skipped);
  }
  /// Why nothing could be computed, or empty.
  const std::string& why_not() const { return why_not_; }

 private:
  /// Whether the step has to train it; said where the job sees that otherwise.
  bool IsTrained(const std::string& name) {
    const auto declared = evidence_.oracle.declared.find(name);
    for (const RankEvidence& rank : phase_.ranks) {
      const TensorOnRank found = FindTensor(rank, after_, name);
      if (found.descriptor == nullptr) continue;
      const TensorDescriptor& seen = *found.descriptor;
      const std::string& dtype = seen.dtype;
      if (seen.kind != "parameter" || !IsFirstName(name)) return false;
      if (dtype != "F32" && dtype != "BF16" && dtype != "F16") return false;
      if (declared == evidence_.oracle.declared.end()) return seen.requires_grad;
      const bool is_trained = declared->second.requires_grad || made_.TrainsFrozen();
      judgement_.Compared();
      if (is_trained == seen.requires_grad) return is_trained;
      judgement_.Found(FindingAt(phase_, after_, name, "trainable", {rank.rank},
                                 fmt::format("it is {}, and has to be {} in step {}",
                                             seen.requires_grad ? "trainable" : "frozen",
                                             is_trained ? "trained" : "frozen", step_)));
      return false;
    }
    return false;
  }

  /// One tensor under several names is stepped once, under the first that the case ties.
  bool IsFirstName(const std::string& name) const {
    for (const auto& tie : evidence_.oracle.ties) {
      if (std::find(tie.begin() + 1, tie.end(), name) != tie.end()) return false;
    }
    return true;
  }

  std::optional<Options> GroupOf(const std::string& name) const {
    const StageRecord* record = phase_.ranks[0].Stage(before_ + ".optimizer");
    const StageRecord* later = phase_.ranks[0].Stage(after_ + ".optimizer");
    const bool is_known = record && later && record->optimizer && later->optimizer;
    return is_known ? OptionsOf(*record->optimizer, *later->optimizer, name) : std::nullopt;
  }

  float GradientOf(const std::string& name, const Values& was, uint64_t index) const {
    return made_.GradientOf(name, index, was.at(index));
  }

  bool Overflows() const {
    for (const auto& [name, stepped] : stepped_) {
      for (uint64_t i = 0; i < stepped.was.count(); ++i) {
        if (!std::isfinite(GradientOf(name, stepped.was, i))) return true;
      }
    }
    return false;
  }

  /// What clipping multiplies the gradients of a group by. The sum of squares has 113 bits here: it
  /// rounds to the same double as the exact one, but in one of 2^60 cases.
  double ScaleOf(size_t group) const {
    if (training_.clip_norm <= 0) return 1;
    Quad sum = 0;
    for (const auto& [name, stepped] : stepped_) {
      if (training_.clip_by_group && stepped.options.group != group) continue;
      for (uint64_t i = 0; i < stepped.was.count(); ++i) {
        const auto g = static_cast<Quad>(GradientOf(name, stepped.was, i));
        sum += g * g;
      }
    }
    const double scale = training_.clip_norm / (std::sqrt(static_cast<double>(sum)) + 1e-6);
    return scale < 1 ? static_cast<double>(static_cast<float>(scale)) : 1;
  }

  Lookup StateBefore(const std::string& key) const {
    return ValuesAt(phase_, before_ + ".optimizer", key);
  }
  Lookup StateAfter(const std::string& key) const {
    return ValuesAt(phase_, after_ + ".optimizer", key);
  }

  /// As the case says it before the first step, as the job has it after that.
  float LossScaleBefore() const {
    if (training_.loss_scale == 0 || step_ == 1) return static_cast<float>(training_.loss_scale);
    const Lookup found = StateBefore("scaler.scale");
    return found.values.count() == 1 ? found.values.at(0) : 0;
  }

  /// What the loop keeps beside the optimizer.
  void CheckLoop(bool is_skipped) {
    if (training_.samples > 0) HoldNumber("sampler.position", "I64", made_.SamplesRead());
    if (training_.loss_scale == 0) return;
    const Lookup tracker = StateBefore("scaler.growth_tracker");
    const int64_t before = tracker.values.count() == 1 ? tracker.values.integer(0) : 0;
    const int64_t good = is_skipped ? 0 : before + 1;
    const bool grows = good == kScaleGrowthInterval;
    HoldNumber("scaler.growth_tracker", "I64", grows ? 0 : good);
    const float factor = is_skipped ? 0.5f : grows ? 2.0f : 1.0f;
    HoldNumber("scaler.scale", "F32", loss_scale_ * factor);
  }

  template <typename Number>
  void HoldNumber(const std::string& key, const char* dtype, Number number) {
    const Lookup seen = StateAfter(key);
    std::string expected(sizeof number, '\0');
    std::memcpy(expected.data(), &number, sizeof number);
    if (seen.why_not.empty() && seen.values.dtype == dtype) {
      return Hold(key, after_ + ".optimizer", seen.values, expected, "the step");
    }
    judgement_.Compared();
    const bool is_absent = !seen.why_not.empty();
    judgement_.Found(
        FindingAt(phase_, after_ + ".optimizer", key, is_absent ? "absent" : "dtype", {},
                  is_absent ? seen.why_not
                            : fmt::format("it is {}, and has to be {}", seen.values.dtype, dtype)));
  }

  /// \param by  what must not have changed it
  void HoldUnchanged(const std::string& name, const Stepped& stepped, const char* by) {
    Hold(name, after_, stepped.now, stepped.was.bytes, by);
    for (const char* part : kParts) {
      const std::string key = name + part;
      const Lookup before = StateBefore(key);
      const Lookup after = StateAfter(key);
      if (before.why_not.empty() && after.why_not.empty()) {
        Hold(key, after_ + ".optimizer", after.values, before.values.bytes, by);
      } else if (before.is_there != after.is_there) {
        judgement_.Compared();
        judgement_.Found(
            FindingAt(phase_, after_ + ".optimizer", key, after.is_there ? "extra" : "absent", {},
                      fmt::format("{} has {} it", by, after.is_there ? "made" : "lost")));
      }
    }
  }

  void CheckParameter(const std::string& name, const Stepped& stepped, double scale) {
    const Values& was = stepped.was;
    const Options& given = stepped.options;
    const Lookup count = StateBefore(name + ".step");
    const bool is_first = !count.why_not.empty();
    const int64_t taken = 1 + (is_first ? 0 : static_cast<int64_t>(count.values.at(0)));
    const bool bf16_moments = training_.moments == "BF16";
    const bool has_master = was.dtype == "F16" || (was.dtype == "BF16" && training_.masters);
    const Lookup first = StateBefore(name + ".exp_avg");
    const Lookup second = StateBefore(name + ".exp_avg_sq");
    const Lookup master = StateBefore(name + ".master");
    const Lookup average = StateBefore(name + ".average");
    const bool has_average = training_.average > 0;
    if (!is_first &&
        (!first.why_not.empty() || !second.why_not.empty() ||
         (has_master && !master.why_not.empty()) || (has_average && !average.why_not.empty()))) {
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
      const float g = GradientOf(name, was, i) * f32(scale);
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
      if (!has_average) continue;
      const float a = is_first ? was.at(i) : average.values.at(i);
      const float rest = f32(1 - training_.average);
      Append(expected[name + ".average"], "F32", std::fmaf(rest, RoundedTo(was.dtype, p) - a, a));
    }
    Append(expected[name + ".step"], "F32", static_cast<float>(taken));
    Hold(name, after_, stepped.now, expected[name], "AdamW");
    expected.erase(name);
    for (const auto& [key, bytes] : expected) {
      const Lookup seen = StateAfter(key);
      if (was.count() == 0 && seen.why_not.empty() && key != name + ".step") continue;
      if (seen.why_not.empty()) {
        Hold(key, after_ + ".optimizer", seen.values, bytes, "AdamW");
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

  void Hold(const std::string& tensor, const std::string& stage, const Values& seen,
            const std::string& expected, const char* by) {
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
      finding =
          FindingAt(phase_, stage, tensor, "differs", Sorted(seen.ranks),
                    fmt::format("element {} is {}, {} makes {} of what was there at `{}`", i,
                                ElementText(name, is), by, ElementText(name, should), before_),
                    {.against = {Against::What::kFormula, phase_.phase, before_}});
      finding.index = i;
      finding.expected = ElementText(name, should);
      finding.seen = ElementText(name, is);
    }
    if (wrong == 0) return;
    finding.differing = wrong;
    judgement_.Found(std::move(finding));
  }

  const Evidence& evidence_;
  const TrainingCase& training_;
  const PhaseEvidence& phase_;
  const std::string before_;
  const std::string after_;
  const int64_t step_;
  Judgement& judgement_;
  const float loss_scale_;
  const MadeStep made_;
  std::map<std::string, Stepped> stepped_;  ///< by name
  std::string why_not_;
};

int64_t StepOf(const std::string& key) {
  const size_t at = key.find('@');
  return at == std::string::npos ? 0 : std::stoll(key.substr(at + 1));
}

/// Every optimizer step of the reference leaves parameters, moments, masters and step counters
/// as AdamW makes them of what was there before, with the gradients of src/optim/gradient.h,
/// added up over micro-batches and clipped by their norm over all ranks, in the order of operations
/// of src/numeric/adamw_element.h; computed here on whole tensors, in scalar code of its own.
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
                  "training.unfrozen_counts_from_start", "training.refrozen_still_trained",
                  "training.absent_gradient_stepped", "training.micro_batch_left_out",
                  "training.overflow_of_rank0", "training.average_is_a_copy",
                  "training.groups_clipped_alike", "training.sampler_restarts",
                  "offload.fetched_not_waited_for", "offload.returned_not_waited_for",
                  "offload.buffer_in_flight_reused"},
    .check = Check,
    .capabilities = {"train"},
}};

}  // namespace
}  // namespace shardproof::training::steps_by_formula
