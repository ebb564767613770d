#include "verify/oracle/twin.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "verify/oracle/derived.h"
#include "verify/oracle/dtype.h"

namespace shardproof::oracle {
namespace {

TensorCase Declared(const TensorDescriptor& descriptor) {
  TensorCase tensor;
  tensor.name = descriptor.name;
  tensor.kind = descriptor.kind;
  tensor.persistent = descriptor.persistent;
  tensor.dtype = descriptor.dtype;
  tensor.shape = descriptor.shape;
  tensor.requires_grad = descriptor.requires_grad;
  tensor.attributes = descriptor.attributes;
  return tensor;
}

FileTensor ValueOf(const TensorDescriptor& descriptor, const TensorState& state) {
  FileTensor value;
  value.name = descriptor.name;
  value.dtype = descriptor.dtype;
  value.shape = descriptor.shape;
  value.digest = state.digest;
  value.coverage = state.coverage;
  value.nan_count = state.nan_count;
  value.inf_count = state.inf_count;
  value.first_nonfinite = state.first_nonfinite;
  value.blocks = state.blocks;
  value.bytes = state.bytes;
  return value;
}

bool IsSaved(const TensorCase& tensor) { return tensor.kind != "buffer" || tensor.persistent; }

bool IsFloat(const std::string& dtype) {
  const DtypeInfo* known = FindDtype(dtype);
  return known != nullptr && known->kind == NumberKind::kFloat;
}

/// The dtype to read a tensor as: the model's, where it is another floating-point one.
std::string CastTo(const std::string& model, const std::string& stored) {
  return model != stored && IsFloat(model) && IsFloat(stored) ? model : "";
}

/// Names of one memory, shape and dtype are one tensor.
std::vector<std::vector<std::string>> TiesIn(const StageRecord& stage, const RankEvidence& rank) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const auto& [name, state] : stage.tensors) {
    const TensorDescriptor& one = rank.Descriptor(state);
    if (one.alias_group < 0) continue;
    groups[fmt::format("{} {} {}", one.alias_group, one.dtype, fmt::join(one.shape, ","))]
        .push_back(name);
  }
  std::vector<std::vector<std::string>> ties;
  for (auto& [key, names] : groups) {
    if (names.size() > 1) ties.push_back(std::move(names));
  }
  std::sort(ties.begin(), ties.end());
  return ties;
}

using Keys = std::map<std::string, const TensorLocation*>;

/// The pieces as places in the files; nothing if they are not there or do not make the tensor.
std::optional<PlacedTensor> FromPieces(const TensorCase& tensor,
                                       const std::vector<StoredPiece>& pieces, const Keys& keys) {
  PlacedTensor placed{tensor.name, tensor.shape, {}};
  uint64_t elements = 0;
  for (const StoredPiece& piece : pieces) {
    const auto found = keys.find(piece.key);
    if (found == keys.end()) return std::nullopt;
    TensorLocation part = *found->second;
    const DtypeInfo* dtype = FindDtype(part.dtype);
    if (dtype == nullptr) return std::nullopt;
    const uint64_t width = static_cast<uint64_t>(dtype->bytes);
    const uint64_t there = part.byte_length / width;
    if (piece.start > there || piece.count > there - piece.start) return std::nullopt;
    if (!placed.parts.empty() && placed.parts[0].dtype != part.dtype) return std::nullopt;
    part.file_offset += piece.start * width;
    part.byte_length = piece.count * width;
    part.shape = {static_cast<int64_t>(piece.count)};
    elements += piece.count;
    placed.parts.push_back(std::move(part));
  }
  if (CheckedElements(tensor.shape.data(), tensor.shape.size()) != elements) return std::nullopt;
  placed.dtype = CastTo(tensor.dtype, placed.parts[0].dtype);
  return placed;
}

