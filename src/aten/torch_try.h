// The one boundary at which LibTorch's exceptions become Errors.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "src/core/result.h"

namespace shardproof {

/// Runs `function` and returns its value, or an Error of `code` that says what was being done.
/// \error code, with the exception's first line, if `function` throws; kFailed if there was no
/// memory.
template <typename Function>
auto TorchTry(ErrorCode code, const std::string& action, Function&& function)
    -> Result<decltype(function())> {
  try {
    return std::forward<Function>(function)();
  } catch (const c10::Error& error) {
    return Error{code, action + ": " + error.what_without_backtrace()};
  } catch (const std::bad_alloc&) {
    return Failed(action +
                  ": Cannot allocate memory");  // whatever it was, it is this rank's failure
  } catch (const std::exception& error) {
    std::string text = error.what();
    return Error{code, action + ": " + text.substr(0, text.find("\nException raised from"))};
  }
}

}  // namespace shardproof
