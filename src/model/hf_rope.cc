#include "src/model/hf_rope.h"

#include <fmt/format.h>

#include "src/core/strict_json.h"

namespace shardproof {
namespace {

constexpr int64_t kLengthMax = int64_t{1} << 40;

/// Fields that decide, in the object that holds them; beside it, the config itself.
struct RopeFields {
  Fields rope;
  const Fields& config;
  const RopeDefaults& defaults;
};

Result<Fields> ObjectOfRope(const Fields& config) {
  static const nlohmann::json none = nlohmann::json::object();
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (config.Has(field) && !config[field].is_object()) return config.Wrong(field, "an object");
  }
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (!config.Has(field) || config[field].empty()) continue;
    const Fields rope(config[field], config.origin() + ": " + field);
    for (const auto& [name, value] : rope.object().items()) {
      if (!value.is_object()) continue;
      return BadInput(fmt::format("{}: field {} is {}: expected one set of values for all layers",
                                  rope.origin(), ShownText(name), Shown(value)));
    }
    return rope;
  }
  return Fields(none, config.origin());
}

const char* TypeField(const Fields& rope) { return rope.Has("rope_type") ? "rope_type" : "type"; }

Result<RopeKind> KindOf(const Fields& rope, const RopeDefaults& defaults) {
  SP_ASSIGN(const std::string name, rope.Text(TypeField(rope), "default"));
  if (name == "mrope" && defaults.knows_mrope) return RopeKind::kDefault;
  if (const auto kind = RopeKindFromName(name)) return *kind;
  return BadInput(fmt::format("{}: RoPE type {} is unknown: known are {}", rope.origin(),
                              ShownText(name), KnownRopeKinds()));
}

/// The share of a head's dims that rotate.
Result<double> PartialFactor(const RopeFields& fields) {
  SP_ASSIGN(const double beside, fields.config.Positive("partial_rotary_factor", 1.0));
  SP_ASSIGN(const double factor, fields.rope.Positive("partial_rotary_factor", beside));
  if (factor <= 1.0) return factor;
  const Fields& said = fields.rope.Has("partial_rotary_factor") ? fields.rope : fields.config;
  return said.Wrong("partial_rotary_factor", "a number above 0 and up to 1");
}

/// Where a config says how long the sequences of pre-training were: beside the object first.
Result<int64_t> OriginalLength(const RopeFields& fields) {
  constexpr const char* kName = "original_max_position_embeddings";
  if (fields.config.Has(kName)) return fields.config.Count(kName, {}, kLengthMax);
  if (fields.rope.Has(kName)) return fields.rope.Count(kName, {}, kLengthMax);
  return fields.config.Count("max_position_embeddings", fields.defaults.positions, kLengthMax);
}

Status ReadYarn(const RopeFields& fields, RopeSpec& spec) {
  if (spec.dim % 2 != 0) {
    return BadInput(
        fmt::format("{}: field 'partial_rotary_factor' leaves {} dims to rotate: "
                    "expected an even number for yarn",
                    fields.rope.origin(), spec.dim));
  }
  if (spec.theta <= 1) {
    return BadInput(fmt::format("{}: field 'rope_theta' is {}: expected more than 1 for yarn",
                                fields.rope.origin(), spec.theta));
  }
  SP_ASSIGN(spec.factor, fields.rope.Positive("factor"));
  SP_ASSIGN(spec.original_length, OriginalLength(fields));
  SP_ASSIGN(spec.beta_fast, fields.rope.Positive("beta_fast", spec.beta_fast));
  SP_ASSIGN(spec.beta_slow, fields.rope.Positive("beta_slow", spec.beta_slow));
  SP_ASSIGN(spec.truncate, fields.rope.Flag("truncate", true));
  return Ok();
}

Status ReadLlama3(const RopeFields& fields, RopeSpec& spec) {
  SP_ASSIGN(spec.original_length, OriginalLength(fields));
  SP_ASSIGN(spec.factor, fields.rope.Positive("factor"));
  SP_ASSIGN(spec.low_freq_factor, fields.rope.Positive("low_freq_factor"));
  SP_ASSIGN(spec.high_freq_factor, fields.rope.Positive("high_freq_factor"));
  if (spec.low_freq_factor != spec.high_freq_factor) return Ok();
  return fields.rope.Wrong("high_freq_factor", "another number than low_freq_factor");
}

