#include "verify/quantised/dequantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "verify/maps/numbers.h"
#include "verify/oracle/dtype.h"
#include "verify/quantised/blocks.h"
#include "verify/quantised/ggml_blocks.h"
#include "verify/quantised/quant_state.h"

namespace shardproof::quantised {
namespace {

using formats::StoredTensor;
using oracle::NumberKind;

// A writer's arithmetic in F32: a quotient, a product or two, and the division that makes a scale.
constexpr double kOwnUnit = 0x1p-21;
// Half a step below the smallest value of E4M3 is far from nothing: a block whose scale became 0
// may have held numbers of up to 6 of these, and its codes say nothing.
constexpr double kZeroScaleRoom = 24;

uint64_t Size(int64_t size) { return static_cast<uint64_t>(size); }

/// The numbers in that shape; null if they are not as many.
Reader InShape(Reader numbers, const Shape& shape) {
  if (numbers->shape() == shape) return numbers;
  const auto count = oracle::CheckedElements(shape.data(), shape.size());
  if (!count || *count != numbers->elements()) return nullptr;
  return maps::As(std::move(numbers), maps::kNumber, shape);
}

/// One unit, opened.
class Opened {
 public:
  Opened(const Unit& unit, const Opener& open, Misreading misreading)
      : unit_(unit), open_(open), misreading_(misreading) {}

  Reader Run() {
    Reader reader = OfDialect();
    if (reader == nullptr || (misreading_ != Misreading::kNone && !applied_)) return nullptr;
    if (reader->shape() != unit_.shape)
      reader = maps::As(std::move(reader), maps::kNumber, unit_.shape);
    return maps::ToNumbers(std::move(reader), true, OwnUnit());
  }

 private:
  /// Whether it is to be misread so, and then it is.
  bool Misreads(Misreading misreading) {
    if (misreading_ != misreading) return false;
    return applied_ = true;
  }

  /// A writer may divide and shift in the dtype of its scales, where that is a narrow float.
  double OwnUnit() const {
    const StoredTensor* scale = unit_.Part("scale");
    const oracle::DtypeInfo* dtype = scale == nullptr ? nullptr : oracle::FindDtype(scale->dtype);
    const bool is_narrow =
        dtype != nullptr && dtype->kind == NumberKind::kFloat && dtype->bytes == 2;
    return is_narrow ? std::ldexp(1.0, -dtype->format.mantissa_bits) : kOwnUnit;
  }

  Reader Open(const char* part) const { return open_(*unit_.Part(part)); }

  Reader OfDialect() {
    switch (unit_.scheme.dialect) {
      case Dialect::kBlockFp8:
      case Dialect::kRowFp8:
      case Dialect::kModelOptFp8:
      case Dialect::kPlainCodes:
      case Dialect::kTorchAo:
        return PlainCodes();
      case Dialect::kModelOptNvfp4:
      case Dialect::kPackedNvfp4:
      case Dialect::kPackedMx:
        return Small();
      case Dialect::kMxfp4:
        return Experts();
      case Dialect::kPackedWords:
        return PackedWords();
      case Dialect::kAwq:
      case Dialect::kGptq:
        return Turned();
      case Dialect::kBitsAndBytes4:
        return Flat();
      case Dialect::kBitsAndBytes8:
        return Rows();
      case Dialect::kGguf:
        return ReadBlocks(Open("codes"), *FindBlockType(unit_.block_type), unit_.shape);
      case Dialect::kUnknown:
        break;
    }
    return nullptr;
  }

  static bool IsExponent(const Unit& unit) {
    const StoredTensor* scale = unit.Part("scale");
    return scale->dtype == "F8_E8M0" || unit.scheme.has_exponents ||
           unit.scheme.dialect == Dialect::kMxfp4 || unit.scheme.dialect == Dialect::kPackedMx;
  }

