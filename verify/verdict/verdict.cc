// Verdicts, findings and judgements as values: how they merge and what they are called.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "verify/verdict/property.h"

namespace shardproof {

// Verdict's enumerators are in this order, so that the worst of two is the greater.
static_assert(Verdict::kSkip < Verdict::kPass && Verdict::kPass < Verdict::kInconclusive &&
              Verdict::kInconclusive < Verdict::kFail);

Verdict Worse(Verdict a, Verdict b) { return a > b ? a : b; }

std::string ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSkip:
      return "skip";
    case Verdict::kPass:
      return "pass";
    case Verdict::kInconclusive:
      return "inconclusive";
    case Verdict::kFail:
      return "fail";
  }
  return "inconclusive";
}

std::string Finding::Fingerprint() const {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bits
  for (const char c : property + "|" + kind + "|" + stage + "|" + tensor) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

nlohmann::json FindingToJson(const Finding& finding) {
  nlohmann::json json = {{"property", finding.property},   {"kind", finding.kind},
                         {"class", finding.failure_class}, {"fingerprint", finding.Fingerprint()},
                         {"ranks", finding.ranks},         {"world_size", finding.world_size},
                         {"message", finding.message}};
  const auto add_text = [&](const char* name, const std::string& value) {
    if (!value.empty()) json[name] = value;
  };
  if (finding.is_consequence) json["is_consequence"] = true;
  add_text("phase", NameOf(finding.phase));
  add_text("stage", finding.stage);
  add_text("tensor", finding.tensor);
  add_text("expected", finding.expected);
  add_text("seen", finding.seen);
  add_text("explanation", finding.explanation);
  if (!finding.hosts.empty()) {
    json["host"] = finding.hosts.front();
    json["hosts"] = finding.hosts;
  }
  if (finding.index) {
    json["index"] = *finding.index;
    json["coordinates"] = finding.coordinates;  // empty for a 0-dim tensor
  }
  if (finding.differing) json["differing"] = *finding.differing;
  if (finding.held) json["group"] = HeldInToJson(*finding.held);
  const Facts& facts = finding.facts;
  if (facts.against.what != Against::What::kNothing) {
    json["against"] = AgainstToJson(facts.against);
  }
  add_text("cause", facts.cause);
  add_text("other", facts.other);
  add_text("option", facts.option);
  add_text("keys", facts.keys);
  add_text("file", facts.file);
  add_text("exit", facts.exit);
  add_text("raised", facts.raised);
  const auto add_number = [&](const char* name, const auto& value) {
    if (value) json[name] = *value;
  };
  add_number("step", facts.step);
  add_number("limit_bytes", facts.limit_bytes);
  add_number("ulp_max", facts.ulp_max);
  add_number("collective", facts.collective);
  return json;
}

void Judgement::Skipped(std::string reason) {
  if (skip_reason_.empty()) skip_reason_ = std::move(reason);
}

void Judgement::NotCompared(std::string reason) {
  if (not_compared_count_++ == 0) not_compared_ = std::move(reason);
}

void Judgement::Inconclusive(std::string reason) {
  if (inconclusive_count_++ == 0) inconclusive_reason_ = std::move(reason);
}

void Judgement::KeepFindings(size_t kept) {
  if (findings_.size() <= kept) return;
  for (size_t i = kept; i < findings_.size(); ++i) {
    Finding& finding = findings_[i];
    left_out_.push_back({std::move(finding.kind), std::move(finding.failure_class),
                         std::move(finding.stage), std::move(finding.tensor)});
  }
  findings_.resize(kept);
}

Verdict Judgement::verdict() const {
  if (!findings_.empty()) return Verdict::kFail;
  if (inconclusive_count_ > 0) return Verdict::kInconclusive;
  if (comparisons_ > 0) return Verdict::kPass;
  return skip_reason_.empty() ? Verdict::kInconclusive : Verdict::kSkip;
}

std::string Judgement::reason() const {
  if (inconclusive_count_ == 1) return inconclusive_reason_;
  if (inconclusive_count_ > 1) {
    return fmt::format("{}; and {} more that could not be judged", inconclusive_reason_,
                       inconclusive_count_ - 1);
  }
  if (not_compared_count_ > 1)
    return fmt::format("{}; and {} more were not", not_compared_, not_compared_count_ - 1);
  if (not_compared_count_ == 1) return not_compared_;
  if (comparisons_ > 0 || !findings_.empty()) return "";
  return skip_reason_.empty() ? "no comparison was made" : skip_reason_;
}

}  // namespace shardproof
