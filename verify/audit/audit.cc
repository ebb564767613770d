#include "verify/audit/audit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "src/text/amounts.h"
#include "verify/audit/beside.h"
#include "verify/audit/integrity.h"
#include "verify/audit/reading.h"
#include "verify/audit/units.h"
#include "verify/audit/vocabulary.h"
#include "verify/formats/beside.h"
#include "verify/formats/stored.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

using formats::Chunk;
using formats::StoredCheckpoint;
using formats::StoredTensor;

/// Makes tensors of the copies that other ranks saved, behind the others, so that they are read
/// too. \returns for each the index of the tensor that it is a copy of.
std::vector<size_t> TakeCopiesApart(StoredCheckpoint& checkpoint) {
  std::vector<size_t> copy_of;
  const size_t count = checkpoint.tensors.size();
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::vector<Chunk>> replicas = std::move(checkpoint.tensors[i].replicas);
    for (std::vector<Chunk>& chunks : replicas) {
      const StoredTensor& tensor = checkpoint.tensors[i];
      StoredTensor copy{tensor.name, tensor.dtype, tensor.shape, std::move(chunks)};
      checkpoint.tensors.push_back(std::move(copy));
      copy_of.push_back(i);
    }
  }
  return copy_of;
}

/// The copies, out of the result again; one that is not its tensor is damage.
void HoldCopies(const StoredCheckpoint& checkpoint, const std::vector<size_t>& copy_of,
                AuditResult& result) {
  const size_t first = checkpoint.tensors.size() - copy_of.size();
  const auto files_of = [&](size_t index) {
    std::set<std::string> names;
    for (const Chunk& chunk : checkpoint.tensors[index].chunks) {
      names.insert(oracle::Quote(checkpoint.files[chunk.file].name));
    }
    return fmt::format("{}", fmt::join(names, ", "));
  };
  for (size_t i = 0; i < copy_of.size(); ++i) {
    const AuditedTensor& copy = result.tensors[first + i];
    if (copy.digest == result.tensors[copy_of[i]].digest) continue;
    result.damage.push_back(fmt::format(
        "{}: tensor {}: expected ranks to have saved the same values, found others in the copy in "
        "{} than in the one in {}",
        oracle::Printable(result.path), oracle::Quote(copy.name), files_of(first + i),
        files_of(copy_of[i])));
  }
  result.tensors.resize(first);
}

/// Of a checkpoint that says nothing; empty of others. A file of torch.save may well hold a dict of
/// values alone, as a scheduler's does, but not one value, nor a directory nothing else.
std::string WhatIsLacking(const AuditResult& result) {
  if (!result.tensors.empty() || result.IsDamaged() || result.format == "safetensors") return "";
  if (result.values.empty()) return result.opaque.empty() ? "holds nothing" : "";
  const bool is_one = result.values.size() == 1 && result.values[0].name == "value";
  const bool is_directory = oracle::IsDirectory(result.path);
  const bool lacks = result.format == "torch.save" && (is_one || is_directory);
  return lacks ? fmt::format("expected tensors, found {} that {} none",
                             Count(result.values.size(), "value"),
                             result.values.size() == 1 ? "is" : "are")
               : "";
}

}  // namespace

Result<AuditResult> Audit(const std::string& path, AuditSums sums) {
  AuditResult result;
  result.path = path;
  result.is_headers_only = !sums.values;
  SP_ASSIGN(StoredCheckpoint checkpoint, formats::OpenStored(path, &result.damage));
  result.format = checkpoint.format;
  result.opaque = checkpoint.opaque;
  result.unjudged = checkpoint.unjudged;
  const std::vector<size_t> copy_of = TakeCopiesApart(checkpoint);
  sums.digests |= !copy_of.empty();
  Describe(checkpoint, result);
  ReadAll(checkpoint, sums, result);
  HoldCopies(checkpoint, copy_of, result);
  HoldUnits(checkpoint, result);
  HoldVocabulary(result);
  for (const AuditedTensor& tensor : result.tensors) result.bytes += tensor.bytes;
  std::sort(result.files.begin(), result.files.end(),
            [](const AuditedFile& x, const AuditedFile& y) { return x.name < y.name; });
  ReadBeside(formats::BesideOf(path, checkpoint.files), sums, result);
  if (sums.values && sums.integrity) HoldIntegrity(result);
  if (const std::string lacks = WhatIsLacking(result); !lacks.empty())
    result.damage.push_back(oracle::Printable(path) + ": " + lacks);
  return result;
}

}  // namespace shardproof
