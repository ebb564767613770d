#include "verify/case/names.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace shardproof {
namespace {

constexpr std::array<std::pair<std::string_view, uint64_t>, 17> kDtypes = {{{"BOOL", 1},
                                                                            {"U8", 1},
                                                                            {"I8", 1},
                                                                            {"F8_E4M3", 1},
                                                                            {"F8_E5M2", 1},
                                                                            {"F8_E8M0", 1},
                                                                            {"I16", 2},
                                                                            {"U16", 2},
                                                                            {"F16", 2},
                                                                            {"BF16", 2},
                                                                            {"I32", 4},
                                                                            {"U32", 4},
                                                                            {"F32", 4},
                                                                            {"I64", 8},
                                                                            {"U64", 8},
                                                                            {"F64", 8},
                                                                            {"C64", 8}}};

}  // namespace

const NameTable& KnownDtypes() {
  static const NameTable names = [] {
    NameTable table;
    for (const auto& [name, bytes] : kDtypes) table.push_back(name);
    return table;
  }();
  return names;
}

const NameTable& KnownStrategies() {
  static const NameTable names = {"rank0-broadcast", "rank0-scatter", "each-reads-own",
                                  kPlainStrategy};
  return names;
}

const NameTable& KnownTransports() {
  static const NameTable names = {"gloo", "sim"};
  return names;
}

const NameTable& KnownValues() {
  static const NameTable names = {"normal", "special"};
  return names;
}

const NameTable& KnownDevices() {
  static const NameTable names = {"cpu", "isolated", "cuda"};
  return names;
}

const NameTable& KnownOptimizers() {
  static const NameTable names = {"none", "before-sharding"};
  return names;
}

const NameTable& KnownSaveFormats() {
  static const NameTable names = {"dcp", "safetensors"};
  return names;
}

const NameTable& KnownReductions() {
  static const NameTable names = {"none", "F32", "BF16"};
  return names;
}

const NameTable& KnownMoments() {
  static const NameTable names = {"F32", "BF16"};
  return names;
}

const NameTable& KnownKinds() {
  static const NameTable names = {"parameter", "buffer"};
  return names;
}

const NameTable& KnownInits() {
  static const NameTable names = {"uniform", "ones", "zeros"};
  return names;
}

const NameTable& KnownAxes() {
  static const NameTable names = {"dp_shard", "dp_replicate", "tp", "ep", "cp", "pp"};
  return names;
}

const NameTable& KnownRopes() {
  static const NameTable names = {"default",  "linear", "dynamic",     "yarn",
                                  "longrope", "llama3", "proportional"};
  return names;
}

std::optional<uint64_t> DtypeBytes(std::string_view dtype) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const auto& entry) { return entry.first == dtype; });
  if (found == kDtypes.end()) return std::nullopt;
  return found->second;
}

std::string ListNames(const NameTable& names) {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 == names.size() ? " or " : ", ";
    list += names[i];
  }
  return list;
}

std::optional<uint64_t> TensorBytes(std::string_view dtype, const std::vector<int64_t>& shape) {
  const std::optional<uint64_t> item_bytes = DtypeBytes(dtype);
  if (!item_bytes) return std::nullopt;
  uint64_t bytes = *item_bytes;
  // A zero anywhere makes the product zero, but the other dims must still be sane.
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

std::vector<size_t> OrderInMemory(const std::vector<int64_t>& strides) {
  std::vector<size_t> order(strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  return order;
}

std::vector<int64_t> StridesInOrder(const std::vector<int64_t>& shape,
                                    const std::vector<size_t>& order) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= std::max<int64_t>(shape[order[i]], 1);
  }
  return strides;
}

}  // namespace shardproof