  /// A scale as numbers, each with half a step of its dtype as its bound.
  Reader Numbers(const StoredTensor& tensor, bool is_exponent) const {
    const oracle::DtypeInfo& dtype = *oracle::FindDtype(tensor.dtype);
    Reader reader = open_(tensor);
    if (is_exponent && dtype.bytes == 1) {
      reader = maps::As(std::move(reader), *oracle::FindDtype("F8_E8M0"), tensor.shape);
      return maps::ToNumbers(std::move(reader), false, 0);
    }
    if (MayRoundToZero(dtype)) {
      Grid grid = GridOfFloats(dtype.name, false);
      for (Number& number : grid) number.bound *= number.value == 0 ? kZeroScaleRoom : 1;
      return ReadCodes(std::move(reader), Packing::kBytes, std::move(grid), tensor.shape);
    }
    return maps::WithHalfSteps(std::move(reader));
  }

  /// `base` times the scales, one for each block.
  Reader Scaled(Reader base, Reader scale, const Blocks& blocks) {
    if (Misreads(Misreading::kScaleLeftOut)) return base;
    const char operation = Misreads(Misreading::kScaleInverted) ? '/' : '*';
    if (scale->elements() == 1) return maps::Combine(std::move(base), operation, std::move(scale));
    scale = InShape(std::move(scale), blocks.scales);
    if (scale == nullptr) return nullptr;
    return maps::CombineBlocks(std::move(base), operation, std::move(scale), blocks.block);
  }

  /// `base` less its zero points, of which there may be none.
  Reader Shifted(Reader base, Reader zeros, const Blocks& blocks) {
    if (zeros == nullptr) {
      if (Misreads(Misreading::kZeroAhead)) return maps::Combine(std::move(base), '-', Constant(1));
      if (Misreads(Misreading::kZeroBehind))
        return maps::Combine(std::move(base), '+', Constant(1));
      return base;
    }
    zeros = maps::ToNumbers(std::move(zeros), true, OwnUnit());
    if (Misreads(Misreading::kZeroAhead)) zeros = maps::Combine(std::move(zeros), '+', Constant(1));
    if (Misreads(Misreading::kZeroBehind))
      zeros = maps::Combine(std::move(zeros), '-', Constant(1));
    if (zeros->elements() == 1) return maps::Combine(std::move(base), '-', std::move(zeros));
    zeros = InShape(std::move(zeros), blocks.scales);
    if (zeros == nullptr) return nullptr;
    return maps::CombineBlocks(std::move(base), '-', std::move(zeros), blocks.block);
  }

  /// A code an element: fp8 or whole numbers.
  Reader PlainCodes() {
    const StoredTensor& codes = *unit_.Part("codes");
    const bool is_whole = codes.dtype == "I8";
    const int64_t bits = unit_.scheme.bits;
    const int own = bits > 0 && bits < 8 ? static_cast<int>(bits) : 8;
    const oracle::DtypeInfo& dtype = *oracle::FindDtype(codes.dtype);
    const bool is_float = dtype.kind == NumberKind::kFloat && dtype.bytes == 1;
    if (!is_whole && !is_float) return nullptr;
    const Blocks blocks = BlocksOf(unit_, codes.shape, unit_.Part("scale")->shape);
    Grid grid = is_whole ? GridOfIntegers(own, true, 0, 8)
                         : GridOfFloats(codes.dtype.c_str(), IsExponent(unit_));
    Reader reader = ReadCodes(Open("codes"), Packing::kBytes, std::move(grid), codes.shape);
    if (is_whole) {
      const StoredTensor* zero = unit_.Part("zero");
      reader = Shifted(std::move(reader),
                       zero == nullptr ? nullptr : maps::ToNumbers(open_(*zero), false, 0), blocks);
      if (reader == nullptr) return nullptr;
    }
    return Scaled(std::move(reader), Numbers(*unit_.Part("scale"), IsExponent(unit_)), blocks);
  }

