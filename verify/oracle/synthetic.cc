// A synthetic model's checkpoint: values that no mistake leaves as they are. They are drawn from a
// stream of their own, so that a tensor left at its initial value never looks loaded.
#include "verify/oracle/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/draws.h"
#include "verify/oracle/initial.h"
#include "verify/oracle/oracle.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

constexpr uint64_t kFormStream = 0x666f726d;
constexpr uint64_t kValueStream = 0x73796e7468657469;  // tells this stream from the initial values'

/// Bit 0 differs between neighbours in memory, bit 1 between neighbours along any dim.
uint64_t Checker(const std::vector<int64_t>& shape, uint64_t index) {
  uint64_t rest = index;
  uint64_t coordinate_sum = 0;
  for (size_t dim = shape.size(); dim-- > 0;) {
    const uint64_t size = static_cast<uint64_t>(shape[dim]);
    coordinate_sum += rest % size;
    rest /= size;
  }
  return (index & 1) | (coordinate_sum & 1) << 1;
}

/// Floats are normal numbers of every magnitude that the format has and of either sign: never zero,
/// NaN or infinite, so that a detour through a format of less range shows.
uint64_t ValueBits(const DtypeInfo& dtype, uint64_t draw, uint64_t checker) {
  const uint64_t low = (draw & ~uint64_t{3}) | checker;
  if (dtype.kind == NumberKind::kBool) return checker & 1;
  if (dtype.kind == NumberKind::kScale) return low & 0x7f;
  if (!dtype.HasFormat()) return low;
  const FloatFormat& format = dtype.format;
  const uint64_t mantissa = low & ((uint64_t{1} << format.mantissa_bits) - 1);
  const uint64_t normal_exponents = (uint64_t{1} << format.exponent_bits) - 2;
  const uint64_t exponent = 1 + (draw >> 48 & 0x1fff) % normal_exponents;
  const uint64_t sign = draw >> 63;
  return sign << (format.Bits() - 1) | exponent << format.mantissa_bits | mantissa;
}

/// One that has no normal number: NaN, quiet or signalling, with a payload of its own, infinite,
/// -0.0 or subnormal. Never all ones, which is what fresh memory is filled with.
uint64_t SpecialBits(const FloatFormat& format, uint64_t draw) {
  const uint64_t sign = (draw >> 63) << (format.Bits() - 1);
  const uint64_t mantissa_mask = (uint64_t{1} << format.mantissa_bits) - 1;
  const uint64_t top_exponent = ((uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits;
  const uint64_t subnormal = std::max<uint64_t>(1, draw & mantissa_mask);
  switch (draw >> 42 & 3) {
    case 0:
      return uint64_t{1} << (format.Bits() - 1);  // -0.0
    case 1:
      return sign | subnormal;
    case 2:
      if (format.has_infinity) return sign | top_exponent;
      break;
    default:
      break;
  }
  if (!format.has_infinity) return top_exponent | mantissa_mask;  // the one payload that it has
  const uint64_t payload = std::max<uint64_t>(1, draw & mantissa_mask);
  return (payload == mantissa_mask ? 0 : sign) | top_exponent | payload;
}

/// What an element, or one part of a complex one, is.
uint64_t Bits(const DtypeInfo& dtype, bool special, uint64_t draw, uint64_t checker) {
  return special && (draw >> 40 & 3) == 0 ? SpecialBits(dtype.format, draw)
                                          : ValueBits(dtype, draw, checker);
}

PlannedTensor PlanWhole(uint64_t seed, const TensorCase& tensor) {
  const DtypeInfo* dtype = FindDtype(tensor.dtype);
  const uint64_t base = Mix(Mix(seed ^ kValueStream) ^ Fnv1a64(tensor.name));
  const bool special = tensor.values == "special" && dtype->HasFormat();
  const auto fill = [dtype, base, special, shape = tensor.shape](uint64_t start, uint64_t count,
                                                                 char* out) {
    const bool complex = dtype->kind == NumberKind::kComplex;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t draw = Mix(base + start + i);
      const uint64_t checker = Checker(shape, start + i);
      uint64_t bits = Bits(*dtype, special, draw, checker);
      if (complex) bits |= Bits(*dtype, special, Mix(draw), checker) << dtype->format.Bits();
      StoreBits(bits, dtype->bytes, out + i * dtype->bytes);
    }
  };
  return {tensor.name, dtype, tensor.shape, fill};
}

/// The keys that hold the tensor: those of the way that the case says, each a stretch of its
/// elements.
Result<std::vector<PlannedTensor>> Plan(uint64_t seed, const TensorCase& tensor) {
  const PlannedTensor whole = PlanWhole(seed, tensor);
  const auto way = static_cast<size_t>(tensor.stored_as);
  if (way >= tensor.stored.size()) return std::vector{whole};
  std::vector<PlannedTensor> parts;
  uint64_t begin = 0;
  for (const StoredCase& part : tensor.stored[way]) {
    const auto fill = [fill = whole.fill, begin](uint64_t start, uint64_t count, char* out) {
      fill(begin + start, count, out);
    };
    parts.push_back({part.key, whole.dtype, part.shape, fill});
    const auto elements = CheckedElements(part.shape.data(), part.shape.size());
    if (!elements || __builtin_add_overflow(begin, *elements, &begin)) begin = UINT64_MAX;
  }
  if (CheckedElements(tensor.shape.data(), tensor.shape.size()) != begin) {
    return BadInput(fmt::format("case: tensor {}: stored: expected keys that make its shape",
                                Quote(tensor.name)));
  }
  return parts;
}

/// Names that another name of their tie stands for, all but the first that is not missing: the
/// other name by each.
std::map<std::string, std::string> Aliases(const Case& test_case,
                                           const std::set<std::string>& missing) {
  std::map<std::string, std::string> aliases;
  for (const std::vector<std::string>& tie : test_case.model.ties) {
    const std::string* written = nullptr;
    for (const std::string& name : tie) {
      if (missing.count(name)) continue;
      if (written != nullptr)
        aliases.emplace(name, *written);
      else
        written = &name;
    }
  }
  return aliases;
}

/// Adds what `of` is under `name` too; nothing if that is kept under other keys.
void AddCopy(const std::string& name, const std::string& of, std::vector<PlannedTensor>& plans) {
  const auto found = std::find_if(plans.begin(), plans.end(),
                                  [&](const PlannedTensor& plan) { return plan.name == of; });
  if (found == plans.end()) return;
  PlannedTensor copy = *found;
  copy.name = name;
  plans.push_back(std::move(copy));
}

}  // namespace

