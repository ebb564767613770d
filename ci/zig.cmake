# A CMake toolchain: zig's compilers, which PyPI has (ziglang), for a Linux with glibc 2.28 or
# newer, whatever this machine is. -DSHARDPROOF_ZIG=zig, -DSHARDPROOF_FOR=x86_64 or aarch64.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SHARDPROOF_ZIG SHARDPROOF_FOR)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${SHARDPROOF_FOR})

# CMake and ccache call each tool by one word.
execute_process(COMMAND ${SHARDPROOF_ZIG} version OUTPUT_VARIABLE zig_version
                OUTPUT_STRIP_TRAILING_WHITESPACE)  # ccache looks at the text of the compiler
set(target "-target ${SHARDPROOF_FOR}-linux-gnu.2.28")
set(zig_folder ${CMAKE_CURRENT_LIST_DIR}/../build/wheels/zig-${SHARDPROOF_FOR})
foreach(words "cc ${target}" "c++ ${target}" ar ranlib)
  string(REGEX MATCH "^[^ ]+" tool "${words}")
  if(NOT EXISTS ${zig_folder}/${tool})
    file(WRITE ${zig_folder}/${tool}.part
      "#!/bin/sh\n# ${zig_version}\nexec ${SHARDPROOF_ZIG} ${words} \"$@\"\n")
    file(CHMOD ${zig_folder}/${tool}.part PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
    file(RENAME ${zig_folder}/${tool}.part ${zig_folder}/${tool})
  endif()
endforeach()
set(CMAKE_C_COMPILER ${zig_folder}/cc)
set(CMAKE_CXX_COMPILER ${zig_folder}/c++)
set(CMAKE_AR ${zig_folder}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${zig_folder}/ranlib CACHE FILEPATH "")

# Its options for precompiled headers are not those that CMake knows; the warnings that are turned
# off are GCC's; and with optimisation it would define NDEBUG, with which checks would be off.
set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
set(CMAKE_C_FLAGS_INIT "-UNDEBUG -fno-sanitize=undefined -Wno-unknown-warning-option")
set(CMAKE_CXX_FLAGS_INIT "${CMAKE_C_FLAGS_INIT}")
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -s)
