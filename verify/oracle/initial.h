// Initial values, streamed: the second implementation of the formula in src/model/initial_value.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/core/result.h"
#include "verify/oracle/dtype.h"

namespace shardproof::oracle {

/// 64-bit FNV-1a.
uint64_t Fnv1a64(std::string_view text);

/// One tensor's initial values; any element on its own.
class InitialValue {
 public:
  /// \error kBadInput naming an unknown `init`, or a dtype that has no initial values (listing
  /// those
  ///   that have).
  static Result<InitialValue> Make(uint64_t seed, const std::string& name, const std::string& dtype,
                                   const std::string& init, double scale);

  /// The element at global row-major index `index`, as bits of the dtype.
  uint64_t Bits(uint64_t index) const;

  const DtypeInfo& dtype() const { return *dtype_; }

 private:
  enum class Kind { kUniform, kOnes, kZeros };

  const DtypeInfo* dtype_ = nullptr;
  Kind kind_ = Kind::kUniform;
  uint64_t base_ = 0;  ///< mix(mix(seed) ^ fnv1a64(name))
  float factor_ = 0;   ///< float(scale * 2^-23)
};

}  // namespace shardproof::oracle
