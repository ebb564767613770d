#pragma once

#include <string>

#include "verify/audit/audit.h"

namespace shardproof {

/// The training step that a checkpoint's content says: global_step of trainer_state.json, or a
/// value such as "iteration" of common.pt. In decimal digits; empty if it says none.
std::string CounterOf(const AuditResult& audited);

}  // namespace shardproof
