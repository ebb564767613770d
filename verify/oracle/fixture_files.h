// For tests: a temporary directory, and safetensors files good and bad, byte by byte.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "verify/oracle/dtype.h"
#include "verify/oracle/safetensors_writer.h"

namespace shardproof::oracle {

/// A directory that goes when this goes.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "shardproof-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// A file's text: the header's length, the header as given, the data as given.
inline std::string RawSafetensors(const std::string& header, const std::string& data) {
  char length[8];
  StoreBits(header.size(), 8, length);
  return std::string(length, 8) + header + data;
}

/// The bytes of numbers of one type, one after the other.
template <typename T>
std::string BytesOf(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}

}  // namespace shardproof::oracle
