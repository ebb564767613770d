// Values of a checkpoint as JSON, where it keeps no pickles, and back.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "src/pickle/pickle.h"

namespace shardproof {

/// None, booleans, integers of 64 bits, finite floats, texts and lists as JSON has them. What it
/// has not is an object of one member that says what it is: {"tuple": [0.9, 0.999]}, {"dict":
/// [["key", 1]]}, {"float": "7ff0000000000000"} (its bits). \error kBadInput if it nests deeper
/// than 50; kUnsupported if it is none of these.
Result<nlohmann::json> JsonOfValue(const pickle::PickleValue& value);

/// A pickle of what JsonOfValue gave. \param where  what it is, for errors.
/// \error kBadInput, if JsonOfValue could not have given it.
Result<std::string> PickleOfJson(const nlohmann::json& value, const std::string& where);

}  // namespace shardproof
