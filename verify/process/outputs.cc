#include "verify/process/outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace shardproof {
namespace {

namespace fs = std::filesystem;

/// As the disk sees it, symbolic links followed, without a slash at the end.
fs::path Real(const std::string& path) {
  std::error_code error;
  fs::path real = fs::weakly_canonical(fs::absolute(path), error);
  if (error) real = fs::absolute(path).lexically_normal();
  return real.has_filename() ? real : real.parent_path();
}

/// Whether `path` is `directory` or lies below it.
bool Within(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first ==
         directory.end();
}

}  // namespace

Status CheckApart(const std::string& output, const std::string& input, const std::string& what) {
  if (output.empty() || input.empty()) return Ok();
  const fs::path out = Real(output);
  const fs::path in = Real(input);
  if (out == in) return BadInput(fmt::format("{} {}: is the source itself", what, output));
  if (Within(out, in))
    return BadInput(fmt::format("{} {}: lies in the source {}", what, output, input));
  if (Within(in, out))
    return BadInput(fmt::format("{} {}: contains the source {}", what, output, input));
  return Ok();
}

Status CheckNotOf(const std::string& output, const std::string& input, const std::string& what) {
  if (output.empty() || output == "-" || input.empty()) return Ok();
  std::error_code error;
  if (!fs::exists(output, error) || !Within(Real(output), Real(input))) return Ok();
  return BadInput(
      fmt::format("{} {}: would overwrite a file of the input {}", what, output, input));
}

}  // namespace shardproof
