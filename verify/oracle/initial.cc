#include "verify/oracle/initial.h"

#include <fmt/format.h>

#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/oracle.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {

uint64_t Fnv1a64(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Result<InitialValue> InitialValue::Make(uint64_t seed, const std::string& name,
                                        const std::string& dtype, const std::string& init,
                                        double scale) {
  InitialValue value;
  value.dtype_ = FindDtype(dtype);
  if (value.dtype_ == nullptr || value.dtype_->kind == NumberKind::kOpaque) {
    return BadInput(fmt::format(
        "tensor {}: dtype: expected BOOL, an integer or one of {}, found {}: no initial values are "
        "defined for it",
        Quote(name), KnownFloatDtypes(), Quote(dtype)));
  }
  if (init == "uniform") {
    value.kind_ = Kind::kUniform;
  } else if (init == "ones") {
    value.kind_ = Kind::kOnes;
  } else if (init == "zeros") {
    value.kind_ = Kind::kZeros;
  } else {
    return BadInput(fmt::format("tensor {}: init: expected uniform, ones or zeros, found {}",
                                Quote(name), Quote(init)));
  }
  value.base_ = Mix(Mix(seed) ^ Fnv1a64(name));
  value.factor_ = static_cast<float>(scale * 0x1p-23);
  return value;
}

uint64_t InitialValue::Bits(uint64_t index) const {
  const bool is_float = dtype_->HasFormat();  // the low bits of a complex one are its real part
  if (kind_ == Kind::kZeros) return 0;
  if (kind_ == Kind::kOnes) return is_float ? EncodeFloat(dtype_->format, 1.0) : 1;
  const uint64_t draw = Mix(base_ + index) >> 40;
  if (dtype_->kind == NumberKind::kBool) return draw % 2;
  if (!is_float) return draw % 100;
  const int32_t centred = static_cast<int32_t>(draw) - (1 << 23);
  const float product = static_cast<float>(centred) * factor_;
  return EncodeFloat(dtype_->format, product);
}

std::string InitialBytes(uint64_t seed, const std::string& name, const std::string& dtype,
                         const std::vector<int64_t>& shape, const std::string& init, double scale) {
  const auto made = InitialValue::Make(seed, name, dtype, init, scale);
  const auto elements = CheckedElements(shape.data(), shape.size());
  if (!made.ok() || !elements) return {};
  const InitialValue& value = made.value();
  const int bytes = value.dtype().bytes;
  std::string out(*elements * bytes, '\0');
  for (uint64_t i = 0; i < *elements; ++i) StoreBits(value.Bits(i), bytes, &out[i * bytes]);
  return out;
}

}  // namespace shardproof::oracle
