// A Finding says what is wrong, where, and what was expected; a Verdict says how a run came out.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "verify/case/case.h"
#include "verify/verdict/facts.h"
#include "verify/verdict/held_in.h"

namespace shardproof {

/// Worst first wins when verdicts are merged: fail > inconclusive > pass > skip.
enum class Verdict { kSkip, kPass, kInconclusive, kFail };

Verdict Worse(Verdict a, Verdict b);
std::string ToString(Verdict verdict);  ///< "skip", "pass", "inconclusive", "fail"

/// One thing that is wrong. Empty or unset fields do not apply.
struct Finding {
  std::string property;  ///< id of the property that found it
  std::string kind;      ///< short and stable: "differs", "meta", "nan", "gap", "untied", ...
  std::string failure_class = "code";  ///< "code", "input", "infrastructure" or "verifier"
  std::optional<Phase> phase;
  std::string stage;
  std::vector<int64_t> ranks;  ///< the ranks where it shows
  int64_t world_size = 0;
  std::vector<std::string> hosts;
  std::string tensor;
  std::optional<uint64_t> index;      ///< global row-major element index of the first difference
  std::vector<int64_t> coordinates;   ///< the same, per tensor dim
  std::optional<uint64_t> differing;  ///< how many elements differ, where that is known
  std::string expected;               ///< value and bits: "0.015625 (0x3c800000)"
  std::string seen;
  std::string explanation;  ///< the likely cause, from the data
  std::string message;      ///< the first line: enough for a chat alert
  /// Which of the above the message gives as they stand there. Not part of the JSON form.
  struct InMessage {
    bool expected = true;
    bool seen = true;
    bool explanation = true;
  } in_message;
  /// What the sentences above say, as data. Nothing reads a sentence back.
  Facts facts;
  /// In which groups the first of `ranks` holds the tensor, where evidence says it.
  std::optional<HeldIn> held;
  /// Whether it follows from another one of its phase, which is told first. Not part of the JSON
  /// form.
  bool is_consequence = false;
  /// Bytes that a second run of the same case must record for the exact element to be named. Empty
  /// if it is named already, or cannot be. Not part of the JSON form.
  std::vector<CaptureRequest> wanted;

  /// 16 hex digits, stable over runs, seeds and machines: of property, kind, stage and tensor.
  std::string Fingerprint() const;
};

nlohmann::json FindingToJson(const Finding& finding);

}  // namespace shardproof
