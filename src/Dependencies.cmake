# What ci/dependencies gathered in SHARDPROOF_DEPENDENCIES: nothing of the system's packages is
# used, and what is C++ is compiled here, so that any C++ library will do.
set(gathered_include ${SHARDPROOF_DEPENDENCIES}/include)
set(gathered_lib ${SHARDPROOF_DEPENDENCIES}/lib/${CMAKE_SYSTEM_PROCESSOR})
if(NOT EXISTS ${gathered_lib})
  message(FATAL_ERROR "${SHARDPROOF_DEPENDENCIES} has no libraries for ${CMAKE_SYSTEM_PROCESSOR}: "
                      "expected x86_64 or aarch64")
endif()
# Where other files look for headers.
set(fmt_include ${gathered_include})
set(gloo_include ${gathered_include})

add_library(gathered_headers INTERFACE)
target_include_directories(gathered_headers SYSTEM INTERFACE ${gathered_include})

# gathered_sources(NAME INCLUDE FILE ...)
function(gathered_sources name include)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} SYSTEM PUBLIC ${include})
  target_compile_options(${name} PRIVATE -w)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)  # modules link it too
endfunction()
gathered_sources(fmt ${gathered_include} ${SHARDPROOF_DEPENDENCIES}/fmt/format.cc)
gathered_sources(simdjson ${SHARDPROOF_DEPENDENCIES}/simdjson
                 ${SHARDPROOF_DEPENDENCIES}/simdjson/simdjson.cpp)
add_library(fmt::fmt ALIAS fmt)
add_library(simdjson::simdjson ALIAS simdjson)
add_library(nlohmann_json::nlohmann_json ALIAS gathered_headers)
add_library(CLI11::CLI11 ALIAS gathered_headers)

# gathered_library(NAME FILE): of C, or a static one that only the engine links.
function(gathered_library name file)
  if(NOT EXISTS ${gathered_lib}/${file})
    return()
  endif()
  if(file MATCHES "\\.so")
    add_library(${name} SHARED IMPORTED GLOBAL)
    set_target_properties(${name} PROPERTIES IMPORTED_SONAME ${file})
  else()
    add_library(${name} STATIC IMPORTED GLOBAL)
  endif()
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${gathered_lib}/${file})
  target_link_libraries(${name} INTERFACE gathered_headers)
endfunction()
gathered_library(pcre2 libpcre2-8.a)
gathered_library(isal libisal.so.2)
gathered_library(fiu libfiu.so.0)
gathered_library(rapidcheck librapidcheck.a)
if(NOT TARGET rapidcheck)
  add_library(rapidcheck ALIAS gathered_headers)
endif()
