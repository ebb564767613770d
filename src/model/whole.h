// The whole of a tensor that is cut, put together from what ranks have of it.
#pragma once

#include <memory>

#include "src/model/model.h"

namespace shardproof {

/// A slot for all of it, in the host's memory, of undefined content. \error as Device::Allocate.
Result<std::shared_ptr<Slot>> MakeWhole(const Slot& slot, Device& device);

/// Puts there what a shard holds, which lies at `bytes` in the shard's local order.
void PutShard(const Slot& whole, const Shard& shard, const std::byte* bytes);

}  // namespace shardproof
