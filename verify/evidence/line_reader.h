// Lines of a file that may be of any size and hold anything, one at a time in bounded memory.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace shardproof {

class LineReader {
 public:
  static constexpr size_t kLineBytesMax = 64u << 20;

  explicit LineReader(const std::string& path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line that ends with a newline, without it. \returns false at the end, on a line
  /// longer than kLineBytesMax, and on a read error; then see torn() and failure().
  bool Next(std::string& line);

  uint64_t number() const { return number_; }  ///< of the line last returned, from 1
  bool torn() const { return torn_; }          ///< the file's last bytes are not ended by a newline
  const std::string& failure() const { return failure_; }

 private:
  std::string failure_;
  std::FILE* file_;
  std::string buffer_;
  size_t begin_ = 0;
  uint64_t number_ = 0;
  bool at_end_ = false;
  bool torn_ = false;
};

/// The whole of a file of at most `bytes_max`. \returns false with `failure` set.
bool ReadWholeFile(const std::string& path, size_t bytes_max, std::string& text,
                   std::string& failure);

}  // namespace shardproof
