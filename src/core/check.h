// SP_CHECK ends the process on a programmer error, in every build. The launcher records the signal
// and this line as evidence, so a broken rank is never mistaken for a passing one.
#pragma once

#include <cstdio>
#include <cstdlib>

#define SP_CHECK(condition, ...)                                                        \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      std::fprintf(stderr, "%s:%d: check failed: %s:", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, " " __VA_ARGS__);                                            \
      std::fputc('\n', stderr);                                                         \
      std::abort();                                                                     \
    }                                                                                   \
  } while (false)
