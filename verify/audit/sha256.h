// SHA-256 (FIPS 180-4), as files of checkpoints of other tools give it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace shardproof {

class Sha256 {
 public:
  void Add(const char* data, size_t bytes);
  /// In 64 hexadecimal digits. Nothing may be added after it.
  std::string Hex();

 private:
  void AddBlock(const unsigned char* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> rest_ = {};  ///< what does not fill a block yet
  uint64_t bytes_ = 0;
};

}  // namespace shardproof
