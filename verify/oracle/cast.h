// Elements of a float dtype, or exponents of powers of 2, as another float dtype: rounded once, to
// nearest, ties to even.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/oracle/dtype.h"

namespace shardproof::oracle {

class ElementCast {
 public:
  /// \pre `from` is a float dtype or F8_E8M0, `to` a float dtype; they outlive this.
  ElementCast(const DtypeInfo& from, const DtypeInfo& to);

  /// `count` elements at `in`, as they are in the other dtype, at `out`.
  void Cast(const char* in, uint64_t count, char* out) const;

 private:
  uint64_t Convert(uint64_t bits) const;

  const DtypeInfo& from_;
  const DtypeInfo& to_;
  std::vector<float> table_;  ///< the value of every bit pattern, of a dtype of at most 2 bytes
};

}  // namespace shardproof::oracle