  /// F4 or F6 in bytes.
  Reader Small() {
    const bool is_mx = unit_.scheme.dialect == Dialect::kPackedMx;
    const bool is_six = is_mx && unit_.scheme.bits == 6;
    if (is_mx && !is_six && unit_.scheme.bits != 4) return nullptr;
    const Blocks blocks = BlocksOf(unit_, unit_.shape, unit_.Part("scale")->shape);
    Reader reader = ReadCodes(Open("codes"), is_six ? Packing::kBits : Packing::kLowFirst,
                              GridOfFloats(is_six ? "F6_E2M3" : "F4", is_mx), unit_.shape);
    reader = Scaled(std::move(reader), Numbers(*unit_.Part("scale"), is_mx), blocks);
    if (is_mx || reader == nullptr) return reader;
    return Globally(std::move(reader));
  }

  /// Times the one scale of the tensor, or, of compressed-tensors, by it.
  Reader Globally(Reader reader) {
    const StoredTensor& global = *unit_.Part("global");
    if (Misreads(Misreading::kGlobalLeftOut)) return reader;
    const bool divides = unit_.scheme.dialect == Dialect::kPackedNvfp4;
    const char operation = divides != Misreads(Misreading::kGlobalInverted) ? '/' : '*';
    Blocks whole{Shape(unit_.shape.size(), 1), unit_.shape};
    for (size_t dim = 0; dim + 2 < unit_.shape.size(); ++dim) {
      whole.scales[dim] = unit_.shape[dim];
      whole.block[dim] = 1;
    }
    const int times = Misreads(Misreading::kGlobalTwice) ? 2 : 1;
    if (global.Elements() == 1 && Misreads(Misreading::kGlobalRoot)) {
      Number number;
      if (!Numbers(global, false)->Read(0, 1, reinterpret_cast<char*>(&number)).ok())
        return nullptr;
      return maps::Combine(std::move(reader), operation, Constant(std::sqrt(number.value)));
    }
    for (int i = 0; i < times; ++i) {
      Reader numbers = Numbers(global, false);
      if (numbers->elements() == 1) {
        reader = maps::Combine(std::move(reader), operation, std::move(numbers));
        continue;
      }
      numbers = InShape(std::move(numbers), whole.scales);
      if (numbers == nullptr) return nullptr;
      reader = maps::CombineBlocks(std::move(reader), operation, std::move(numbers), whole.block);
    }
    return reader;
  }

  /// gpt-oss: [experts, rows, blocks, 16], turned.
  Reader Experts() {
    const Shape shape = {unit_.shape[0], unit_.shape[2], unit_.shape[1]};
    const Blocks blocks = BlocksOf(unit_, shape, {});
    Reader reader = ReadCodes(Open("codes"), Packing::kLowFirst, GridOfFloats("F4", true), shape);
    reader = Scaled(std::move(reader), Numbers(*unit_.Part("scale"), true), blocks);
    return reader == nullptr ? nullptr : maps::Transpose(std::move(reader), 1, 2);
  }

  /// The group of each column or row, where they are not in order.
  std::optional<std::vector<uint64_t>> Groups(uint64_t count, uint64_t groups,
                                              uint64_t each) const {
    const StoredTensor* part = unit_.Part("groups");
    if (part == nullptr || part->dtype != "I32" || part->Elements() != count) return {};
    std::vector<int32_t> stored(count);
    if (!open_(*part)->Read(0, count, reinterpret_cast<char*>(stored.data())).ok()) return {};
    std::vector<uint64_t> out;
    bool in_order = true;
    for (uint64_t i = 0; i < count; ++i) {
      if (stored[i] < 0) return {};  // compressed-tensors: it was not used
      out.push_back(std::min<uint64_t>(static_cast<uint64_t>(stored[i]), groups - 1));
      in_order = in_order && out.back() == i / each;
    }
    if (in_order) return {};
    return out;
  }