/// Holds the twin's tensors against the files.
class Holder {
 public:
  Holder(const Twin& twin, OracleRecord& record) : twin_(twin), record_(record) {
    out_.made_by = twin.says.made_by;
    out_.keys = twin.keys;
    out_.groups = twin.groups;
    out_.used_attributes = twin.says.used_attributes;
    missing_.insert(twin.keys.missing.begin(), twin.keys.missing.end());
  }

  void Hold() {
    for (const auto& [name, tensor] : record_.declared) HoldOne(name, tensor);
    for (const std::string& name : twin_.on_meta) {
      Deviates(name, "undefined", "has been left on the meta device by the plain path");
    }
    record_.twin = std::move(out_);
  }

 private:
  void HoldOne(const std::string& name, const TensorCase& tensor) {
    const auto value = twin_.values.find(name);
    if (value == twin_.values.end()) return;
    if (value->second.nan_count > 0 && tensor.kind == "buffer" && !InFiles(name)) {
      return Deviates(name, "nan", "holds NaN on the plain path: nothing has given it a value");
    }
    if (!IsSaved(tensor)) {
      if (!record_.derived.contains(name)) out_.values.emplace(name, value->second);
      return;
    }
    const FileTensor* file = InFiles(name);
    if (file == nullptr) {
      if (IsMissing(name)) return;
      out_.unheld.push_back(name);
      out_.values.emplace(name, value->second);
      return;
    }
    ++out_.held;
    HoldAgainst(*file, value->second);
  }

  void HoldAgainst(const FileTensor& file, const FileTensor& value) {
    if (file.shape != value.shape) {
      Deviates(value.name, "shape",
               fmt::format("has shape [{}] on the plain path, and [{}] in the checkpoint",
                           fmt::join(value.shape, ", "), fmt::join(file.shape, ", ")));
    } else if (file.dtype != value.dtype) {
      Deviates(value.name, "dtype",
               fmt::format("is {} on the plain path, and {} in the checkpoint", value.dtype,
                           file.dtype));
    } else if (file.digest != value.digest || file.coverage != value.coverage) {
      Deviates(value.name, "differs",
               missing_.contains(value.name)
                   ? "is called missing by the plain path, and the checkpoint has it"
                   : "has another value on the plain path than in the checkpoint");
    } else {
      return;
    }
    out_.values.emplace(value.name, value);
  }

  void Deviates(const std::string& name, const std::string& kind, const std::string& what) {
    out_.deviations.push_back({name, kind, what});
  }

  std::vector<std::string> TiedTo(const std::string& name) const {
    for (const std::vector<std::string>& tie : record_.ties) {
      if (std::find(tie.begin(), tie.end(), name) != tie.end()) return tie;
    }
    return {name};
  }

  const FileTensor* InFiles(const std::string& name) const {
    const auto own = record_.source.tensors.find(name);
    if (own != record_.source.tensors.end()) return &own->second;
    for (const std::string& tied : TiedTo(name)) {
      const auto found = record_.source.tensors.find(tied);
      if (found != record_.source.tensors.end()) return &found->second;
    }
    return nullptr;
  }

  bool IsMissing(const std::string& name) const {
    const std::vector<std::string> tie = TiedTo(name);
    return std::any_of(tie.begin(), tie.end(),
                       [&](const std::string& each) { return missing_.contains(each); });
  }

  const Twin& twin_;
  OracleRecord& record_;
  TwinOracle out_;
  std::set<std::string> missing_;
};

/// Formulas of a definition of ours, if there is one, for buffers that the twin has too.
void AddFormulas(const Case& test_case, OracleRecord& record) {
  const auto by_hand = DeclareModel(test_case);
  if (!by_hand.ok()) return;
  for (const TensorCase& tensor : by_hand.value().tensors) {
    const auto own = record.declared.find(tensor.name);
    if (!tensor.rope || own == record.declared.end() || own->second.dtype != "F32") continue;
    if (tensor.shape.size() != 1 || own->second.shape != tensor.shape) continue;
    auto expected = DeriveFrequencies(*tensor.rope, tensor.shape[0]);
    if (expected.ok()) record.derived.emplace(tensor.name, std::move(expected).value());
  }
}

}  // namespace

