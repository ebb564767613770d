// A CRC is the remainder of its bytes as a polynomial over GF(2), whose highest power is the first
// bit: stretches are terms of a sum, each times a power of x for the bits behind it. The rule of
// ZIP to begin and end with all bits flipped adds what depends on the length alone.
#include "verify/formats/crc32.h"

#include <isa-l/crc.h>

#include <array>

namespace shardproof::formats {
namespace {

constexpr uint32_t kPolynomial = 0xedb88320;  // bit 31 is the power 0, as everywhere here
constexpr uint32_t kOne = 0x80000000;

constexpr uint32_t Times(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & kOne) != 0) product ^= b;
    b = (b & 1) != 0 ? b >> 1 ^ kPolynomial : b >> 1;  // times x
  }
  return product;
}

/// x to the power of 8 * 2^i.
constexpr std::array<uint32_t, 64> kPowers = [] {
  std::array<uint32_t, 64> powers{};
  powers[0] = kOne >> 8;
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = Times(powers[i - 1], powers[i - 1]);
  return powers;
}();

/// `remainder` of what has so many bytes behind it.
uint32_t MovedBy(uint64_t bytes, uint32_t remainder) {
  for (size_t i = 0; bytes != 0; ++i, bytes >>= 1) {
    if ((bytes & 1) != 0) remainder = Times(kPowers[i], remainder);
  }
  return remainder;
}

uint32_t Run(uint32_t seed, std::string_view bytes) {
  return crc32_gzip_refl(seed, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

}  // namespace

uint32_t Crc32(std::string_view bytes) { return Run(0, bytes); }

uint32_t Crc32OfZeros(uint64_t length) { return ~MovedBy(length, ~uint32_t{0}); }

uint32_t Crc32Term(std::string_view stretch, uint64_t behind) {
  return MovedBy(behind, ~Run(~uint32_t{0}, stretch));  // the flips undone
}

}  // namespace shardproof::formats
