// For tests: archives of torch.save as torch writes them when it is told to write no CRC-32.
#pragma once

#include <string>
#include <string_view>

namespace shardproof::formats {

/// The CRC-32 in every directory of an archive in `bytes` set to 0: of the entries that have `part`
/// in their names. What is no archive stays as it is.
inline std::string WithoutCrcs(std::string bytes, std::string_view part = "") {
  constexpr std::string_view kSignature = "PK\1\2";
  constexpr size_t kCrc = 16, kNameBytes = 28,
                   kName = 46;  // where they are in an entry of a directory
  for (size_t at = bytes.find(kSignature); at != std::string::npos && at + kName <= bytes.size();
       at = bytes.find(kSignature, at + 1)) {
    const auto length = static_cast<unsigned char>(bytes[at + kNameBytes]);
    const std::string_view name = std::string_view(bytes).substr(at + kName, length);
    if (name.find(part) != std::string_view::npos) bytes.replace(at + kCrc, 4, 4, '\0');
  }
  return bytes;
}

}  // namespace shardproof::formats