Result<std::vector<PlannedTensor>> PlanSynthetic(const Case& test_case) {
  const ModelCase& model = test_case.model;
  const std::set<std::string> missing(model.missing.begin(), model.missing.end());
  const std::map<std::string, std::string> aliases = Aliases(test_case, missing);
  std::vector<TensorCase> wanted;
  for (const TensorCase& tensor : model.tensors) {
    const bool saved = tensor.kind != "buffer" || tensor.persistent;
    if (saved && !missing.count(tensor.name) && !aliases.count(tensor.name)) {
      wanted.push_back(tensor);
    }
  }
  for (const std::string& name : model.unexpected) {
    TensorCase extra;
    extra.name = name;
    extra.dtype = "BF16";  // what a buffer of that name has not, which is computed in F32
    extra.shape = {4};
    wanted.push_back(extra);
  }
  std::vector<PlannedTensor> plans;
  std::set<std::string> names;
  for (const TensorCase& tensor : wanted) {
    // The dtypes with initial values are those with values at all.
    SP_TRY(InitialValue::Make(0, tensor.name, tensor.dtype, "zeros", 0));
    SP_ASSIGN(const std::vector<PlannedTensor> parts, Plan(test_case.seed, tensor));
    for (const PlannedTensor& part : parts) {
      if (!names.insert(part.name).second || part.name == "__metadata__") {
        return BadInput(
            fmt::format("case: tensor {}: expected every name once, and none to be "
                        "__metadata__",
                        Quote(part.name)));
      }
      plans.push_back(part);
    }
  }
  if (model.every_tied_name) {
    for (const auto& [name, of] : aliases) AddCopy(name, of, plans);
  }
  // Widest first: every tensor then lies at a multiple of its element size.
  std::stable_sort(plans.begin(), plans.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    return a.dtype->bytes > b.dtype->bytes;
  });
  return plans;
}

namespace {

/// Found out before hours of writing, and before nobody else can write.
Status CheckFits(const std::vector<PlannedTensor>& plans, const std::string& directory) {
  uint64_t needed = 0;
  for (const PlannedTensor& plan : plans) {
    const std::optional<uint64_t> bytes = BytesOf(plan);
    if (!bytes || __builtin_add_overflow(needed, *bytes, &needed))
      return Ok();  // the writer names the tensor
  }
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error || needed <= space.available) return Ok();
  return BadInput(fmt::format("case: its checkpoint has {} MiB, and {} has room for {} MiB",
                              needed >> 20, directory, space.available >> 20));
}

/// The first of more files than there are, of another save of the same model.
Status WriteStray(Case test_case, uint64_t files, const std::string& directory) {
  test_case.seed = ~test_case.seed;
  SP_ASSIGN(const std::vector<PlannedTensor> plans, PlanSynthetic(test_case));
  const std::string name = fmt::format("model-00001-of-{:05}.safetensors", files + 1);
  return WriteSafetensors(directory + "/" + name, plans);
}

std::string IndexText(const std::map<std::string, std::string>& files) {
  std::string text = "{\"metadata\": {},\n \"weight_map\": {";
  const char* separator = "\n";
  for (const auto& [name, file] : files) {
    text += fmt::format("{}  {}: {}", separator, JsonString(name), JsonString(file));
    separator = ",\n";
  }
  return text + "}}\n";
}

/// As its library writes a file, or in any other form of the format.
std::optional<uint64_t> FormOf(const Case& test_case) {
  Draws draws(test_case.seed ^ kFormStream);
  if (draws.Below(3) != 0) return std::nullopt;
  return draws.Below(UINT64_MAX);
}

}  // namespace

Status WriteSynthetic(const Case& test_case, const std::string& directory) {
  SP_ASSIGN(const std::vector<PlannedTensor> plans, PlanSynthetic(test_case));
  SP_TRY(CheckFits(plans, directory));
  // An empty file could not be named by the index, so there are at most as many as tensors.
  const uint64_t wanted = static_cast<uint64_t>(std::max<int64_t>(1, test_case.model.files));
  const uint64_t count = std::max<uint64_t>(1, std::min<uint64_t>(wanted, plans.size()));
  if (test_case.model.stray_file) SP_TRY(WriteStray(test_case, count, directory));
  const std::optional<uint64_t> form = FormOf(test_case);
  if (count == 1) return WriteSafetensors(directory + "/model.safetensors", plans, form);
  std::map<std::string, std::string> files;
  for (uint64_t file = 0; file < count; ++file) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, count);
    const std::vector<PlannedTensor> part(plans.begin() + plans.size() * file / count,
                                          plans.begin() + plans.size() * (file + 1) / count);
    for (const PlannedTensor& tensor : part) files[tensor.name] = name;
    SP_TRY(WriteSafetensors(directory + "/" + name, part, form));
  }
  return WriteTextFile(directory + "/model.safetensors.index.json", IndexText(files));
}

}  // namespace shardproof::oracle
