// Buffers that a formula defines.
#include "verify/oracle/derived.h"

#include <cmath>

#include "verify/oracle/oracle.h"

namespace shardproof::oracle {

// f(i) = 1 / theta^e, e = 2i / dim; frameworks work it out in F32, in three steps.
//
// e:    2i and dim are exact in F32 and division is correctly rounded everywhere on a CPU, so e is
//       the same bits for all. (A CUDA kernel may multiply by 1/dim instead, which is the same only
//       where dim is a power of two. The bound below is for CPU, or for such dims.)
// p:    here theta^e rounded to the nearest F32: from pow in double, whose own error is far below
//       half an F32 ulp. Vectorised libraries promise 1 ulp. Two F32 numbers within 0.5 and 1 ulp
//       of one real number are at most 1 ulp apart.
// 1/p:  write p = m * 2^k with 1 <= m < 2. Moving p by 1 ulp = 2^(k-23) moves 1/p by at most
//       2^(k-23) / p^2 = 2^(-k-23) / m^2. An ulp of 1/p, which lies in (2^(-k-1), 2^-k], is
//       2^(-k-24). That is 2 / m^2 ulp: less than 2, or exactly 2 where m = 1. Rounding the two
//       quotients to nearest moves each by at most 0.5, so the results are less than 3 ulp apart
//       for m > 1, hence at most 2, ulps being whole. For m = 1 one quotient is exact and the
//       other is 2 ulp off before it is rounded: 2 again.
const int64_t kDefaultRopeUlpMax = 2;

std::vector<float> DefaultInverseFrequencies(double theta, int64_t dim) {
  // A Python float meets an F32 tensor as an F32 scalar.
  const double base = static_cast<float>(theta);
  std::vector<float> out;
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const float power = static_cast<float>(std::pow(base, static_cast<double>(exponent)));
    out.push_back(1.0f / power);
  }
  return out;
}

}  // namespace shardproof::oracle
