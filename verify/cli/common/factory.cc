#include "verify/cli/common/factory.h"

#include <fmt/format.h>

#include <filesystem>

namespace shardproof {

std::string IsFactory(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string file = text.substr(0, colon);
  if (colon == std::string::npos || colon + 1 == text.size() || !file.ends_with(".py")) {
    return fmt::format("expected FILE.py:FUNCTION, found {}", text);
  }
  if (std::filesystem::is_regular_file(file)) return "";
  return fmt::format("expected a file before the colon of {}, found none", text);
}

std::string AbsoluteFactory(const std::string& text) {
  return text.empty() ? text : std::filesystem::absolute(text).lexically_normal().string();
}

}  // namespace shardproof
