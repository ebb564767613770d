# LibTorch from the PyPI wheel. find_package(Torch) drags in nvcc checks and the system's NCCL, so
# the targets are made from the wheel's own folders.

set(SHARDPROOF_TORCH_PYTHON "" CACHE FILEPATH "A Python whose torch is built against")
set(torch_python ${SHARDPROOF_TORCH_PYTHON})
if(SKBUILD AND NOT torch_python)
  set(torch_python ${Python_EXECUTABLE})
endif()
if(NOT torch_python)
  message(FATAL_ERROR "SHARDPROOF_TORCH_PYTHON is not set: give the Python that has torch, "
                      "-DSHARDPROOF_TORCH_PYTHON=/path/to/python, or let ci/verify install one")
endif()
# Read without importing torch, which takes seconds. pip builds with the Python that it installs
# into, but hides what that one has behind these variables: without them it is seen.
set(read_torch [[
import importlib.util, importlib.metadata, os
print(os.path.dirname(importlib.util.find_spec('torch').origin))
print(importlib.metadata.version('torch'))]])
foreach(environment "" "--unset=PYTHONPATH;--unset=PYTHONNOUSERSITE")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env ${environment} ${torch_python} -c "${read_torch}"
    OUTPUT_VARIABLE torch_facts RESULT_VARIABLE torch_failed OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_VARIABLE torch_error)
  if(NOT torch_failed)
    break()
  endif()
endforeach()
if(torch_failed AND SKBUILD)
  message(FATAL_ERROR "${torch_python} has no torch, which Shardproof is built against and "
                      "installed beside: install torch 2.11.0 or 2.15.0 first")
elseif(torch_failed)
  message(FATAL_ERROR "${torch_python} has no torch: ${torch_error}")
endif()
string(REPLACE "\n" ";" torch_facts "${torch_facts}")
list(GET torch_facts 0 torch_root)
list(GET torch_facts 1 SHARDPROOF_TORCH_VERSION)
message(STATUS "LibTorch ${SHARDPROOF_TORCH_VERSION} in ${torch_root}")

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
target_link_options(libtorch INTERFACE "-Wl,--no-as-needed" "-Wl,--allow-shlib-undefined")

# All that includes tensors shares a precompiled header: 8 s a file without it. Only what most files
# need is in it: <ATen/ATen.h> would cost each of them seconds more.
shardproof_headers(torch_headers LINK libtorch HEADERS <ATen/core/Tensor.h> ${shared_headers})
if(SHARDPROOF_TESTS)
  shardproof_headers(torch_test_headers LINK libtorch GTest::gmock
    HEADERS <ATen/core/Tensor.h> ${shared_headers} <gmock/gmock.h> <gtest/gtest.h>)
endif()
