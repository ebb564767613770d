// Readers that compute: doubles, each with a bound on the error of the roundings before the last.
#pragma once

#include <vector>

#include "verify/maps/tensor_reader.h"

namespace shardproof::maps {

/// A reader's elements as numbers. `rounded`: the last step that made them may have rounded, so
/// that `unit` of the largest that each value stands for, and `least`, are added to its bound.
/// Readers of numbers stay as they are but for that. \pre its dtype's values are numbers.
Reader ToNumbers(Reader base, bool rounded, double unit, double least = 0);

/// The same; of stored floats half a step of their dtype is the bound, a little more where a step
/// grows.
Reader WithHalfSteps(Reader base);

/// left OP right, `operation` being one of + - * /. \pre numbers of one shape, or one of them has
/// one element.
Reader Combine(Reader left, char operation, Reader right);

/// Each element OP that of its block. \pre numbers; `scale` has one element for each block, and as
/// many dims.
Reader CombineBlocks(Reader base, char operation, Reader scale, std::vector<int64_t> block);

/// The same elements in the same order, under another shape or dtype of the same width.
Reader As(Reader base, const oracle::DtypeInfo& dtype, std::vector<int64_t> shape);

/// weight + factor * b @ a, the sum rounded to F32 at each of its steps. Holds all of a and a row
/// of b. \pre numbers of fitting shapes.
Reader Merge(Reader weight, Reader a, Reader b, double factor, double unit);

}  // namespace shardproof::maps
