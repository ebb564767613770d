#include "verify/maps/view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "verify/oracle/quote.h"

namespace shardproof::maps {
namespace {

using ViewKind = View::Kind;
using oracle::DtypeInfo;
using oracle::NumberKind;

constexpr int64_t kPartsMax = 1 << 20;

ViewPtr Made(View view) { return std::make_shared<const View>(std::move(view)); }

/// The same view of other parts; its shape is the first part's.
ViewPtr Over(const View& view, ViewPtr part) {
  View made = view;
  made.shape = part->shape;
  made.parts = {std::move(part)};
  return Made(std::move(made));
}

Status CheckDim(const View& part, size_t dim) {
  if (dim < part.shape.size()) return Ok();
  return BadInput(fmt::format("expected a dim below {} of a tensor {}, found {}", part.shape.size(),
                              ShapeText(part.shape), dim));
}

bool IsNumeric(const DtypeInfo& dtype) {
  return &dtype == &kNumber || dtype.kind == NumberKind::kFloat ||
         dtype.kind == NumberKind::kUnsigned || dtype.kind == NumberKind::kSigned ||
         dtype.kind == NumberKind::kScale;
}

Status CheckNumeric(const View& part) {
  if (IsNumeric(*part.dtype)) return Ok();
  return BadInput(
      fmt::format("expected a dtype whose values are numbers, found {}", part.dtype->name));
}

Result<ViewPtr> NarrowStored(const View& view, size_t dim, int64_t start, int64_t length) {
  View made = view;
  made.offsets[dim] += start;
  made.shape[dim] = length;
  return Made(std::move(made));
}

Result<ViewPtr> NarrowJoin(const View& view, size_t dim, int64_t start, int64_t length) {
  std::vector<ViewPtr> parts;
  int64_t at = 0;
  for (const ViewPtr& part : view.parts) {
    const int64_t size = part->shape[view.dim];
    const int64_t low = dim == view.dim ? std::clamp<int64_t>(start - at, 0, size) : start;
    const int64_t high =
        dim == view.dim ? std::clamp<int64_t>(start + length - at, 0, size) : start + length;
    at += size;
    if (dim == view.dim && low == high) continue;
    SP_ASSIGN(ViewPtr narrowed, Narrow(part, dim, low, high - low));
    parts.push_back(std::move(narrowed));
  }
  if (parts.empty()) return BadInput("expected at least one row, found none");
  return Join(std::move(parts), view.dim);
}

/// Rows of a reshaped tensor that are whole rows of the tensor as it was.
Result<ViewPtr> NarrowReshape(const View& view, size_t dim, int64_t start, int64_t length) {
  const std::vector<int64_t>& before = view.parts[0]->shape;
  const int64_t outer = Extent(view.shape, 0, dim);
  const int64_t step = Extent(view.shape, dim + 1, view.shape.size());
  for (size_t k = 0; k < before.size(); ++k) {
    const int64_t inner = Extent(before, k + 1, before.size());
    const bool same_range =
        Extent(before, 0, k) == outer && inner > 0 && before[k] * inner == view.shape[dim] * step;
    if (!same_range || start * step % inner != 0 || length * step % inner != 0) continue;
    SP_ASSIGN(const ViewPtr part,
              Narrow(view.parts[0], k, start * step / inner, length * step / inner));
    std::vector<int64_t> shape = view.shape;
    shape[dim] = length;
    return Reshape(part, std::move(shape));
  }
  return BadInput(
      fmt::format("rows {} to {} of dim {} are no rows of the tensor before it was "
                  "reshaped: take the part first, then reshape it",
                  start, start + length, dim));
}

Result<ViewPtr> NarrowArithmetic(const View& view, size_t dim, int64_t start, int64_t length) {
  std::vector<ViewPtr> parts = view.parts;
  for (ViewPtr& part : parts) {
    if (part->shape != view.shape) continue;
    SP_ASSIGN(part, Narrow(part, dim, start, length));
  }
  return Arithmetic(parts[0], view.operation, parts[1]);
}

Result<std::string> BytesOfValue(const DtypeInfo& dtype, double value) {
  std::string bytes(static_cast<size_t>(dtype.bytes), '\0');
  if (dtype.kind == NumberKind::kFloat) {
    const uint64_t bits = oracle::EncodeFloat(dtype.format, value);
    oracle::StoreBits(bits, dtype.bytes, bytes.data());
    if (oracle::DecodeFloat(dtype.format, bits) == value) return bytes;
  } else if (value == 0) {
    return bytes;
  } else if (value == static_cast<double>(static_cast<int64_t>(value)) &&
             (dtype.kind == NumberKind::kUnsigned || dtype.kind == NumberKind::kSigned)) {
    oracle::StoreBits(static_cast<uint64_t>(static_cast<int64_t>(value)), dtype.bytes,
                      bytes.data());
    return bytes;
  }
  return BadInput(
      fmt::format("expected a value that {} has to pad with, found {}", dtype.name, value));
}

}  // namespace

int64_t Extent(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  return static_cast<int64_t>(
      oracle::CheckedElements(shape.data() + begin, end - begin).value_or(0));
}

uint64_t View::Elements() const {
  return oracle::CheckedElements(shape.data(), shape.size()).value_or(0);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

ViewPtr Stored(const formats::StoredTensor& tensor) {
  return Made({.kind = ViewKind::kStored,
               .dtype = tensor.dtype == kNumber.name ? &kNumber : oracle::FindDtype(tensor.dtype),
               .shape = tensor.shape,
               .stored = &tensor,
               .offsets = std::vector<int64_t>(tensor.shape.size(), 0)});
}

ViewPtr Constant(double value) {
  Number number{value, 0};
  return Made({.kind = ViewKind::kFill,
               .dtype = &kNumber,
               .shape = {},
               .fill = std::string(reinterpret_cast<const char*>(&number), sizeof number)});
}

Result<ViewPtr> Join(std::vector<ViewPtr> parts, size_t dim) {
  const View& first = *parts.front();
  SP_TRY(CheckDim(first, dim));
  std::vector<int64_t> shape = first.shape;
  shape[dim] = 0;
  for (const ViewPtr& part : parts) {
    std::vector<int64_t> others = part->shape;
    if (others.size() == shape.size()) others[dim] = first.shape[dim];
    if (others != first.shape || part->dtype != first.dtype) {
      return BadInput(
          fmt::format("expected parts of one dtype and, but for dim {}, one shape, "
                      "found {} {} and {} {}",
                      dim, first.dtype->name, ShapeText(first.shape), part->dtype->name,
                      ShapeText(part->shape)));
    }
    shape[dim] += part->shape[dim];
  }
  if (parts.size() == 1) return parts.front();
  return Made({.kind = ViewKind::kJoin,
               .dtype = first.dtype,
               .shape = std::move(shape),
               .parts = std::move(parts),
               .dim = dim});
}

Result<ViewPtr> Stack(const std::vector<ViewPtr>& parts, size_t dim) {
  std::vector<ViewPtr> layers;
  for (const ViewPtr& part : parts) {
    std::vector<int64_t> shape = part->shape;
    if (dim > shape.size()) {
      return BadInput(
          fmt::format("expected a dim of at most {} to stack tensors {} along, found "
                      "{}",
                      shape.size(), ShapeText(shape), dim));
    }
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), 1);
    SP_ASSIGN(ViewPtr layer, Reshape(part, std::move(shape)));
    layers.push_back(std::move(layer));
  }
  return Join(std::move(layers), dim);
}

