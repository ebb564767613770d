// Sizes that a map takes from the config.json beside a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "verify/maps/apply.h"

namespace shardproof::maps {

/// The folder of the config.json that belongs to a checkpoint: its own, or the one that its file is
/// in.
std::string ConfigFolder(const std::string& checkpoint);

/// Whole numbers of the config.json files of these checkpoints: what the first one has, and what
/// another one has must not be another number. \error kBadInput of a field that none has, that is
/// no whole number, or that is two numbers.
ConfigField ConfigOf(const std::vector<std::string>& checkpoints);

}  // namespace shardproof::maps
