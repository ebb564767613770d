// What libfiu is told of one point by its own commands.
#pragma once

#include <string>

#include "src/core/result.h"

namespace shardproof::interpose {

struct FiuCommand {
  std::string point;
  std::string text;  ///< libfiu's: "enable name=posix/io/rw/write,failinfo=28,onetime"
  std::string seed;  ///< empty: nothing is left to chance
};

/// Of FiuEnvironment's text. \error kBadInput saying what was expected
Result<FiuCommand> ParseFiuCommand(const std::string& text);

}  // namespace shardproof::interpose