  /// compressed-tensors: whole numbers in words.
  Reader PackedWords() {
    const auto bits = static_cast<int>(unit_.scheme.bits);
    const Shape& shape = unit_.shape;
    const Shape& words = unit_.Part("codes")->shape;
    const bool is_dense = words.back() == (shape.back() * bits + 31) / 32;
    const Grid grid = GridOfIntegers(bits, false, 1 << (bits - 1));
    const Packing packing = is_dense ? Packing::kBits : Packing::kWords;
    Reader reader = ReadCodes(Open("codes"), packing, grid, shape);
    Blocks blocks = BlocksOf(unit_, shape, unit_.Part("scale")->shape);
    const auto columns = Size(blocks.scales.back());
    const auto groups = Groups(Size(shape.back()), columns, Size(blocks.block.back()));
    // Null where there is not one for each block: picking would lead out of the tensor.
    const auto spread = [&](Reader numbers) -> Reader {
      if (!groups || numbers->elements() == 1) return numbers;
      numbers = InShape(std::move(numbers), blocks.scales);
      if (numbers == nullptr) return nullptr;
      Shape wide = blocks.scales;
      wide.back() = shape.back();
      return Picked(std::move(numbers), wide, [groups, columns](uint64_t at) {
        return at / groups->size() * columns + (*groups)[at % groups->size()];
      });
    };
    Reader zeros;
    if (const StoredTensor* zero = unit_.Part("zero")) {
      if (zero->dtype == "I32") {
        const Shape packed = {(blocks.scales[0] * bits + 31) / 32, blocks.scales.back()};
        if (shape.size() != 2 || zero->shape != packed) return nullptr;
        zeros = ReadCodes(open_(*zero), Packing::kBitsDownColumns, Exact(grid), blocks.scales);
      } else {
        zeros = maps::ToNumbers(open_(*zero), false, 0);
      }
      zeros = spread(std::move(zeros));
      if (zeros == nullptr) return nullptr;
    }
    Reader scale = spread(Numbers(*unit_.Part("scale"), false));
    if (scale == nullptr) return nullptr;
    if (groups) {
      blocks.block.back() = 1;
      blocks.scales.back() = shape.back();
    }
    reader = Shifted(std::move(reader), std::move(zeros), blocks);
    return reader == nullptr ? nullptr : Scaled(std::move(reader), std::move(scale), blocks);
  }

  /// AWQ and GPTQ: words of a weight that lies turned.
  Reader Turned() {
    const bool is_awq = unit_.scheme.dialect == Dialect::kAwq;
    const auto bits = static_cast<int>(unit_.scheme.bits);
    const StoredTensor* zero = unit_.Part("zero");
    const bool is_packed = zero == nullptr || zero->dtype == "I32";
    if (bits > 8 || (is_awq && bits != 4) || !is_packed) return nullptr;
    const Shape shape = {unit_.shape[1], unit_.shape[0]};
    const int64_t group =
        unit_.scheme.group > 0 ? unit_.scheme.group : std::max<int64_t>(shape[0], 1);
    Blocks blocks{{CeilDiv(shape[0], group), shape[1]}, {group, 1}};
    Reader reader =
        ReadCodes(Open("codes"), is_awq ? Packing::kInterleaved : Packing::kBitsDownColumns,
                  GridOfIntegers(bits, false, 0), shape);
    const auto groups = Groups(Size(shape[0]), Size(blocks.scales[0]), Size(group));
    const auto columns = Size(shape[1]);
    const auto spread = [&](Reader numbers) {
      if (!groups) return numbers;
      return Picked(std::move(numbers), shape, [groups, columns](uint64_t at) {
        return (*groups)[at / columns] * columns + at % columns;
      });
    };
    Reader zeros = spread(Zeros(bits, blocks.scales));
    Reader scale = spread(Numbers(*unit_.Part("scale"), false));
    if (groups) blocks = {shape, {1, 1}};
    reader = Shifted(std::move(reader), std::move(zeros), blocks);
    if (reader != nullptr) reader = Scaled(std::move(reader), std::move(scale), blocks);
    return reader == nullptr ? nullptr : maps::Transpose(std::move(reader), 0, 1);
  }

