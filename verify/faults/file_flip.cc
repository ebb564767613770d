// Bit rot on read: one bit of one element is other than what the file holds.
#include <fmt/format.h>

#include <numeric>

#include "verify/fault/fault.h"
#include "verify/faults/decorators.h"

namespace shardproof::faults::file_flip {
namespace {

/// The element that WHERE means: a row-major index or coordinates "3,17".
Result<uint64_t> ElementOf(const TensorAndRest& where) {
  const std::vector<int64_t>& shape = where.tensor.shape;
  const int64_t count =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  if (where.rest.empty()) return BadInput("file/flip needs TENSOR:INDEX, such as w:3 or w:1,2");
  if (where.rest.find(',') == std::string::npos) {
    SP_ASSIGN(const int64_t index, ParseIndex(where.rest, count, "the element index"));
    return static_cast<uint64_t>(index);
  }
  uint64_t index = 0;
  size_t begin = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const size_t comma = std::min(where.rest.find(',', begin), where.rest.size());
    SP_ASSIGN(const int64_t coordinate,
              ParseIndex(where.rest.substr(begin, comma - begin), shape[d],
                         fmt::format("the coordinate in dim {}", d)));
    index = index * shape[d] + coordinate;
    begin = comma + 1;
  }
  if (begin != where.rest.size() + 1) {
    return BadInput(fmt::format("'{}' has more coordinates than the tensor's {} dims", where.rest,
                                shape.size()));
  }
  return index;
}

Result<std::pair<TensorAndRest, uint64_t>> Locate(const std::vector<oracle::TensorLocation>& source,
                                                  const std::string& where) {
  SP_ASSIGN(const TensorAndRest split, SplitWhere(source, where));
  SP_ASSIGN(const uint64_t element, ElementOf(split));
  return std::pair(split, element);
}

const FaultRegistration kRegistration{{
    .id = "file/flip",
    .what = "the lowest bit of one element is flipped on its way from the file",
    .where = "TENSOR:INDEX, row-major or as coordinates: model.norm.weight:5, lm_head.weight:3,17",
    .example = {"model.norm.weight:5",
                "the lowest bit of element 5 of model.norm.weight is flipped on its way from "
                "the file"},
    .model = FaultModel::kMustBeSeen,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>& source,
                const std::string& where) -> Status {
      SP_ASSIGN(const auto located, Locate(source, where));
      SP_TRY(CheckFormat(test_case, "safetensors"));
      return CheckLoaded(test_case, source, located.first.tensor.name);
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          const auto [split, element] = Locate(site.source, where).value();
          const oracle::TensorLocation& tensor = split.tensor;
          const uint64_t count = std::accumulate(tensor.shape.begin(), tensor.shape.end(),
                                                 uint64_t{1}, std::multiplies<>());
          const uint64_t offset = tensor.file_offset + element * (tensor.byte_length / count);
          const std::string path = site.source_directory + "/" + tensor.file;
          site.world.files = std::make_shared<PatchedFiles>(
              site.world.files, path, offset,
              [log = site.log, file = tensor.file, name = tensor.name, offset](std::byte* data) {
                log({.detail = fmt::format("bit 0 of byte {} of {}", offset, file),
                     .file = file,
                     .byte = offset,
                     .tensors = {name}});
                *data ^= std::byte{1};
              });
        },
    .in_words = [](const Case&, const std::string& where) -> std::string {
      const size_t colon = where.rfind(':');
      if (colon == std::string::npos) return "";
      const std::string element = where.substr(colon + 1);
      const bool is_place = element.find(',') != std::string::npos;
      return fmt::format("the lowest bit of element {} of {} is flipped on its way from the file",
                         is_place ? "[" + element + "]" : element, where.substr(0, colon));
    },
    .tried_at = {"a.weight:0", "a.weight:1", "a.weight:2", "a.weight:3", "a.weight:4", "a.weight:5",
                 "a.weight:6", "a.weight:7", "a.weight:8", "a.weight:9", "a.weight:10",
                 "a.weight:11", "a.weight:12", "a.weight:13", "a.weight:14"},
}};

}  // namespace
}  // namespace shardproof::faults::file_flip
