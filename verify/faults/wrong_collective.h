// A rank that leaves out a collective, or makes another one than the others.
#pragma once

#include <functional>
#include <string>

#include "verify/fault/fault.h"

namespace shardproof {

/// What is done in place of a collective.
using Instead = std::function<Status(Communicator& communicator)>;

/// \param verb  what is on record before the collective's name
/// \param becomes  what becomes of the collective, in words: "is left out"
Fault OtherwiseFault(const std::string& id, const std::string& what, const std::string& verb,
                     const std::string& becomes, Instead instead);

}  // namespace shardproof
