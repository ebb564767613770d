// From a failing case to the smallest that fails in the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "verify/campaign/campaign.h"
#include "verify/case/case.h"

namespace shardproof {

/// What makes two failures the same: the property and kind of finding, where in the run it shows,
/// and the cause that the data suggest, so that shrinking does not slide from one mistake to
/// another.
struct Signature {
  std::string property;
  std::string kind;
  std::optional<Phase> phase;
  std::string stage;
  std::string cause;  ///< the explanation without what depends on sizes, or how a rank ended

  std::string Text() const;
};

Signature SignatureOf(const FindingOutcome& finding);
bool Shows(const CaseOutcome& outcome, const Signature& signature);

struct Shrunk {
  Case test_case;
  uint64_t runs = 0;
  bool is_smallest =
      false;  ///< no simpler case shows it; false: the runs were used up, or a signal came
};

/// Runs cases as `options` says (but judges only what the signature is about), each in a worker, so
/// that one which takes its process along is no more than one that shows something else. Ends early
/// on SIGTERM and SIGINT, as Soak does. \param runs_max  of those; ShrinkRunsFor says what is
/// usual. \error kInternal if no worker can be made.
Result<Shrunk> Shrink(const Case& failing, const Signature& signature, uint64_t runs_max,
                      const SoakOptions& options);

/// Half a minute's worth and more of the reference; of a subject, whose every run takes seconds,
/// fewer.
uint64_t ShrinkRunsFor(const std::string& subject);

}  // namespace shardproof
