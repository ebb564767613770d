// One call of each function of the table, with arguments that the doubles accept.
#pragma once

#include <functional>
#include <map>
#include <string>

/// What a call returned, and the first bytes of what it filled.
struct Outcome {
  int code = 0;
  std::string result;  ///< hexadecimal; empty if it fills nothing
};

/// By name. What a call needs is made before: memory, a communicator of one rank, an id.
const std::map<std::string, std::function<Outcome()>>& Calls();
