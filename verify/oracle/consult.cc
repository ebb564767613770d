// The whole oracle for a Case: what the source holds, and what every tensor must therefore be.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "verify/oracle/derived.h"
#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/initial.h"
#include "verify/oracle/oracle.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

constexpr uint64_t kPieceElements = 1u << 17;
constexpr uint64_t kFrequenciesMax = 1u << 20;

Result<uint64_t> ElementsOf(const TensorCase& tensor) {
  const auto elements = CheckedElements(tensor.shape.data(), tensor.shape.size());
  if (elements && *elements >> 56 == 0) return *elements;
  return BadInput(
      fmt::format("tensor {}: shape: expected sizes of at least 0 and fewer than 2^56 "
                  "elements",
                  Quote(tensor.name)));
}

/// `tensor` initialised under the name `stream`, digested piece by piece.
Result<FileTensor> InitialTensor(uint64_t seed, double scale, const TensorCase& tensor,
                                 const std::string& stream,
                                 const std::vector<CaptureRequest>& captures) {
  SP_ASSIGN(const InitialValue value,
            InitialValue::Make(seed, stream, tensor.dtype, tensor.init, scale));
  SP_ASSIGN(const uint64_t elements, ElementsOf(tensor));
  const uint64_t width = static_cast<uint64_t>(value.dtype().bytes);
  const uint64_t byte_length = elements * width;
  FileTensor out;
  out.name = tensor.name;
  out.dtype = tensor.dtype;
  out.shape = tensor.shape;
  const auto bytes_of = [&](uint64_t start, uint64_t count) {
    std::string bytes(count * width, '\0');
    for (uint64_t i = 0; i < count; ++i) {
      StoreBits(value.Bits(start + i), value.dtype().bytes, &bytes[i * width]);
    }
    return bytes;
  };
  ScalarDigest digest(byte_length, value.dtype());
  for (uint64_t start = 0; start < elements; start += kPieceElements) {
    const std::string piece = bytes_of(start, std::min(kPieceElements, elements - start));
    digest.Add(piece.data(), piece.size());
  }
  digest.Finish(out);
  if (byte_length <= kInlineBytesMax) {
    out.bytes.push_back({0, bytes_of(0, elements)});
    return out;
  }
  for (const CaptureRequest& capture : captures) {
    if (capture.tensor != tensor.name || capture.byte_start >= byte_length) continue;
    // Whole elements, then cut: a request may begin inside one.
    const uint64_t length = std::min(capture.byte_length, byte_length - capture.byte_start);
    const uint64_t first = capture.byte_start / width;
    const uint64_t past = (capture.byte_start + length + width - 1) / width;
    const std::string whole = bytes_of(first, past - first);
    out.bytes.push_back(
        {capture.byte_start, whole.substr(capture.byte_start - first * width, length)});
  }
  return out;
}

/// The tie that `name` is in; just the name if it is in none.
std::vector<std::string> TieOf(const OracleRecord& record, const std::string& name) {
  for (const std::vector<std::string>& tie : record.ties) {
    if (std::find(tie.begin(), tie.end(), name) != tie.end()) return tie;
  }
  return {name};
}

/// The source's tensor for `name` or for a name tied to it; null if there is none.
const FileTensor* InSource(const OracleRecord& record, const std::string& name) {
  const auto own = record.source.tensors.find(name);
  if (own != record.source.tensors.end()) return &own->second;
  for (const std::string& partner : TieOf(record, name)) {
    const auto found = record.source.tensors.find(partner);
    if (found != record.source.tensors.end()) return &found->second;
  }
  return nullptr;
}

Status Declare(const DeclaredModel& model, OracleRecord& record) {
  for (const TensorCase& tensor : model.tensors) {
    if (!record.declared.emplace(tensor.name, tensor).second) {
      return BadInput(
          fmt::format("case: model: expected every name once, found {} twice", Quote(tensor.name)));
    }
  }
  for (const std::vector<std::string>& tie : model.ties) {
    for (const std::string& name : tie) {
      if (!record.declared.count(name)) {
        return BadInput(
            fmt::format("case: model: ties: expected the name of a tensor, found {}", Quote(name)));
      }
    }
    if (tie.size() > 1) record.ties.push_back(tie);
  }
  return Ok();
}

Status AddDerived(const TensorCase& tensor, OracleRecord& record) {
  SP_ASSIGN(const uint64_t count, ElementsOf(tensor));
  if (tensor.shape.size() != 1 || count > kFrequenciesMax || tensor.dtype != "F32") {
    return BadInput(
        fmt::format("tensor {}: expected F32 [n] with n up to {} (it has a rope), "
                    "found {} with {} dims and {} elements",
                    Quote(tensor.name), kFrequenciesMax, tensor.dtype, tensor.shape.size(), count));
  }
  auto expectation = DeriveFrequencies(*tensor.rope, static_cast<int64_t>(count));
  if (!expectation.ok()) return expectation.error().While("tensor " + Quote(tensor.name));
  record.derived.emplace(tensor.name, std::move(expectation).value());
  return Ok();
}

/// What the case says, and what it asks to begin here.
std::vector<std::string> MayLack(const Case& test_case, const DeclaredModel& model) {
  std::set<std::string> names(test_case.model.missing.begin(), test_case.model.missing.end());
  if (test_case.model.lora) names.insert(model.adapted.begin(), model.adapted.end());
  for (const TensorCase& tensor : model.tensors) {
    const bool saved = tensor.kind != "buffer" || tensor.persistent;
    const bool loaded = !test_case.model.from_scratch ||
                        (!test_case.model.adapter.empty() && model.adapted.contains(tensor.name));
    if (saved && !loaded) names.insert(tensor.name);
  }
  return {names.begin(), names.end()};
}

}  // namespace

Result<OracleRecord> Consult(const Case& test_case, const std::string& source,
                             const std::vector<CaptureRequest>& captures) {
  OracleRecord record;
  SP_ASSIGN(const DeclaredModel model, DeclareModel(test_case));
  SP_TRY(Declare(model, record));
  record.missing_allowed = MayLack(test_case, model);
  record.unexpected_allowed = test_case.model.unexpected;
  record.source = ReadCheckpoint(source, LocateSource(test_case, source), captures, model.tensors);
  if (!record.source.error.empty()) return BadInput(record.source.error);
  for (auto& [name, tensor] : record.declared) {
    const bool saved = tensor.kind != "buffer" || tensor.persistent;
    const FileTensor* present = InSource(record, name);
    // A key of the name of a buffer that is not loaded, as older files have them, says nothing of
    // it.
    if (present != nullptr && saved) tensor.dtype = present->dtype;
    if (tensor.rope) SP_TRY(AddDerived(tensor, record));
    // How a framework initialises what is missing is its own matter.
    if (present != nullptr || !saved || test_case.subject != "reference") continue;
    // Tied names are one tensor, initialised once: under the first name of the tie.
    const std::string stream = TieOf(record, name).front();
    SP_ASSIGN(FileTensor initial,
              InitialTensor(test_case.seed, model.init_scale, tensor, stream, captures));
    record.missing.emplace(name, std::move(initial));
  }
  return record;
}

}  // namespace shardproof::oracle
