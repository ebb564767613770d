// Bits that look random, as a pure function: for values that every rank has to make alike.
#pragma once

#include <cstdint>
#include <string_view>

namespace shardproof {

/// The finaliser of SplitMix64.

/// \source Steele, Lea and Flood, Fast Splittable Pseudorandom Number
///         Generators, OOPSLA 2014.
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// 64-bit FNV-1a.
inline uint64_t HashOfName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace shardproof
