// A tensor made of others: a tree of views over tensors as they are stored. Most views keep the
// values, so that bytes stream through them; some compute, and then carry a bound on the error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/formats/stored.h"
#include "verify/maps/tensor_reader.h"

namespace shardproof::maps {

/// An element of a view that computes.
struct Number {
  double value = 0;
  double bound = 0;  ///< of the error that roundings before the last may have made
};

/// The dtype of views that compute: their readers give a Number for each element.
inline constexpr oracle::DtypeInfo kNumber{
    "computed", sizeof(Number), oracle::NumberKind::kOpaque, {}};

struct View;
using ViewPtr = std::shared_ptr<const View>;

/// One node. What its fields mean depends on the kind; all sizes were checked when it was made.
struct View {
  enum class Kind {
    kStored,      ///< a box of a stored tensor
    kFill,        ///< one value over and over
    kJoin,        ///< the parts, one behind the other along `dim`
    kPermute,     ///< dim i is the part's dim order[i]
    kReshape,     ///< the same elements in the same order
    kCast,        ///< rounded once to nearest, ties to even
    kBits,        ///< the same bytes as another dtype
    kUnpackFp4,   ///< two F4 of each byte, the low half first, as F32
    kArithmetic,  ///< parts[0] OP parts[1]; one of them may have a single element
    kScaled,      ///< parts[0] times parts[1], which has one element for each block
    kMerged,      ///< parts[0] + number * parts[2] @ parts[1]
  };
  Kind kind;
  const oracle::DtypeInfo* dtype;
  std::vector<int64_t> shape;
  std::vector<ViewPtr> parts = {};
  const formats::StoredTensor* stored = nullptr;
  std::vector<int64_t> offsets = {};  ///< of a stored one: where its box begins
  bool repeats = false;               ///< of a stored one: its elements stand elsewhere in the view
  size_t dim = 0;
  std::vector<size_t> order = {};
  std::string fill = {};  ///< the bytes of one element
  char operation = ' ';
  double number = 0;  ///< of kMerged: the factor
  std::vector<int64_t> block = {};

  uint64_t Elements() const;
  bool Computes() const { return dtype == &kNumber; }
};

// Each makes a view. \error kBadInput, a sentence without a place: what was expected of shapes,
// dtypes and dims, and what was found.
/// A tensor whose dtype has the name of kNumber is one that its opener computes.
ViewPtr Stored(const formats::StoredTensor& tensor);
ViewPtr Constant(double value);
Result<ViewPtr> Join(std::vector<ViewPtr> parts, size_t dim);
/// Along a new dim.
Result<ViewPtr> Stack(const std::vector<ViewPtr>& parts, size_t dim);
/// Each part cut into `groups` equal ones along `dim`; the first ones of all, then the second ones.
Result<ViewPtr> Interleave(const std::vector<ViewPtr>& parts, size_t dim, int64_t groups);
Result<ViewPtr> Permute(const ViewPtr& part, const std::vector<size_t>& order);
/// One size may be -1: what is left.
Result<ViewPtr> Reshape(const ViewPtr& part, std::vector<int64_t> shape);
/// Rows [start, start + length) of `dim`, taken from what the view is made of, so that it is known
/// which elements of stored tensors are in no view.
Result<ViewPtr> Narrow(const ViewPtr& part, size_t dim, int64_t start, int64_t length);
/// `size` rows of `dim`: those behind the part's repeat its last one.
Result<ViewPtr> PadWithLast(const ViewPtr& part, size_t dim, int64_t size);
/// `size` rows of `dim`: those behind the part's are filled with the value, which its dtype has.
Result<ViewPtr> PadWithValue(const ViewPtr& part, size_t dim, int64_t size, double value);
Result<ViewPtr> CastTo(const ViewPtr& part, const std::string& dtype);
Result<ViewPtr> BitsAs(const ViewPtr& part, const std::string& dtype);
Result<ViewPtr> UnpackFp4(const ViewPtr& part);
/// `operation` is one of + - * /. The parts have one shape, or one of them has one element.
Result<ViewPtr> Arithmetic(const ViewPtr& left, char operation, const ViewPtr& right);
/// \param block  sizes per dim; empty: what the two shapes come to, if they divide.
Result<ViewPtr> Scaled(const ViewPtr& part, const ViewPtr& scale, std::vector<int64_t> block);
/// `weight` [out, in] + factor * `b` [out, r] @ `a` [r, in].
Result<ViewPtr> Merged(const ViewPtr& weight, const ViewPtr& a, const ViewPtr& b, double factor);

/// The same, of elements that stand elsewhere too.
ViewPtr Repeated(const ViewPtr& part);

/// Elements of dims [begin, end) of a shape whose elements can be counted, else 0.
int64_t Extent(const std::vector<int64_t>& shape, size_t begin, size_t end);

/// Calls visit(view) for every stored box in the tree, in order.
void ForEachStored(const View& view, const std::function<void(const View&)>& visit);

/// The name of a stored tensor, or of the first of those that the view is made of.
std::string NameOf(const View& view);

/// A stored tensor's element.
struct Place {
  const formats::StoredTensor* tensor = nullptr;  ///< null: a constant
  uint64_t element = 0;                           ///< row-major, in the whole tensor
};

/// Where an element of a view comes from; of one that computes, that of its first part.
Place PlaceOf(const View& view, uint64_t element);

/// How stored tensors are read. \param window_bytes  as ReadStored.
using StoredOpener =
    std::function<Reader(const formats::StoredTensor& tensor, uint64_t window_bytes)>;

/// \param unit  the largest relative error of a rounding between the steps of what is computed.
/// \pre what the view was made of outlives the reader.
Reader Open(const View& view, const StoredOpener& open, double unit);

/// "F32 [2, 3]".
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace shardproof::maps
