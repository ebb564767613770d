// The CRC-32 that ZIP archives have of their entries, of bytes that are read in any order.
#pragma once

#include <cstdint>
#include <string_view>

namespace shardproof::formats {

/// Of all the bytes at once.
uint32_t Crc32(std::string_view bytes);

/// Of `length` zero bytes.
uint32_t Crc32OfZeros(uint64_t length);

/// What a stretch of bytes adds. The CRC-32 of `length` bytes is the xor of Crc32OfZeros(length)
/// and of the terms of stretches that make them up, in any order.
/// \param behind  how many bytes
/// follow the stretch.
uint32_t Crc32Term(std::string_view stretch, uint64_t behind);

}  // namespace shardproof::formats
