// A rank that leaves out a collective, or makes another one than the others.
#pragma once

#include <functional>
#include <string>

#include "verify/faults/fault.h"

namespace shardproof {

/// What is done in place of a collective.
using Instead = std::function<Status(Communicator& communicator)>;

/// \param verb  what is on record before the collective's name
/// \param becomes  what becomes of the collective, in words: "is left out"
struct InsteadOfCollective {
  std::string id;
  std::string what;
  FaultExample example;
  std::string verb;     ///< begins the line on record: "left out:"
  std::string becomes;  ///< in words, of the collective: "is left out"
  Instead instead;
  FaultDraw draw = {};
};

Fault OtherwiseFault(InsteadOfCollective fault);

}  // namespace shardproof
