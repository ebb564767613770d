// Puts every collective on record before it starts, so that the last line of a hanging rank says
// what it waits for.
#pragma once

#include <memory>

#include "src/seam/communicator.h"
#include "verify/evidence/writer.h"

namespace shardproof {

/// \param writer outlives the result.
std::shared_ptr<Communicator> RecordCollectives(std::shared_ptr<Communicator> inner,
                                                EvidenceWriter& writer);

}  // namespace shardproof
