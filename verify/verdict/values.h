// One element in words: its value, its bits, its place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardproof {

/// Bytes an element of a dtype (safetensors' names) takes. \returns nullopt if it is not known.
std::optional<uint64_t> ElementBytes(std::string_view dtype);

/// Bytes of a whole tensor. \returns nullopt if the dtype is not known, a dim is negative or the
/// product does not fit.
std::optional<uint64_t> ImageBytes(std::string_view dtype, const std::vector<int64_t>& shape);

/// The number that an element's little-endian bytes stand for; BOOL is 0 or 1. Integers beyond 2^53
/// are rounded. \returns nullopt if the dtype is not a number's or `bytes` has not its size.
std::optional<double> ElementValue(std::string_view dtype, std::string_view bytes);

/// "0.015625 (0x3c80)": the shortest decimal that gives the value back, and the bits, most
/// significant first. "? (0x..)" for an unknown dtype.
std::string ElementText(std::string_view dtype, std::string_view bytes);

/// Whether a dtype can hold NaN or Inf.
bool IsFloat(std::string_view dtype);

/// Coordinates of a row-major index, one per dim; empty for a 0-dim tensor.
std::vector<int64_t> CoordinatesOf(uint64_t index, const std::vector<int64_t>& shape);

/// The inverse. \pre coordinates are within the shape.
uint64_t IndexOf(const std::vector<int64_t>& coordinates, const std::vector<int64_t>& shape);

/// An F32's bits rounded to BF16 (nearest, ties to even), as a 16-bit pattern; NaN stays NaN.
uint16_t RoundToBf16(float value);

/// An F32's value rounded to F16 (nearest, ties to even, overflow to infinity), as a value.
float RoundThroughF16(float value);

}  // namespace shardproof