Status ReadProportional(const RopeFields& fields, double partial, RopeSpec& spec) {
  SP_ASSIGN(spec.factor, fields.rope.Positive("factor", 1.0));
  spec.rotated = static_cast<int64_t>(partial * static_cast<double>(spec.dim)) / 2;
  return Ok();
}

Status ReadLinear(const RopeFields& fields, RopeSpec& spec) {
  SP_ASSIGN(spec.factor, fields.rope.Positive("factor"));
  return Ok();
}

/// Its factor acts only on sequences beyond the model's own length, and then with dim / (dim - 2).
Status CheckDynamic(const RopeFields& fields, const RopeSpec& spec) {
  SP_TRY(fields.rope.Positive("factor"));
  if (spec.dim > 2) return Ok();
  return BadInput(
      fmt::format("{}: field 'partial_rotary_factor' leaves {} dims to rotate: expected "
                  "more than 2 for dynamic",
                  fields.rope.origin(), spec.dim));
}

Status ReadLongrope(const RopeFields& fields, int64_t frequencies, RopeSpec& spec) {
  SP_ASSIGN(spec.short_factor, fields.rope.Positives("short_factor", frequencies));
  SP_TRY(fields.rope.Positives("long_factor", frequencies));  // for sequences beyond the short ones
  return Ok();
}

/// What only some kinds have.
Status ReadOfKind(const RopeFields& fields, double partial, Rotary& rotary) {
  switch (rotary.rope.kind) {
    case RopeKind::kDefault:
      return Ok();
    case RopeKind::kDynamic:
      return CheckDynamic(fields, rotary.rope);
    case RopeKind::kLinear:
      return ReadLinear(fields, rotary.rope);
    case RopeKind::kProportional:
      return ReadProportional(fields, partial, rotary.rope);
    case RopeKind::kLongrope:
      return ReadLongrope(fields, rotary.frequencies, rotary.rope);
    case RopeKind::kYarn:
      return ReadYarn(fields, rotary.rope);
    case RopeKind::kLlama3:
      return ReadLlama3(fields, rotary.rope);
  }
  return Ok();
}

}  // namespace

Result<Rotary> RotaryFromConfig(const Fields& config, int64_t head_dim,
                                const RopeDefaults& defaults) {
  SP_ASSIGN(const Fields rope, ObjectOfRope(config));
  const RopeFields fields{rope, config, defaults};
  Rotary rotary;
  SP_ASSIGN(rotary.rope.kind, KindOf(rope, defaults));
  SP_ASSIGN(const double theta, config.Positive("rope_theta", defaults.theta));
  SP_ASSIGN(rotary.rope.theta, rope.Positive("rope_theta", theta));
  SP_ASSIGN(const double partial, PartialFactor(fields));
  const bool whole =
      rotary.rope.kind == RopeKind::kDefault || rotary.rope.kind == RopeKind::kProportional;
  rotary.rope.dim =
      whole ? head_dim : static_cast<int64_t>(static_cast<double>(head_dim) * partial);
  if (rotary.rope.dim < 2) {
    return BadInput(
        fmt::format("{}: field 'partial_rotary_factor' is {}: expected one that leaves "
                    "2 dims of {} or more",
                    rope.origin(), partial, head_dim));
  }
  rotary.frequencies = (rotary.rope.dim + 1) / 2;
  SP_TRY(ReadOfKind(fields, partial, rotary));
  return rotary;
}

Result<Rotary> TowerRotaryFromConfig(const Fields& vision, int64_t head_dim) {
  SP_ASSIGN(const Fields rope, ObjectOfRope(vision));
  SP_ASSIGN(const std::string type, rope.Text(TypeField(rope), "default"));
  if (type != "default" && type != "axial") {
    return rope.Wrong(TypeField(rope), "axial, the only kind of a vision tower");
  }
  SP_ASSIGN(const double theta, vision.Positive("rope_theta", 10000.0));
  Rotary rotary;
  SP_ASSIGN(rotary.rope.theta, rope.Positive("rope_theta", theta));
  rotary.rope.dim = head_dim / 2;
  rotary.frequencies = (rotary.rope.dim + 1) / 2;
  return rotary;
}

}  // namespace shardproof
