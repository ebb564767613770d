// A clone of a function for each kind of vector unit; the loader picks, by what the processor can
// do and not by its maker. All give the same bits. (Where the compiler is to make vectors of loops,
// its file is compiled with -O3: src/CMakeLists.txt.)
#pragma once

#define SP_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