Result<ViewPtr> Interleave(const std::vector<ViewPtr>& parts, size_t dim, int64_t groups) {
  std::vector<ViewPtr> grouped;
  for (const ViewPtr& part : parts) {
    SP_TRY(CheckDim(*part, dim));
    std::vector<int64_t> shape = part->shape;
    if (groups < 1 || groups > kPartsMax || shape[dim] % groups != 0) {
      return BadInput(
          fmt::format("expected a number of groups that divides the {} rows of dim {} "
                      "of {}, found {}",
                      shape[dim], dim, ShapeText(shape), groups));
    }
    shape[dim] /= groups;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), groups);
    SP_ASSIGN(ViewPtr cut, Reshape(part, std::move(shape)));
    grouped.push_back(std::move(cut));
  }
  SP_ASSIGN(const ViewPtr joined, Join(std::move(grouped), dim + 1));
  std::vector<int64_t> shape = joined->shape;
  shape[dim] *= shape[dim + 1];
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1);
  return Reshape(joined, std::move(shape));
}

Result<ViewPtr> Permute(const ViewPtr& part, const std::vector<size_t>& order) {
  std::vector<size_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<size_t> dims(part->shape.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  if (sorted != dims) {
    return BadInput(fmt::format("expected each dim of a tensor {} once, found [{}]",
                                ShapeText(part->shape), fmt::join(order, ", ")));
  }
  if (order == dims) return part;
  View made{.kind = ViewKind::kPermute, .dtype = part->dtype, .shape = {}, .parts = {part}};
  made.order = order;
  for (const size_t dim : order) made.shape.push_back(part->shape[dim]);
  return Made(std::move(made));
}

Result<ViewPtr> Reshape(const ViewPtr& part, std::vector<int64_t> shape) {
  const std::string asked = ShapeText(shape);
  const auto open = std::find(shape.begin(), shape.end(), -1);
  const auto elements = static_cast<int64_t>(part->Elements());
  if (open != shape.end()) {
    *open = 1;
    const int64_t rest = Extent(shape, 0, shape.size());
    *open = rest > 0 && elements % rest == 0 ? elements / rest : -1;
  }
  const auto product = oracle::CheckedElements(shape.data(), shape.size());
  if (!product || *product != part->Elements()) {
    return BadInput(fmt::format("expected a shape of {} elements, as {} has, found {}", elements,
                                ShapeText(part->shape), asked));
  }
  if (shape == part->shape) return part;
  const ViewPtr& inner = part->kind == ViewKind::kReshape ? part->parts[0] : part;
  return Made({.kind = ViewKind::kReshape,
               .dtype = part->dtype,
               .shape = std::move(shape),
               .parts = {inner}});
}

Result<ViewPtr> Narrow(const ViewPtr& part, size_t dim, int64_t start, int64_t length) {
  SP_TRY(CheckDim(*part, dim));
  if (start < 0 || length < 1 || start + length > part->shape[dim]) {
    return BadInput(fmt::format("expected a part of the {} rows of dim {} of {}, found {}:{}",
                                part->shape[dim], dim, ShapeText(part->shape), start,
                                start + length));
  }
  if (length == part->shape[dim]) return part;
  switch (part->kind) {
    case ViewKind::kStored:
      return NarrowStored(*part, dim, start, length);
    case ViewKind::kJoin:
      return NarrowJoin(*part, dim, start, length);
    case ViewKind::kReshape:
      return NarrowReshape(*part, dim, start, length);
    case ViewKind::kArithmetic:
      return NarrowArithmetic(*part, dim, start, length);
    case ViewKind::kPermute: {
      SP_ASSIGN(const ViewPtr inner, Narrow(part->parts[0], part->order[dim], start, length));
      return Permute(inner, part->order);
    }
    case ViewKind::kFill: {
      View made = *part;
      made.shape[dim] = length;
      return Made(std::move(made));
    }
    case ViewKind::kCast: {
      SP_ASSIGN(ViewPtr inner, Narrow(part->parts[0], dim, start, length));
      return Over(*part, std::move(inner));
    }
    default:
      break;
  }
  return BadInput(
      "a part of what is scaled, merged, unpacked or read as other bits cannot be "
      "taken: take the part first");
}

Result<ViewPtr> PadWithLast(const ViewPtr& part, size_t dim, int64_t size) {
  SP_TRY(CheckDim(*part, dim));
  const int64_t rows = part->shape[dim];
  if (rows < 1 || size < rows || size - rows > kPartsMax) {
    return BadInput(fmt::format("expected a size of at least the {} rows of dim {} of {}, found {}",
                                rows, dim, ShapeText(part->shape), size));
  }
  SP_ASSIGN(ViewPtr last, Narrow(part, dim, rows - 1, 1));
  last = Repeated(last);
  std::vector<ViewPtr> parts(static_cast<size_t>(size - rows) + 1, last);
  parts[0] = part;
  return Join(std::move(parts), dim);
}

Result<ViewPtr> PadWithValue(const ViewPtr& part, size_t dim, int64_t size, double value) {
  SP_TRY(CheckDim(*part, dim));
  std::vector<int64_t> shape = part->shape;
  shape[dim] = size - shape[dim];
  if (shape[dim] < 0 || !oracle::CheckedElements(shape.data(), shape.size())) {
    return BadInput(fmt::format("expected a size of at least the {} rows of dim {} of {}, found {}",
                                part->shape[dim], dim, ShapeText(part->shape), size));
  }
  if (shape[dim] == 0) return part;
  SP_ASSIGN(std::string bytes, BytesOfValue(*part->dtype, value));
  const ViewPtr fill = Made({.kind = ViewKind::kFill,
                             .dtype = part->dtype,
                             .shape = std::move(shape),
                             .fill = std::move(bytes)});
  return Join({part, fill}, dim);
}

Result<ViewPtr> CastTo(const ViewPtr& part, const std::string& name) {
  const DtypeInfo* dtype = oracle::FindDtype(name);
  const bool from_known =
      part->dtype->kind == NumberKind::kFloat || part->dtype->kind == NumberKind::kScale;
  if (dtype == nullptr || dtype->kind != NumberKind::kFloat || !from_known) {
    return BadInput(
        fmt::format("expected a cast from a float dtype or F8_E8M0 to one of {}, found "
                    "{} to {}",
                    oracle::KnownFloatDtypes(), part->dtype->name, oracle::Quote(name)));
  }
  if (dtype == part->dtype) return part;
  return Made({.kind = ViewKind::kCast, .dtype = dtype, .shape = part->shape, .parts = {part}});
}

Result<ViewPtr> BitsAs(const ViewPtr& part, const std::string& name) {
  const DtypeInfo* dtype = oracle::FindDtype(name);
  if (dtype == nullptr || dtype->bytes != part->dtype->bytes) {
    return BadInput(fmt::format("expected a dtype of {} bytes, as {} has, found {}",
                                part->dtype->bytes, part->dtype->name, oracle::Quote(name)));
  }
  return Made({.kind = ViewKind::kBits, .dtype = dtype, .shape = part->shape, .parts = {part}});
}

Result<ViewPtr> UnpackFp4(const ViewPtr& part) {
  if (part->dtype->bytes != 1 || part->shape.empty()) {
    return BadInput(fmt::format("expected bytes with two F4 each, found {} {}", part->dtype->name,
                                ShapeText(part->shape)));
  }
  View made{.kind = ViewKind::kUnpackFp4,
            .dtype = oracle::FindDtype("F32"),
            .shape = part->shape,
            .parts = {part}};
  made.shape.back() *= 2;
  return Made(std::move(made));
}

Result<ViewPtr> Arithmetic(const ViewPtr& left, char operation, const ViewPtr& right) {
  SP_TRY(CheckNumeric(*left));
  SP_TRY(CheckNumeric(*right));
  const bool left_is_one = left->Elements() == 1;
  if (left->shape != right->shape && !left_is_one && right->Elements() != 1) {
    return BadInput(
        fmt::format("expected tensors of one shape, or one that has one element, "
                    "found {} {} {}",
                    ShapeText(left->shape), operation, ShapeText(right->shape)));
  }
  const bool takes_right =
      left_is_one && (right->Elements() > 1 || right->shape.size() > left->shape.size());
  return Made({.kind = ViewKind::kArithmetic,
               .dtype = &kNumber,
               .shape = takes_right ? right->shape : left->shape,
               .parts = {left, right},
               .operation = operation});
}

Result<ViewPtr> Scaled(const ViewPtr& part, const ViewPtr& scale, std::vector<int64_t> block) {
  SP_TRY(CheckNumeric(*part));
  SP_TRY(CheckNumeric(*scale));
  if (scale->Elements() == 1) return Arithmetic(part, '*', scale);
  std::vector<int64_t> blocks = scale->shape;
  // A scale for each row may be [rows] as well as [rows, 1].
  while (blocks.size() < part->shape.size()) blocks.push_back(1);
  const bool stated = !block.empty();
  bool fits = blocks.size() == part->shape.size() && (!stated || block.size() == blocks.size());
  block.resize(part->shape.size(), 0);
  for (size_t dim = 0; fits && dim < blocks.size(); ++dim) {
    const int64_t size = part->shape[dim];
    if (!stated) block[dim] = blocks[dim] > 0 ? size / blocks[dim] : 0;
    fits = block[dim] > 0 && (size + block[dim] - 1) / block[dim] == blocks[dim] &&
           (stated || size % blocks[dim] == 0);
  }
  if (!fits) {
    return BadInput(
        fmt::format("expected a scale for each {} of a tensor {}, found scales {}",
                    stated ? "block " + ShapeText(block) : "equal block (else state block=[...])",
                    ShapeText(part->shape), ShapeText(scale->shape)));
  }
  SP_ASSIGN(const ViewPtr shaped, Reshape(scale, std::move(blocks)));
  return Made({.kind = ViewKind::kScaled,
               .dtype = &kNumber,
               .shape = part->shape,
               .parts = {part, shaped},
               .block = std::move(block)});
}

Result<ViewPtr> Merged(const ViewPtr& weight, const ViewPtr& a, const ViewPtr& b, double factor) {
  for (const ViewPtr& part : {weight, a, b}) SP_TRY(CheckNumeric(*part));
  const bool fits = weight->shape.size() == 2 && a->shape.size() == 2 && b->shape.size() == 2 &&
                    a->shape[0] == b->shape[1] && a->shape[1] == weight->shape[1] &&
                    b->shape[0] == weight->shape[0];
  if (!fits) {
    return BadInput(
        fmt::format("expected lora_A [r, in] and lora_B [out, r] for a weight {}, "
                    "found {} and {}",
                    ShapeText(weight->shape), ShapeText(a->shape), ShapeText(b->shape)));
  }
  return Made({.kind = ViewKind::kMerged,
               .dtype = &kNumber,
               .shape = weight->shape,
               .parts = {weight, a, b},
               .number = factor});
}

ViewPtr Repeated(const ViewPtr& part) {
  View made = *part;
  made.repeats = true;
  for (ViewPtr& inner : made.parts) inner = Repeated(inner);
  return Made(std::move(made));
}

void ForEachStored(const View& view, const std::function<void(const View&)>& visit) {
  if (view.kind == ViewKind::kStored) visit(view);
  for (const ViewPtr& part : view.parts) ForEachStored(*part, visit);
}

std::string NameOf(const View& view) {
  std::string name;
  ForEachStored(view, [&](const View& box) {
    if (name.empty()) name = box.stored->name;
  });
  return name;
}

}  // namespace shardproof::maps