  /// Zero points of AWQ and GPTQ; without any, the middle of the codes.
  Reader Zeros(int bits, const Shape& scales) const {
    const int count = 1 << bits;
    Grid grid;
    for (int code = 0; code < count; ++code) {
      const int value = unit_.scheme.zeros_less_one ? (code + 1) % count : code;
      grid.push_back({static_cast<double>(value), 0});
    }
    if (unit_.Part("zero") == nullptr) {
      const auto middle = static_cast<double>(count / 2);
      return Picked(Constant(middle), scales, [](uint64_t) { return uint64_t{0}; });
    }
    const bool is_awq = unit_.scheme.dialect == Dialect::kAwq;
    return ReadCodes(Open("zero"), is_awq ? Packing::kInterleaved : Packing::kBits, grid, scales);
  }

  /// bitsandbytes in four bits: blocks of elements without regard to rows.
  Reader Flat() {
    const auto state = ReadQuantState(*Open("state"));
    Reader map = maps::ToNumbers(Open("map"), false, 0);
    if (!state || map->elements() != 16) return nullptr;
    const auto elements = static_cast<int64_t>(state->elements);
    const auto size = static_cast<int64_t>(state->size);
    Reader reader = ReadCodes(Open("codes"), Packing::kHighFirst, GridOfStored(*map), {elements});
    const Shape scales = {(elements + size - 1) / size};
    Reader scale;
    if (state->nested_size == 0) {
      scale = Numbers(*unit_.Part("scale"), false);
    } else {
      Reader nested_map = maps::ToNumbers(Open("nested map"), false, 0);
      const auto nested_size = static_cast<int64_t>(state->nested_size);
      Reader nested = Numbers(*unit_.Part("nested"), false);
      if (nested_map->elements() != 256 || unit_.Part("scale")->dtype != "U8" ||
          nested->elements() != (Size(scales[0]) + state->nested_size - 1) / state->nested_size)
        return nullptr;
      scale = ReadCodes(Open("scale"), Packing::kBytes, GridOfStored(*nested_map), scales);
      const auto count = static_cast<int64_t>(nested->elements());
      nested = maps::As(std::move(nested), maps::kNumber, {count});  // one dim, as the blocks have
      scale = maps::CombineBlocks(std::move(scale), '*', std::move(nested), {nested_size});
      scale = maps::Combine(std::move(scale), '+', Constant(state->nested_offset));
    }
    return Scaled(std::move(reader), std::move(scale), {scales, {size}});
  }

  static Grid GridOfStored(maps::TensorReader& map) {
    std::vector<Number> numbers(map.elements());
    std::vector<double> values;
    if (!map.Read(0, map.elements(), reinterpret_cast<char*>(numbers.data())).ok()) numbers.clear();
    for (const Number& number : numbers) values.push_back(number.value);
    values.resize(map.elements(), NAN);
    return GridOfValues(values);
  }

  /// bitsandbytes in eight bits: rows of whole numbers, 127 of which are the row's largest. The
  /// weight was rounded to F16 before.
  Reader Rows() {
    const Shape& shape = unit_.shape;
    if (shape.size() != 2) return nullptr;
    Reader reader = ReadCodes(Open("codes"), Packing::kBytes, GridOfIntegers(8, true, 0), shape);
    const Blocks blocks{{shape[0], 1}, {1, shape[1]}};
    reader = Scaled(std::move(reader), Numbers(*unit_.Part("scale"), false), blocks);
    if (reader == nullptr) return nullptr;
    reader = maps::Combine(std::move(reader), '/', Constant(127));
    return maps::ToNumbers(std::move(reader), true, 0x1p-11, 0x1p-25);
  }

  const Unit& unit_;
  const Opener& open_;
  Misreading misreading_;
  bool applied_ = false;
};

}  // namespace

Reader Dequantise(const Unit& unit, const Opener& open, Misreading misreading) {
  return Opened(unit, open, misreading).Run();
}

Reader DequantiseRearranged(const Unit& unit, const Opener& open, const std::string& part,
                            const Rearrangement& rearrangement) {
  const StoredTensor* changed = unit.Part(part);
  const Opener open_changed = [&](const StoredTensor& tensor) {
    Reader reader = open(tensor);
    return &tensor == changed ? rearrangement.apply(std::move(reader)) : std::move(reader);
  };
  return Dequantise(unit, open_changed, Misreading::kNone);
}

}  // namespace shardproof::quantised
