# LibTorch from the PyPI wheel. find_package(Torch) drags in nvcc checks and the system's NCCL, so the
# targets are made from the wheel's own folders. The wheel lacks Gloo's headers, which
# ProcessGroupGloo.hpp includes: Debian's libgloo-dev supplies them (include path only).

set(SHARDPROOF_TORCH_PYTHON "" CACHE FILEPATH "A Python whose torch is built against")
if(NOT SHARDPROOF_TORCH_PYTHON)
  message(FATAL_ERROR "SHARDPROOF_TORCH_PYTHON is not set: give the Python that has torch, "
                      "-DSHARDPROOF_TORCH_PYTHON=/path/to/python, or let ci/verify install one")
endif()
# Read without importing torch, which takes seconds.
execute_process(
  COMMAND ${SHARDPROOF_TORCH_PYTHON} -c
    "import importlib.util, importlib.metadata as m, os; print(os.path.dirname(importlib.util.find_spec('torch').origin)); print(m.version('torch'))"
  OUTPUT_VARIABLE torch_facts RESULT_VARIABLE torch_failed OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_VARIABLE torch_error)
if(torch_failed)
  message(FATAL_ERROR "${SHARDPROOF_TORCH_PYTHON} has no torch: ${torch_error}")
endif()
string(REPLACE "\n" ";" torch_facts "${torch_facts}")
list(GET torch_facts 0 torch_root)
list(GET torch_facts 1 SHARDPROOF_TORCH_VERSION)
message(STATUS "LibTorch ${SHARDPROOF_TORCH_VERSION} in ${torch_root}")

find_path(gloo_include gloo/algorithm.h REQUIRED)

# The wheel bundles the headers of another fmt, without its library. None of what we include of it
# needs fmt, so the system's goes first: compiled once, not into every object.
find_path(fmt_include fmt/format.h REQUIRED)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/first)
file(CREATE_LINK ${fmt_include}/fmt ${CMAKE_BINARY_DIR}/first/fmt SYMBOLIC)

add_library(libtorch INTERFACE)
target_include_directories(libtorch INTERFACE ${CMAKE_BINARY_DIR}/first)
target_include_directories(libtorch SYSTEM INTERFACE
  ${torch_root}/include ${torch_root}/include/torch/csrc/api/include ${gloo_include})
target_compile_definitions(libtorch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED
  SHARDPROOF_TORCH_VERSION="${SHARDPROOF_TORCH_VERSION}")
target_link_libraries(libtorch INTERFACE
  ${torch_root}/lib/libtorch_cpu.so ${torch_root}/lib/libc10.so fmt::fmt Threads::Threads)
target_link_options(libtorch INTERFACE "-Wl,-rpath,${torch_root}/lib" "-Wl,--no-as-needed"
  "-Wl,--allow-shlib-undefined")

# One precompiled header for all that includes tensors: 8 s a file without it. Only what every file
# needs is in it: <ATen/ATen.h> would cost each of them seconds more.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_headers.cc
  CONTENT "// Holds the precompiled header.\n")
add_library(torch_headers OBJECT ${CMAKE_BINARY_DIR}/torch_headers.cc)
target_link_libraries(torch_headers PUBLIC libtorch)
target_precompile_headers(torch_headers PRIVATE
  <ATen/core/Tensor.h> <fmt/format.h> <fmt/ranges.h>
  <string> <vector> <map> <memory> <functional>)
