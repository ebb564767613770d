# LibTorch from the PyPI wheel. find_package(Torch) drags in nvcc checks and the system's NCCL, so
# the targets are made from the wheel's own folders.

include(src/TorchWheel.cmake)
if(torch_missing AND SKBUILD)
  message(FATAL_ERROR "${torch_python} has no torch, which the engine is built against: install "
                      "torch 2.11.0 or 2.15.0 first")
elseif(torch_missing)
  message(FATAL_ERROR "${torch_missing}")
endif()
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
