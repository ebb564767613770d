#include "verify/oracle/rope_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "verify/case/names.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

constexpr int64_t kRopePositionsMax = int64_t{1} << 40;
constexpr size_t kFactorsMax = 1 << 16;

/// rope_parameters is the word now, rope_scaling (theta beside it) was before and wins if it says
/// anything.
Result<Fields> RopeObject(const Fields& config) {
  SP_ASSIGN(Fields older, config.Object("rope_scaling"));
  SP_ASSIGN(Fields newer, config.Object("rope_parameters"));
  Fields rope = older.empty() ? std::move(newer) : std::move(older);
  for (const JsonMember& member : rope.members()) {
    if (member.value.is_object()) {
      return rope.Wrong(Printable(member.key), "one set of RoPE parameters for all layers",
                        member.value);
    }
  }
  return rope;
}

const char* TypeField(const Fields& rope) { return rope.Has("rope_type") ? "rope_type" : "type"; }

Result<std::string> ReadType(const Fields& rope, const RopeDefaults& defaults) {
  const char* field = TypeField(rope);
  SP_ASSIGN(const std::string type, rope.Text(field, "default"));
  if (type == "mrope" && defaults.knows_mrope) return std::string("default");
  const NameTable& known = KnownRopes();
  if (std::find(known.begin(), known.end(), type) != known.end()) return type;
  return rope.Wrong(field, "one of the known kinds of RoPE: " + ListNames(known),
                    *rope.Find(field));
}

Result<double> ReadTheta(const Fields& config, const Fields& rope, double if_absent) {
  SP_ASSIGN(const double outer, config.Positive("rope_theta", if_absent));
  return rope.Positive("rope_theta", outer);
}

/// What the model was trained on before its context was stretched. Where the config says it beside
/// the RoPE parameters, that wins (as Phi-3 has it); where nobody does, nothing was stretched.
Result<int64_t> ReadOrigin(const Fields& config, const Fields& rope, const RopeDefaults& defaults) {
  const char* name = "original_max_position_embeddings";
  if (config.Has(name)) return config.Integer(name, kRopePositionsMax);
  if (rope.Has(name)) return rope.Integer(name, kRopePositionsMax);
  return config.IntegerOr(defaults.max_position_embeddings, "max_position_embeddings",
                          kRopePositionsMax);
}

/// Rotary dims of a head, for the kinds that can leave some out; at least 2.
Result<int64_t> ReadPartialDim(const Fields& rope, double fraction, int64_t head_dim) {
  const int64_t dim = static_cast<int64_t>(static_cast<double>(head_dim) * fraction);
  if (dim < 2) {
    return BadInput(
        fmt::format("{}: partial_rotary_factor: expected one that leaves 2 dims or "
                    "more of head_dim {}, found {}",
                    rope.where(), head_dim, fraction));
  }
  return dim;
}

Status ReadYarn(const Fields& rope, RopeCase& out) {
  if (out.dim % 2 != 0) {
    return rope.Wrong("partial_rotary_factor", "one that gives yarn an even number of dims",
                      out.dim);
  }
  if (out.theta <= 1) {
    return BadInput(fmt::format("{}: rope_theta: expected a number above 1 for yarn, found {}",
                                rope.where(), out.theta));
  }
  SP_ASSIGN(out.beta_fast, rope.Positive("beta_fast", out.beta_fast));
  SP_ASSIGN(out.beta_slow, rope.Positive("beta_slow", out.beta_slow));
  SP_ASSIGN(out.truncate, rope.Bool("truncate", out.truncate));
  return Ok();
}

Status ReadLlama3(const Fields& rope, RopeCase& out) {
  SP_ASSIGN(out.low_freq_factor, rope.Positive("low_freq_factor"));
  SP_ASSIGN(out.high_freq_factor, rope.Positive("high_freq_factor"));
  if (out.low_freq_factor != out.high_freq_factor) return Ok();
  return rope.Wrong("high_freq_factor", "another number than low_freq_factor",
                    *rope.Find("high_freq_factor"));
}

