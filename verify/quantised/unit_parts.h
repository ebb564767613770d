// Which tensors belong to the codes of a quantised weight, by the dialect.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "verify/oracle/dtype.h"
#include "verify/quantised/quantisation.h"

namespace shardproof {

using Shape = std::vector<int64_t>;

/// Of a dim of a quantised weight: arithmetic on smaller ones stays within int64.
inline constexpr int64_t kSizeMax = int64_t{1} << 40;

/// How many parts of size b it takes to hold a, which is not negative; b is above 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

/// A tensor beside the codes.
struct UnitPart {
  std::string name;
  std::vector<Shape> shapes;  ///< those that it may have; empty: any
  std::string what;           ///< for messages: "one scale for each 16 elements of a row"
  bool is_required = true;
  bool is_scale = false;
  bool is_exponent = false;  ///< a byte is the exponent of a power of two, 255 is NaN
};

/// All but the last part of a dotted name: "l" of "l.weight".
std::string ModuleOf(const std::string& name);

/// The name that the parts of a unit begin with, if a tensor of this name and dtype is its codes.
std::optional<std::string> BaseOfCodes(const QuantisationScheme& scheme, const std::string& name,
                                       const std::string& dtype);

/// Whether what may be codes of bitsandbytes by its name is: bytes of their own, or elements of any
/// dtype beside which there are other parts.
bool IsCodesBeside(const std::string& dtype, const std::string& base,
                   const std::function<bool(const std::string& name)>& is_there);

/// What the parts of a unit begin with, if a tensor of this name is a scale, without regard to its
/// codes. No value: none.
std::optional<std::string> BaseOfScale(const QuantisationScheme& scheme, const std::string& name);

/// What the codes of a base are called.
std::string CodesOfBase(const QuantisationScheme& scheme, const std::string& base);

/// \param codes  shape as it is stored.
std::vector<UnitPart> PartsOf(const QuantisationScheme& scheme, const std::string& base,
                              const Shape& codes);

/// Whether a scale of this dtype may be one that was rounded to 0, so that the codes of its block
/// say nothing. Floats of one byte have so few small values; a scale of the whole tensor is beside
/// them, which fits the largest block, so that not all of them are 0.
bool MayRoundToZero(const oracle::DtypeInfo& dtype);

/// How many elements of the weight share a scale, by rows and columns, where a code or two of them
/// in a byte lie as the weight does; no value: they lie otherwise.
struct ScaleGrid {
  int64_t rows = 1;      ///< of a block; 0: all
  int64_t columns = 1;   ///< likewise
  int64_t per_byte = 1;  ///< codes
};
std::optional<ScaleGrid> GridOf(const QuantisationScheme& scheme);

}  // namespace shardproof
