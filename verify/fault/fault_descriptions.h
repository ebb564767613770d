// Faults in plain words, as reports and reproducers say them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verify/fault/fault.h"

namespace shardproof {

/// What a fault does, and where: a sentence without its capital and its stop, such as "on rank 1,
/// the third write to a file and all after it fail with ENOSPC: No space left on device". Of a
/// fault or a place that is not known, what is known of it.
std::string DescribeFault(const Case& test_case, const FaultCase& fault);
/// The same of all faults of a Case, in its order.
std::vector<std::string> DescribeFaults(const Case& test_case);

/// "first" to "tenth", then "11th", "12th", ... \param number  from 1
std::string Ordinal(int64_t number);

/// "ENOSPC: No space left on device"
std::string ErrnoInWords(int error_number);

/// Fault::in_words of a fault whose WHERE is a Trigger: on which rank, the how manieth `call`, and
/// what becomes of it. \param from_then_on  and of all calls after it; what becomes of them is then
/// said of many.
std::function<std::string(const Case&, const std::string& where)> CallInWords(
    std::string call, std::string becomes, bool from_then_on = false);

}  // namespace shardproof
