# The libraries that come from Debian packages (ci/packages.txt). Who has no root can have them
# unpacked below the build directory instead, which is what pip does.
option(SHARDPROOF_UNPACK "Unpack missing Debian packages below the build directory" OFF)

set(found_by_cmake nlohmann_json fmt simdjson CLI11 rapidcheck)
set(their_packages nlohmann-json3-dev libfmt-dev libsimdjson-dev libcli11-dev librapidcheck-dev)

# Sets `missing` to the packages whose files are not found.
macro(shardproof_find_packages)
  set(missing)
  foreach(name package IN ZIP_LISTS found_by_cmake their_packages)
    find_package(${name} QUIET)
    if(NOT ${name}_FOUND)
      list(APPEND missing ${package})
    endif()
  endforeach()
  # The torch wheel lacks Gloo's headers, which ProcessGroupGloo.hpp includes; never linked.
  find_path(gloo_include gloo/algorithm.h)
  if(NOT gloo_include)
    list(APPEND missing libgloo-dev)
  endif()
  find_path(pcre2_include pcre2.h)
  # Its static one needs nothing to be installed.
  find_library(pcre2_library NAMES libpcre2-8.a pcre2-8)
  if(NOT pcre2_include OR NOT pcre2_library)
    list(APPEND missing libpcre2-dev)
  endif()
  find_path(isal_include isa-l/crc.h)
  find_library(isal_library isal)
  if(NOT isal_include OR NOT isal_library)
    list(APPEND missing libisal-dev)
  endif()
  find_path(fiu_include fiu-control.h)
  find_library(fiu_library fiu)
  if(NOT fiu_include OR NOT fiu_library)
    list(APPEND missing libfiu-dev)
  endif()
endmacro()

# Debian has no static fmt, simdjson and ISA-L, so what their -dev packages link to comes along. Of
# its own lists, since those of the system may be empty or old; complete, or not there at all.
set(unpack_script [[
  set -eu
  folder=$1; shift
  rm -rf "$folder" "$folder.part"
  mkdir -p "$folder.part/state/lists/partial" "$folder.part/cache/archives/partial"
  cd "$folder.part"
  apt="-q -o Dir::State=$PWD/state -o Dir::State::status=/var/lib/dpkg/status"
  apt="$apt -o Dir::Cache=$PWD/cache -o APT::Sandbox::User= -o Acquire::Retries=3"
  apt-get $apt update
  linked=$(apt-cache $apt depends libfmt-dev libsimdjson-dev libisal-dev libfiu-dev |
    sed -n 's/^ *Depends: //p')
  apt-get $apt download "$@" $linked
  for archive in *.deb; do dpkg-deb -x "$archive" .; done
  rm -rf state cache ./*.deb
  mv "$folder.part" "$folder"
]])

set(unpacked ${CMAKE_BINARY_DIR}/unpacked)
list(PREPEND CMAKE_PREFIX_PATH ${unpacked}/usr)
shardproof_find_packages()
if(missing AND SHARDPROOF_UNPACK)
  message(STATUS "Unpacking Debian packages in ${unpacked}")
  execute_process(
    COMMAND sh -c "${unpack_script}" unpack ${unpacked} ${their_packages} libgloo-dev
            libpcre2-dev libisal-dev libfiu-dev
    RESULT_VARIABLE failed OUTPUT_VARIABLE unpack_output ERROR_VARIABLE unpack_output)
  if(failed)
    message(NOTICE "${unpack_output}")
  endif()
  shardproof_find_packages()
endif()
if(missing)
  list(JOIN missing " " missing)
  message(FATAL_ERROR "missing Debian packages: ${missing}; as root: apt-get install ${missing}")
endif()
add_library(pcre2 INTERFACE)
target_include_directories(pcre2 SYSTEM INTERFACE ${pcre2_include})
target_link_libraries(pcre2 INTERFACE ${pcre2_library})
add_library(isal SHARED IMPORTED GLOBAL)
get_filename_component(isal_file ${isal_library} REALPATH)
set_target_properties(isal PROPERTIES IMPORTED_LOCATION ${isal_file} IMPORTED_SONAME libisal.so.2)
target_include_directories(isal SYSTEM INTERFACE ${isal_include})
# Of the verifier alone: nothing below src/ is linked to it.
add_library(fiu SHARED IMPORTED GLOBAL)
get_filename_component(fiu_file ${fiu_library} REALPATH)
set_target_properties(fiu PROPERTIES IMPORTED_LOCATION ${fiu_file} IMPORTED_SONAME libfiu.so.0)
target_include_directories(fiu SYSTEM INTERFACE ${fiu_include})
