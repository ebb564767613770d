#pragma once

#include "verify/audit/audit.h"

namespace shardproof {

/// Embeddings and heads that have fewer rows than the vocabulary of config.json are damage: of a
/// model that was put together, one rank's rows alone were saved. More rows are padding. Where the
/// config knows several vocabularies, the smallest counts.
void HoldVocabulary(AuditResult& result);

}  // namespace shardproof
