// Runs the plain twin: the subject's model, built and loaded plainly in one process of its own
// environment (verify/python/shardproof/_twin/_twin.py).
#pragma once

#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/launch/launcher.h"
#include "verify/oracle/twin.h"

namespace shardproof {

/// Whether what is expected of the Case's subject can come from a twin: it is no reference, and its
/// model is not synthetic, of which the Case says all.
bool WantsTwin(const Case& test_case);

/// \param source       the checkpoint
/// \param directory    below which the twin's evidence goes
/// \param captures     stretches of tensors to record besides
/// \error kFailed, one line, if it could not be built; kInternal if nothing could be started.
Result<oracle::Twin> RunTwin(const Case& test_case, const std::string& source,
                             const std::string& directory,
                             const std::vector<CaptureRequest>& captures, Launcher& launcher);

/// As RunTwin, once the subject has trained. \param steps  where its ranks have left the values of
/// each step.
/// \error kFailed, one line, if the twin took none of them; kInternal if nothing could be started.
Result<std::vector<TwinStep>> RunTwinSteps(const Case& test_case, const std::string& source,
                                           const std::string& directory, const std::string& steps,
                                           Launcher& launcher);

}  // namespace shardproof
