// What is on record of the faults of this process. By system calls alone, and without allocation:
// the program's own open and write may be what is struck.
#pragma once

#include "verify/interpose/preload/facts.h"
#include "verify/interpose/rule.h"

namespace shardproof::interpose {

/// One line on stderr, with this library's name in front.
[[gnu::format(printf, 1, 2)]] void Tell(const char* format, ...);

/// The same, and the process ends with exit code 2, before the program has begun.
[[noreturn, gnu::format(printf, 1, 2)]] void Refuse(const char* format, ...);

/// Where firings are written from now on: the file that the environment names (made if it is not
/// there), else stderr. Refuses a file that cannot be written.
void OpenLog();

/// Appends the line of a firing with one write(2). \param rank  -1: not known
/// \returns whether it is on record; if not, says so on stderr, and the fault must not act.
bool LogFiring(const Rule& rule, int64_t call, int64_t rank, const Facts& facts);

/// Appends that what was on record could not be done after all.
void LogUndone(const Rule& rule, const char* why);

}  // namespace shardproof::interpose
