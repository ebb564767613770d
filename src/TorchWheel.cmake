# Where torch's wheel lies: torch_root and SHARDPROOF_TORCH_VERSION; torch_missing, a sentence, if
# there is none.
set(SHARDPROOF_TORCH_PYTHON "" CACHE FILEPATH "A Python whose torch is built against")
set(torch_python ${SHARDPROOF_TORCH_PYTHON})
if(SKBUILD AND NOT torch_python)
  set(torch_python ${Python_EXECUTABLE})
endif()
if(NOT torch_python)
  set(torch_missing "SHARDPROOF_TORCH_PYTHON is not set: give the Python that has torch, \
-DSHARDPROOF_TORCH_PYTHON=/path/to/python, or let ci/verify install one")
  return()
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
set(torch_missing)
if(torch_failed)
  set(torch_missing "${torch_python} has no torch: ${torch_error}")
  return()
endif()
string(REPLACE "\n" ";" torch_facts "${torch_facts}")
list(GET torch_facts 0 torch_root)
list(GET torch_facts 1 SHARDPROOF_TORCH_VERSION)
