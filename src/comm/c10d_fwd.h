// Names of c10d, for headers: its own cost every file that includes them seconds to compile.
#pragma once

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d
