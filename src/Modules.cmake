# One folder is one module: every *.cc of it is compiled, every *_test.cc becomes its unit tests.

# Every test has one label that says what it costs: fast, process, framework or nightly. One that
# has none is of the tier "framework" if it is about a subject, else "process".
function(shardproof_tier labels)
  set(tiers ${${labels}})
  list(FILTER tiers INCLUDE REGEX "^(fast|process|framework|nightly)$")
  if(NOT tiers AND "subject" IN_LIST ${labels})
    list(APPEND ${labels} framework)
  elseif(NOT tiers)
    list(APPEND ${labels} process)
  endif()
  set(${labels} ${${labels}} PARENT_SCOPE)
endfunction()

# Ends the configuration if a module depends on one that is not declared above it.
function(shardproof_check_ground name)
  foreach(target IN LISTS ARGN)
    if(NOT TARGET ${target})
      message(FATAL_ERROR "${name}: ${target} is not declared above it: "
                          "a folder depends on lower ones only")
    endif()
  endforeach()
endfunction()

# shardproof_headers(NAME LINK target ... HEADERS header ...)
# A precompiled header, by a target that others reuse it from.
function(shardproof_headers name)
  cmake_parse_arguments(pch "" "" "LINK;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cc CONTENT "// Holds the precompiled header.\n")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PUBLIC ${pch_LINK})
  target_precompile_headers(${name} PRIVATE ${pch_HEADERS})
endfunction()

# The JSON library alone takes 1.5 s of each file that includes it.
set(shared_headers <nlohmann/json.hpp> <fmt/format.h> <fmt/ranges.h>
  <string> <vector> <map> <memory> <functional>)
shardproof_headers(plain_headers LINK fmt::fmt nlohmann_json::nlohmann_json
  HEADERS ${shared_headers})
if(SHARDPROOF_TESTS)
  shardproof_headers(plain_test_headers LINK fmt::fmt nlohmann_json::nlohmann_json GTest::gmock
    HEADERS ${shared_headers} <gmock/gmock.h> <gtest/gtest.h>)
endif()

# A folder whose files other targets compile: the module is what they link.
function(shardproof_interface)
  cmake_parse_arguments(module "" "NAME" "FOLDERS;DEPENDS" ${ARGN})
  if(NOT SHARDPROOF_TORCH)
    return()
  endif()
  shardproof_check_ground(${module_NAME} ${module_DEPENDS})
  add_library(${module_NAME} INTERFACE)
  target_link_libraries(${module_NAME} INTERFACE ${module_DEPENDS})
endfunction()

# shardproof_gtest(NAME TARGET LABELS label ... TIMEOUT SECONDS [FILTER PATTERN])
# The test cases of a program as one ctest, since each start of one that is linked to LibTorch costs
# a third of a second. gtest/NAME.xml has the time, and the reason of a skip, of each.
function(shardproof_gtest name target)
  cmake_parse_arguments(test "" "FILTER;TIMEOUT" "LABELS" ${ARGN})
  if(NOT test_FILTER)
    set(test_FILTER "*")
  endif()
  shardproof_tier(test_LABELS)
  add_test(NAME ${name} COMMAND ${target} --gtest_brief=1 "--gtest_filter=${test_FILTER}"
           "--gtest_output=xml:${CMAKE_BINARY_DIR}/gtest/${name}.xml")
  set_tests_properties(${name} PROPERTIES LABELS "${test_LABELS}" TIMEOUT ${test_TIMEOUT})
endfunction()

# shardproof_module(NAME name [TORCH] [OBJECT] [ALONE] [FOLDERS f ...] [DEPENDS target ...]
#                   [TEST_DEPENDS target ...])
# DEPENDS: all that its files may include (ci/layers.py). TEST_DEPENDS: what its tests may besides,
# which may be higher ones.
# TORCH: the module may include ATen and c10d. OBJECT: its files register themselves, so they must
# be linked whole. ALONE: each file is compiled by itself, also with SHARDPROOF_UNITY, and
# with -O2, whatever SHARDPROOF_OPTIMISATION says. FOLDERS: default is the current one.
function(shardproof_module)
  cmake_parse_arguments(module "TORCH;OBJECT;ALONE" "NAME" "FOLDERS;DEPENDS;TEST_DEPENDS" ${ARGN})
  if(module_TORCH AND NOT SHARDPROOF_TORCH)
    return()
  endif()
  shardproof_check_ground(${module_NAME} ${module_DEPENDS})
  if(NOT module_FOLDERS)
    set(module_FOLDERS .)
  endif()
  set(sources)
  set(tests)
  foreach(folder IN LISTS module_FOLDERS)
    file(GLOB found CONFIGURE_DEPENDS ${folder}/*.cc)
    list(APPEND sources ${found})
  endforeach()
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench|main)\\.cc$")
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")

  if(NOT sources)
    add_library(${module_NAME} INTERFACE)
    target_link_libraries(${module_NAME} INTERFACE ${module_DEPENDS})
  else()
    if(module_OBJECT)
      add_library(${module_NAME} OBJECT ${sources})
    else()
      add_library(${module_NAME} STATIC ${sources})
    endif()
    target_link_libraries(${module_NAME} PUBLIC ${module_DEPENDS})
    if(module_ALONE)
      target_compile_options(${module_NAME} PRIVATE $<$<CONFIG:Release>:-O2>)
    endif()
    if(SHARDPROOF_UNITY AND NOT module_ALONE)
      set_target_properties(${module_NAME} PROPERTIES
                            UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${SHARDPROOF_UNITY})
    endif()
    if(module_TORCH)
      target_link_libraries(${module_NAME} PUBLIC libtorch)
      target_precompile_headers(${module_NAME} REUSE_FROM torch_headers)
    else()
      if(NOT module_ALONE)
        target_precompile_headers(${module_NAME} REUSE_FROM plain_headers)
      endif()
      set_property(GLOBAL APPEND PROPERTY SHARDPROOF_WITHOUT_TORCH ${module_NAME})
    endif()
  endif()

  if(tests AND SHARDPROOF_TESTS)
    add_executable(${module_NAME}_test ${tests})
    target_link_libraries(${module_NAME}_test PRIVATE ${module_NAME} ${module_TEST_DEPENDS}
                          GTest::gmock GTest::gtest_main)
    if(SHARDPROOF_UNITY AND NOT module_ALONE)
      set_target_properties(${module_NAME}_test PROPERTIES
                            UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 5)
    endif()
    list(GET module_FOLDERS 0 first)
    string(REGEX REPLACE "/.*" "" top ${first})
    set_target_properties(${module_NAME}_test PROPERTIES
                          RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/${top})
    set_property(GLOBAL APPEND PROPERTY SHARDPROOF_TESTS_OF_${top} ${module_NAME}_test)
    if(module_TORCH)
      target_link_libraries(${module_NAME}_test PRIVATE libtorch)
      target_precompile_headers(${module_NAME}_test REUSE_FROM torch_test_headers)
    elseif(NOT module_ALONE)
      target_precompile_headers(${module_NAME}_test REUSE_FROM plain_test_headers)
    endif()
    shardproof_gtest(unit.${module_NAME} ${module_NAME}_test LABELS unit fast TIMEOUT 300)
  endif()
endfunction()
