// Which keys of a checkpoint make which tensor of the model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string_view>

#include "verify/oracle/dtype.h"
#include "verify/oracle/header.h"
#include "verify/oracle/oracle.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

using TensorsByKey = std::map<std::string_view, const TensorLocation*>;
using Way = std::vector<StoredCase>;

/// How much of a way there is: what to say where none of a tensor's is whole.
struct Partial {
  size_t found = 0;
  const std::string* missing = nullptr;  ///< the first key that is not there
};

Partial LookFor(const Way& way, const TensorsByKey& keys) {
  Partial partial;
  for (const StoredCase& part : way) {
    if (keys.contains(part.key)) {
      ++partial.found;
    } else if (partial.missing == nullptr) {
      partial.missing = &part.key;
    }
  }
  return partial;
}

Status CheckPart(const std::string& checkpoint, const TensorCase& tensor, const StoredCase& wanted,
                 const TensorLocation& part, const TensorLocation& first) {
  const std::string where = Printable(PathOf(checkpoint, part));
  if (part.shape != wanted.shape) {
    return BadInput(fmt::format("{}: key {}: shape: expected [{}] (a part of {}), found [{}]",
                                where, Quote(part.name), fmt::join(wanted.shape, ", "),
                                Quote(tensor.name), fmt::join(part.shape, ", ")));
  }
  if (part.dtype != first.dtype) {
    return BadInput(fmt::format("{}: key {}: dtype: expected {} as in {} (parts of {}), found {}",
                                where, Quote(part.name), first.dtype, Quote(first.name),
                                Quote(tensor.name), part.dtype));
  }
  return Ok();
}

/// The tensor of a way whose keys are all there; they are gone from `keys` then.
Result<PlacedTensor> Assemble(const std::string& checkpoint, const TensorCase& tensor,
                              const Way& way, TensorsByKey& keys) {
  PlacedTensor placed{tensor.name, tensor.shape, {}};
  uint64_t elements = 0;
  for (const StoredCase& wanted : way) {
    const auto found = keys.find(wanted.key);
    if (found == keys.end()) {
      return BadInput(fmt::format("tensor {}: stored: expected every key once, found {} twice",
                                  Quote(tensor.name), Quote(wanted.key)));
    }
    const TensorLocation& part = *found->second;
    const TensorLocation& first = placed.parts.empty() ? part : placed.parts[0];
    SP_TRY(CheckPart(checkpoint, tensor, wanted, part, first));
    elements += CheckedElements(part.shape.data(), part.shape.size()).value_or(0);
    placed.parts.push_back(part);
    keys.erase(found);
  }
  const auto whole = CheckedElements(tensor.shape.data(), tensor.shape.size());
  if (!whole || *whole != elements) {
    return BadInput(
        fmt::format("tensor {}: stored: expected keys that make its shape [{}], found {} elements",
                    Quote(tensor.name), fmt::join(tensor.shape, ", "), elements));
  }
  return placed;
}

/// \returns the tensor that the first whole way makes, if any is.
Result<std::optional<PlacedTensor>> Find(const std::string& checkpoint, const TensorCase& tensor,
                                         TensorsByKey& keys) {
  const auto own = keys.find(tensor.name);
  const Way* begun = nullptr;
  Partial most;
  for (const Way& way : tensor.stored) {
    const Partial partial = LookFor(way, keys);
    if (partial.missing == nullptr && !way.empty()) {
      // Neither can be told to be the tensor, and a record has one for each name.
      if (own != keys.end()) {
        return BadInput(
            fmt::format("{}: tensor {}: expected it once, found it under its own name "
                        "and under {} (keys: {})",
                        Printable(checkpoint), Quote(tensor.name), Quote(way[0].key), way.size()));
      }
      SP_ASSIGN(PlacedTensor placed, Assemble(checkpoint, tensor, way, keys));
      return std::optional(std::move(placed));
    }
    if (partial.found > most.found) {
      most = partial;
      begun = &way;
    }
  }
  if (begun == nullptr || own != keys.end()) return std::optional<PlacedTensor>();
  return BadInput(fmt::format(
      "{}: tensor {}: expected all of its {} keys or none, found {}: the "
      "first that is missing is {}",
      Printable(checkpoint), Quote(tensor.name), begun->size(), most.found, Quote(*most.missing)));
}

}  // namespace

uint64_t PlacedTensor::ByteLength() const {
  uint64_t bytes = 0;
  for (const TensorLocation& part : parts) bytes += part.byte_length;
  return bytes;
}

Result<std::vector<PlacedTensor>> Place(const std::string& checkpoint,
                                        const std::vector<TensorLocation>& places,
                                        const std::vector<TensorCase>& declared) {
  TensorsByKey keys;
  for (const TensorLocation& place : places) keys.emplace(place.name, &place);
  std::vector<PlacedTensor> tensors;
  for (const TensorCase& tensor : declared) {
    const bool is_saved = tensor.kind != "buffer" || tensor.persistent;
    if (tensor.stored.empty() || !is_saved) continue;
    SP_ASSIGN(std::optional<PlacedTensor> placed, Find(checkpoint, tensor, keys));
    if (placed) tensors.push_back(std::move(*placed));
  }
  for (const auto& [key, place] : keys) {
    tensors.push_back({place->name, place->shape, {*place}});
  }
  return tensors;
}

}  // namespace shardproof::oracle