Status ReadLongrope(const Fields& rope, int64_t count, RopeCase& out) {
  for (const char* name : {"short_factor", "long_factor"}) {
    const std::string expected = fmt::format("{} numbers, one a frequency", count);
    if (!rope.Has(name)) return rope.Missing(name, expected);
    SP_ASSIGN(std::vector<double> factors, rope.Positives(name, kFactorsMax));
    if (static_cast<int64_t>(factors.size()) != count) {
      return rope.Wrong(name, expected, static_cast<int64_t>(factors.size()));
    }
    // Long sequences switch to the long factors in the forward pass; a model begins with the short.
    if (name == std::string_view("short_factor")) out.short_factor = std::move(factors);
  }
  return Ok();
}

/// The fields of the kinds that are derived from others than theta and dim.
Status ReadKind(const Fields& config, const Fields& rope, const RopeDefaults& defaults,
                double fraction, int64_t head_dim, RotaryConfig& out) {
  const std::string& type = out.rope.type;
  if (type == "proportional") {
    SP_ASSIGN(out.rope.factor, rope.Positive("factor", 1.0));
    out.rope.rotated =
        static_cast<int64_t>(std::floor(fraction * static_cast<double>(head_dim) / 2));
    return Ok();
  }
  SP_ASSIGN(out.rope.dim, ReadPartialDim(rope, fraction, head_dim));
  out.count = (out.rope.dim + 1) / 2;
  if (type == "longrope") return ReadLongrope(rope, out.count, out.rope);
  SP_ASSIGN(const double factor, rope.Positive("factor"));
  if (type == "dynamic") {
    // It plays no part before a sequence outgrows max_position_embeddings; dim / (dim - 2) does.
    if (out.rope.dim > 2) return Ok();
    return rope.Wrong("partial_rotary_factor", "one that gives dynamic more than 2 dims",
                      out.rope.dim);
  }
  out.rope.factor = factor;
  if (type == "linear") return Ok();
  SP_ASSIGN(out.rope.original_max_position_embeddings, ReadOrigin(config, rope, defaults));
  return type == "yarn" ? ReadYarn(rope, out.rope) : ReadLlama3(rope, out.rope);
}

}  // namespace

Result<RotaryConfig> ReadRope(const Fields& config, const RopeDefaults& defaults,
                              int64_t head_dim) {
  SP_ASSIGN(const Fields rope, RopeObject(config));
  RotaryConfig out;
  SP_ASSIGN(out.rope.type, ReadType(rope, defaults));
  SP_ASSIGN(out.rope.theta, ReadTheta(config, rope, defaults.theta));
  SP_ASSIGN(const double outer, config.Fraction("partial_rotary_factor", 1.0));
  SP_ASSIGN(const double fraction, rope.Fraction("partial_rotary_factor", outer));
  out.rope.dim = head_dim;
  out.count = head_dim / 2;
  // The models' own computation of kind default rotates whole heads, whatever the fraction.
  if (out.rope.type == "default") return out;
  SP_TRY(ReadKind(config, rope, defaults, fraction, head_dim, out));
  return out;
}

Result<RotaryConfig> ReadVisionRope(const Fields& vision, int64_t head_dim) {
  SP_ASSIGN(const Fields rope, RopeObject(vision));
  const char* field = TypeField(rope);
  SP_ASSIGN(const std::string type, rope.Text(field, "default"));
  if (type != "default" && type != "axial") {
    return rope.Wrong(field, "axial, the only kind of a vision tower", *rope.Find(field));
  }
  RotaryConfig out;
  SP_ASSIGN(out.rope.theta, ReadTheta(vision, rope, out.rope.theta));
  out.rope.dim = head_dim / 2;
  out.count = (out.rope.dim + 1) / 2;
  return out;
}

}  // namespace shardproof::oracle
