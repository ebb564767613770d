// Memory of a device that there is none of: the program gets addresses that it can neither read nor
// write, as with a GPU, and the doubles reach what stands behind them.
#pragma once

#include <cstddef>

/// Where the double has the bytes of `pointer`, which is the device's or the host's.
extern "C" void* doubleHostAddress(const void* pointer);
