// Errors as values. Every operation of the pipeline that the world can make fail returns a Status
// or a Result<T>; programmer errors use SP_CHECK (check.h); foreign exceptions are converted at one
// boundary each (aten/torch_try.h).
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace shardproof {

/// Why an operation failed. A code exists only where a caller reacts to it.
enum class ErrorCode {
  kBadInput,     ///< a file, option or case that the user gave is wrong: exit code 2
  kUnsupported,  ///< what the user gave may be right, and is more than is known here: exit code 2
  kFailed,       ///< the pipeline met a failure of the world (disk, memory): exit code 1
  kPeer,         ///< another rank failed, vanished or did not answer
  kInternal,     ///< the verifier itself is at fault: exit code 5
};

/// An operating error: a code and one sentence that says what was wrong, where, what was expected
/// and what was found.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  /// The same error with what was being done put in front: "loading w: " + message.
  Error While(const std::string& action) const { return {code, action + ": " + message}; }
};

inline Error BadInput(std::string message) { return {ErrorCode::kBadInput, std::move(message)}; }
inline Error Unsupported(std::string message) {
  return {ErrorCode::kUnsupported, std::move(message)};
}
inline Error Failed(std::string message) { return {ErrorCode::kFailed, std::move(message)}; }
inline Error PeerFailed(std::string message) { return {ErrorCode::kPeer, std::move(message)}; }
inline Error Internal(std::string message) { return {ErrorCode::kInternal, std::move(message)}; }

/// A value or the error that kept it from being made.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit, so that functions return T
  Result(Error error) : state_(std::move(error)) {}  // NOLINT: likewise

  bool ok() const { return std::holds_alternative<T>(state_); }
  const Error& error() const { return std::get<Error>(state_); }
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  /// By value, so that a loop over f().value() does not outlive what it loops over.
  T value() && { return std::get<T>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

struct Unit {};
using Status = Result<Unit>;
inline Status Ok() { return Unit{}; }

}  // namespace shardproof

/// Returns the error of `expression` from the enclosing function if there is one.
#define SP_TRY(expression)                                                        \
  do {                                                                            \
    if (auto sp_status = (expression); !sp_status.ok()) return sp_status.error(); \
  } while (false)

#define SP_CONCAT_INNER(a, b) a##b
#define SP_CONCAT(a, b) SP_CONCAT_INNER(a, b)
#define SP_ASSIGN_INNER(result, target, expression) \
  auto result = (expression);                       \
  if (!result.ok()) return result.error();          \
  target = std::move(result).value()

/// SP_ASSIGN(const Model model, Build(job)): declares `model`, or returns Build's error.
#define SP_ASSIGN(target, expression) \
  SP_ASSIGN_INNER(SP_CONCAT(sp_result_, __LINE__), target, expression)
