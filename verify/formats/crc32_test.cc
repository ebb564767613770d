// Against the check value of the CRC's definition, and a plain one that goes bit by bit.
#include "verify/formats/crc32.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace shardproof::formats {
namespace {

uint32_t BitByBit(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
  }
  return ~crc;
}

TEST(Crc32, IsTheOneOfZip) {
  EXPECT_EQ(Crc32("123456789"), 0xcbf43926u);  // the check value of CRC-32/ISO-HDLC
  EXPECT_EQ(Crc32(""), 0u);
  EXPECT_EQ(Crc32OfZeros(0), 0u);
  EXPECT_EQ(Crc32OfZeros(1), 0xd202ef8du);
  EXPECT_EQ(Crc32OfZeros(4), 0x2144df1cu);
  for (const size_t length : {3, 64, 1000, 70'000})
    EXPECT_EQ(Crc32OfZeros(length), BitByBit(std::string(length, '\0'))) << length;
}

TEST(Crc32, IsTheSumOfStretchesInAnyOrder) {
  std::mt19937_64 draw(1);
  for (int run = 0; run < 200; ++run) {
    std::string bytes(1 + draw() % 5000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(draw());
    uint32_t sum = Crc32OfZeros(bytes.size());
    for (size_t end = bytes.size(); end > 0;) {  // backwards
      const size_t length = std::min<size_t>(1 + draw() % 1500, end);
      sum ^= Crc32Term(std::string_view(bytes).substr(end - length, length), bytes.size() - end);
      end -= length;
    }
    EXPECT_EQ(sum, BitByBit(bytes));
  }
}

/// What zlib.crc32 gives for 5 GiB and 3 bytes, all zero, and with byte 12345 a 1.
TEST(Crc32, LengthsGoBeyond32Bits) {
  const uint64_t length = (uint64_t{5} << 30) + 3;
  EXPECT_EQ(Crc32OfZeros(length), 0x5335f577u);
  EXPECT_EQ(Crc32OfZeros(length) ^ Crc32Term("\1", length - 12'346), 0x5ee1574du);
}

}  // namespace
}  // namespace shardproof::formats
