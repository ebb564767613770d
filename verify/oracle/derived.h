// The bound that goes with DefaultInverseFrequencies (oracle.h).
#pragma once

#include <cstdint>

namespace shardproof::oracle {

/// How far another correct F32 evaluation may be from ours, in units in the last place.
extern const int64_t kDefaultRopeUlpMax;

}  // namespace shardproof::oracle
