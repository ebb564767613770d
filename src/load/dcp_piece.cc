#include "src/load/dcp_piece.h"

#include <fmt/ranges.h>

#include "src/format/torch_names.h"
#include "src/text/quote.h"

namespace shardproof {

namespace {

using pickle::Describe;
using pickle::PickleValue;
using text::Printable;
using text::Quote;
using Kind = PickleValue::Kind;

bool IsRowMajor(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  if (shape.size() != strides.size()) return false;
  int64_t expected = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 0) return true;
    if (shape[d] > 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

std::string PieceIn(const std::string& file, const std::string& name) {
  return Printable(file) + ": piece of " + Quote(name);
}

}  // namespace

Result<uint64_t> DcpPieces::BeginOf(const std::string& file, const std::string& name,
                                    std::string_view pickle, at::ScalarType dtype,
                                    const std::vector<int64_t>& sizes) {
  // One that was read already, of a piece of that dtype and sizes, is not read again.
  const auto known = known_.find(pickle);
  const bool is_known =
      known != known_.end() && known->second.dtype == dtype && known->second.sizes == sizes;
  if (is_known) return known->second.begin;
  SP_ASSIGN(const uint64_t begin, Read(file, name, pickle, dtype, sizes));
  known_.insert_or_assign(std::string(pickle), KnownPiece{dtype, sizes, begin});
  return begin;
}

Result<uint64_t> DcpPieces::Read(const std::string& file, const std::string& name,
                                 std::string_view text, at::ScalarType dtype,
                                 const std::vector<int64_t>& sizes) {
  const std::string piece = PieceIn(file, name);
  const auto wrong = [&](const std::string& expected, const std::string& found) {
    return BadInput(fmt::format("{}: expected {}, found {}", piece, expected, found));
  };
  SP_ASSIGN(const pickle::Pickle pickle, pickle::ReadPickle(std::string(text), piece));
  const PickleValue& call = pickle.root();
  const bool is_v3 = call.IsObject("torch._utils._rebuild_tensor_v3");
  if (!is_v3 && !call.IsObject("torch._utils._rebuild_tensor_v2")) {
    return wrong("a tensor", Describe(call));
  }
  const auto& given = call.items;
  const bool fits = given.size() >= (is_v3 ? 7u : 6u) && given[0]->Is(Kind::kPersistent) &&
                    given[0]->items.size() == 1 && given[0]->items[0]->Is(Kind::kTuple) &&
                    given[0]->items[0]->items.size() == 5 && given[1]->Is(Kind::kInteger) &&
                    !given[1]->is_big && given[1]->integer >= 0;
  if (!fits) return wrong("the arguments of a tensor", Describe(call));
  const auto& storage = given[0]->items[0]->items;
  if (storage[2]->text != "0") return wrong("the storage '0'", Describe(*storage[2]));
  const auto found = DtypeFromTorchName(is_v3 ? given[6]->text : storage[1]->text);
  SP_ASSIGN(const auto shape, DcpSizes(given[2], [&] { return piece; }));
  SP_ASSIGN(const auto strides, DcpSizes(given[3], [&] { return piece; }));
  if (!found || *found != dtype || shape != sizes) {
    return wrong(fmt::format("a piece {} [{}]", DtypeName(dtype), fmt::join(sizes, ", ")),
                 fmt::format("{} [{}]", found ? DtypeName(*found) : "an unknown dtype",
                             fmt::join(shape, ", ")));
  }
  if (!IsRowMajor(shape, strides)) {
    return Unsupported(
        fmt::format("{}: strides [{}], not in row-major order", piece, fmt::join(strides, ", ")));
  }
  uint64_t begin = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(given[1]->integer), c10::elementSize(dtype),
                             &begin)) {
    return wrong("an offset within its storage", Describe(*given[1]));
  }
  return begin;
}

std::string DcpPieces::PieceOf(const std::string& name) const { return PieceIn(where_, name); }

}  // namespace shardproof