std::string HowEnded(const RankEvidence& rank, const std::string& before) {
  if (!rank.errors.empty()) return rank.errors[0].message;
  if (rank.exit == "hang") {  // what it left behind is cut short, and tells nothing
    return fmt::format("the plain twin made no progress until the deadline, before {}", before);
  }
  if (!rank.damage.empty()) return rank.damage;
  return fmt::format("it ended ({}) before {}", rank.exit.empty() ? "nobody knows how" : rank.exit,
                     before);
}

Result<Twin> TwinFrom(const RankEvidence& rank) {
  const StageRecord* ready = rank.Stage(Stage::kReady);
  if (ready == nullptr || !ready->complete || !rank.twin || !rank.closed) {
    return Error{ErrorCode::kFailed, HowEnded(rank, "its model was ready")};
  }
  Twin twin;
  twin.says = *rank.twin;
  if (rank.keys) twin.keys = *rank.keys;
  for (const auto& [name, state] : ready->tensors) {
    const TensorDescriptor& descriptor = rank.Descriptor(state);
    if (descriptor.also) twin.added.insert(name);
    twin.model.tensors.push_back(Declared(descriptor));
    if (state.is_meta) twin.on_meta.push_back(name);
    if (state.content == Content::kDefined) twin.values.emplace(name, ValueOf(descriptor, state));
  }
  twin.model.ties = TiesIn(*ready, rank);
  const StageRecord* optimizer = rank.Stage(std::string("ready.optimizer"));
  if (optimizer != nullptr && optimizer->optimizer) twin.groups = optimizer->optimizer->groups;
  return twin;
}

std::vector<PlacedTensor> PlaceTwin(const Twin& twin, const std::vector<TensorLocation>& places) {
  Keys keys;
  for (const TensorLocation& place : places) keys.emplace(place.name, &place);
  std::vector<PlacedTensor> placed;
  std::set<std::string> taken;
  for (const TensorCase& tensor : twin.model.tensors) {
    if (!IsSaved(tensor)) continue;
    const auto own = keys.find(tensor.name);
    if (own != keys.end()) {
      const TensorLocation& where = *own->second;
      placed.push_back({tensor.name, where.shape, {where}, CastTo(tensor.dtype, where.dtype)});
      taken.insert(tensor.name);
      continue;
    }
    const auto pieces = twin.says.pieces.find(tensor.name);
    if (pieces == twin.says.pieces.end()) continue;
    if (auto made = FromPieces(tensor, pieces->second, keys)) {
      for (const TensorLocation& part : made->parts) taken.insert(part.name);
      placed.push_back(std::move(*made));
    }
  }
  for (const TensorLocation& place : places) {
    if (!taken.contains(place.name)) placed.push_back({place.name, place.shape, {place}});
  }
  return placed;
}

Result<OracleRecord> ConsultTwin(const Case& test_case, const std::string& source,
                                 const std::vector<CaptureRequest>& captures, const Twin& twin) {
  OracleRecord record;
  record.ties = twin.model.ties;
  record.missing_allowed = test_case.model.missing;
  record.unexpected_allowed = test_case.model.unexpected;
  SP_ASSIGN(const auto places, LocateSource(test_case, source));
  record.source = ReadPlaced(source, places, PlaceTwin(twin, places), captures);
  if (!record.source.error.empty()) return BadInput(record.source.error);
  const std::set<std::string> missing(twin.keys.missing.begin(), twin.keys.missing.end());
  for (const TensorCase& tensor : twin.model.tensors) {
    const bool is_asked_for =
        record.source.tensors.contains(tensor.name) || missing.contains(tensor.name);
    // An adapter that plain(case) makes anew is in no file: only ranks are compared in it.
    if (twin.added.contains(tensor.name) && !is_asked_for) continue;
    record.declared.emplace(tensor.name, tensor);
  }
  AddFormulas(test_case, record);
  Holder(twin, record).Hold();
  return record;
}

}  // namespace shardproof::oracle
