// Which rank is lost. A transport says that a connection was closed or that nothing came in time,
// and says it of whoever this rank happened to talk to, which may have left only because others
// did. So ranks for which a collective fails leave word in the store that they met by, and see who
// does not.
#pragma once

#include <chrono>
#include <memory>

#include "src/comm/c10d_fwd.h"
#include "src/seam/clock.h"
#include "src/seam/communicator.h"

namespace shardproof {

/// Passes everything on. Where a collective fails, its error names the ranks that are lost: whose
/// process is gone or stopped, as far as it is on this machine; that have left; that came more than
/// twice `patience` after another; that are at another collective; or else that have left no word
/// within `patience`. After that every collective fails at once with the same error, so that no
/// rank waits for its time to run out again and again. A rank that lets go of its communicator has
/// left. \param store  that no other communicator calls the roll by.
std::shared_ptr<Communicator> CallRoll(std::shared_ptr<Communicator> inner,
                                       c10::intrusive_ptr<c10d::Store> store,
                                       std::chrono::milliseconds patience,
                                       std::shared_ptr<Clock> clock);

}  // namespace shardproof
