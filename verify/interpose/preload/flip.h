// A bit of a result is flipped where the result lies, after the work that brings it.
#pragma once

#include "verify/interpose/preload/facts.h"
#include "verify/interpose/rule.h"

namespace shardproof::interpose {

/// Waits for the stream, and flips: of device memory by a copy of one byte there and back. What
/// kept it from being done is on record.
void Flip(const Rule& rule, const Facts& facts);

/// Whether this thread is within ncclGroupStart and ncclGroupEnd, where nothing has begun yet.
bool InGroup();
/// Flips when the group has ended.
void FlipAfterGroup(const Rule& rule, const Facts& facts);
void GroupBegun();
void GroupEnded();

}  // namespace shardproof::interpose
