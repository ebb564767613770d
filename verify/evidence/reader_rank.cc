// One rank's streams as a state machine: states are carried forward from stage to stage, so that
// every complete StageRecord holds the whole model.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "src/digest/digest.h"
#include "verify/case/case_json.h"
#include "verify/evidence/line_reader.h"
#include "verify/evidence/reader.h"
#include "verify/evidence/records_json.h"

namespace shardproof {
namespace {

uint64_t StateBytes(const std::string& name, const TensorState& state) {
  uint64_t bytes = 256 + name.size() + state.blocks.blocks.size() * sizeof(Digest);
  for (const ByteRange& range : state.bytes) bytes += range.bytes.size() + sizeof(ByteRange);
  return bytes;
}

class FactsReader {
 public:
  FactsReader(RankEvidence& rank, uint64_t& budget_bytes) : rank_(rank), budget_(budget_bytes) {}

  void Record(const JsonValue& value, Complaint& complaint);

  /// A stage that was not ended keeps only what was written in it: whether the rest was still as
  /// before, nobody knows.
  void Finish() {
    if (stage_open_) rank_.stages.back().tensors = std::move(fresh_);
  }

 private:
  void Rank(FieldReader& fields);
  void Tensor(FieldReader& fields);
  void Mesh(FieldReader& fields);
  void Groups(FieldReader& fields);
  bool IsNext(FieldReader& fields, int64_t id, size_t known);
  void Refers(FieldReader& fields, const char* to, int64_t id, size_t known);
  void BeginStage(FieldReader& fields);
  void State(FieldReader& fields);
  void Gone(FieldReader& fields);
  void EndStage(FieldReader& fields);
  void Closing(FieldReader& fields);
  void Dispatch(const std::string& record, FieldReader& fields);
  void Apply(Complaint& complaint);
  void Optimizer(FieldReader& fields);
  void Rng(FieldReader& fields);
  void Steps(FieldReader& fields);

  /// States as they stand, of the model or of the optimizer.
  struct Carried {
    std::map<std::string, TensorState> states;
    uint64_t bytes = 0;
  };
  Carried& carried() { return carried_[rank_.stages.back().of]; }  ///< \pre a stage is open

  RankEvidence& rank_;
  uint64_t& budget_;
  std::map<std::string, Carried> carried_;
  std::map<std::string, TensorState> fresh_;  // of the open stage
  std::set<std::string> gone_;                // likewise
  bool stage_open_ = false;
  uint64_t lines_ = 0;
};

void FactsReader::Rank(FieldReader& fields) {
  int64_t schema = 0;
  std::string text;
  uint64_t seed = 0;
  fields.Required("schema", schema, 1, 1);
  fields.Required("rank", rank_.rank, rank_.rank, rank_.rank);
  fields.Required("world_size", rank_.world_size, rank_.world_size, rank_.world_size);
  const std::vector<AxisCase> mesh = ParseAxes(fields, "mesh");
  fields.Required("coordinates", rank_.coordinates, 0, kRecordedRanksMax);
  fields.Required("subject", text);
  fields.Required("mode", text);
  fields.Required("strategy", text);
  fields.Required("seed", seed);
  if (fields.ok() && mesh.size() != rank_.coordinates.size()) {
    fields.complaint().Say("/coordinates", fmt::format("expected one for each of {} axes, found {}",
                                                       mesh.size(), rank_.coordinates.size()));
  }
}

bool FactsReader::IsNext(FieldReader& fields, int64_t id, size_t known) {
  if (id != static_cast<int64_t>(known)) {
    fields.complaint().Say("/id", fmt::format("expected {}, the next one, found {}", known, id));
  }
  return fields.ok();
}

/// An id of what was written before; -1 refers to nothing.
void FactsReader::Refers(FieldReader& fields, const char* to, int64_t id, size_t known) {
  if (id < static_cast<int64_t>(known)) return;
  fields.complaint().Say(fields.PointerTo(to),
                         fmt::format("expected an id below {}, found {}", known, id));
}

void FactsReader::Tensor(FieldReader& fields) {
  TensorDescriptor descriptor = ParseDescriptor(fields);
  Refers(fields, "mesh", descriptor.mesh, rank_.meshes.size());
  Refers(fields, "groups", descriptor.groups, rank_.groups.size());
  if (IsNext(fields, descriptor.id, rank_.descriptors.size())) {
    rank_.descriptors.push_back(std::move(descriptor));
  }
}

void FactsReader::Mesh(FieldReader& fields) {
  int64_t id = 0;
  fields.Required("id", id, 0);
  MeshRecord mesh = ParseMeshRecord(fields);
  if (IsNext(fields, id, rank_.meshes.size())) rank_.meshes.push_back(std::move(mesh));
}

void FactsReader::Groups(FieldReader& fields) {
  int64_t id = 0;
  fields.Required("id", id, 0);
  GroupsRecord groups = ParseGroupsRecord(fields);
  for (const auto* list : {&groups.whole, &groups.alike, &groups.members}) {
    if (!std::binary_search(list->begin(), list->end(), rank_.rank) ||
        !std::is_sorted(list->begin(), list->end())) {
      fields.complaint().Say(
          "", fmt::format("expected sorted ranks with rank {} in each list", rank_.rank));
    }
  }
  if (IsNext(fields, id, rank_.groups.size())) rank_.groups.push_back(std::move(groups));
}

void FactsReader::BeginStage(FieldReader& fields) {
  StageRecord stage;
  fields.Required("name", stage.name);
  fields.Required("step", stage.step, 0);
  if (fields.Known("of")) fields.OneOf("of", {"model", "optimizer", "state_dict"}, stage.of);
  if (stage_open_) {
    fields.complaint().Say("", fmt::format("expected stage {} to end first, found stage {}",
                                           rank_.stages.back().name, stage.name));
  }
  if (!fields.ok()) return;
  rank_.stages.push_back(std::move(stage));
  stage_open_ = true;
}

void FactsReader::State(FieldReader& fields) {
  std::string name;
  fields.Required("name", name);
  TensorState state = ParseState(fields);
  Complaint& complaint = fields.complaint();
  if (!stage_open_) complaint.Say("", "expected a state within a stage, found one outside");
  if (static_cast<size_t>(state.descriptor) >= rank_.descriptors.size()) {
    complaint.Say("/tensor", fmt::format("expected an id below {}, found {}",
                                         rank_.descriptors.size(), state.descriptor));
  }
  if (fresh_.count(name) != 0 || gone_.count(name) != 0) {
    complaint.Say("/name", fmt::format("\"{}\" is given twice in stage", name));
  }
  if (fields.ok()) fresh_.emplace(std::move(name), std::move(state));
}

void FactsReader::Gone(FieldReader& fields) {
  std::string name;
  fields.Required("name", name);
  if (!stage_open_ || carried().states.count(name) == 0 || fresh_.count(name) != 0) {
    fields.complaint().Say("/name", fmt::format("expected a name of an earlier stage, within a "
                                                "stage, found \"{}\"",
                                                name));
  }
  if (fields.ok()) gone_.insert(std::move(name));
}

void FactsReader::Apply(Complaint& complaint) {
  auto& [states, bytes] = carried();
  for (auto& [name, state] : fresh_) {
    const auto [entry, is_new] = states.try_emplace(name);
    if (!is_new) bytes -= StateBytes(name, entry->second);
    entry->second = std::move(state);
    bytes += StateBytes(name, entry->second);
  }
  for (const std::string& name : gone_) {
    const auto entry = states.find(name);
    if (entry == states.end()) continue;
    bytes -= StateBytes(name, entry->second);
    states.erase(entry);
  }
  fresh_.clear();
  gone_.clear();
  if (bytes > budget_) {
    return complaint.Say("", "expected stages that fit into memory, found more states than that");
  }
  budget_ -= bytes;
}

void FactsReader::EndStage(FieldReader& fields) {
  std::string name;
  int64_t step = 0;
  uint64_t tensors = 0;
  fields.Required("name", name);
  fields.Required("step", step, 0);
  fields.Required("tensors", tensors);
  if (!fields.ok()) return;
  Complaint& complaint = fields.complaint();
  if (!stage_open_ || name != rank_.stages.back().name || step != rank_.stages.back().step) {
    return complaint.Say(
        "", fmt::format("expected the end of the open stage, found that of {} {}", name, step));
  }
  Apply(complaint);
  stage_open_ = false;
  const auto& states = carried().states;
  if (tensors != states.size()) {
    complaint.Say("/tensors", fmt::format("expected {}, as many as there are states, found {}",
                                          states.size(), tensors));
  }
  if (!complaint.ok()) return;
  rank_.stages.back().tensors = states;
  rank_.stages.back().complete = true;
}

void FactsReader::Optimizer(FieldReader& fields) {
  OptimizerRecord record = ParseOptimizer(fields);
  if (!stage_open_ || rank_.stages.back().of != "optimizer") {
    fields.complaint().Say("", "expected it within a stage of the optimizer, found it outside");
  }
  if (fields.ok()) rank_.stages.back().optimizer = std::move(record);
}

void FactsReader::Rng(FieldReader& fields) {
  std::string digest;
  bool keeps = true;
  fields.Required("cpu", digest);
  fields.Optional("keeps", keeps);
  if (!stage_open_) fields.complaint().Say("", "expected it within a stage, found it outside");
  if (!fields.ok()) return;
  rank_.stages.back().rng = std::move(digest);
  rank_.stages.back().keeps_rng = keeps;
}

void FactsReader::Steps(FieldReader& fields) {
  StepsRecord record = ParseSteps(fields);
  if (!stage_open_) fields.complaint().Say("", "expected it within a stage, found it outside");
  if (fields.ok()) rank_.stages.back().steps = std::move(record);
}

void FactsReader::Closing(FieldReader& fields) {
  uint64_t lines = lines_;
  fields.Optional("lines", lines);
  if (lines != lines_) {
    fields.complaint().Say("/lines",
                           fmt::format("expected {}, this line's number, found {}", lines_, lines));
  }
  rank_.closed = fields.ok();
}

void FactsReader::Dispatch(const std::string& record, FieldReader& fields) {
  if (record == "rank") return Rank(fields);
  if (record == "tensor") return Tensor(fields);
  if (record == "mesh") return Mesh(fields);
  if (record == "groups") return Groups(fields);
  if (record == "stage") return BeginStage(fields);
  if (record == "state") return State(fields);
  if (record == "gone") return Gone(fields);
  if (record == "stage_end") return EndStage(fields);
  if (record == "collective") return rank_.collectives.push_back(ParseCollective(fields));
  if (record == "fault") return rank_.faults.push_back(ParseFaultRecord(fields));
  if (record == "error") return rank_.errors.push_back(ParseErrorRecord(fields));
  if (record == "optimizer") return Optimizer(fields);
  if (record == "rng") return Rng(fields);
  if (record == "steps") return Steps(fields);
  if (record == "keys") return void(rank_.keys = ParseKeys(fields));
  if (record == "twin") return void(rank_.twin = ParseTwin(fields));
  if (record == "twin_step") return rank_.twin_steps.push_back(ParseTwinStep(fields));
  if (record == "end") return Closing(fields);
  fields.complaint().Say("/record", fmt::format("unknown record \"{}\"", record));
}

void FactsReader::Record(const JsonValue& value, Complaint& complaint) {
  ++lines_;
  FieldReader fields(value, "", complaint);
  std::string record;
  fields.Required("record", record);
  if (!complaint.ok()) return;
  if (rank_.closed) {
    rank_.closed = false;
    return complaint.Say("", "expected nothing after the record \"end\"");
  }
  if ((record == "rank") != (lines_ == 1)) {
    return complaint.Say("/record", fmt::format("expected \"rank\" first and only once, found "
                                                "\"{}\"",
                                                record));
  }
  Dispatch(record, fields);
  fields.Finish();
}

class MeasuresReader {
 public:
  explicit MeasuresReader(RankEvidence& rank) : rank_(rank) {}

  void Record(const JsonValue& value, Complaint& complaint) {
    FieldReader fields(value, "", complaint);
    std::string record;
    fields.Required("record", record);
    if (!complaint.ok()) return;
    if (record == "process") {
      fields.Required("pid", rank_.process_id);
      fields.Required("host", rank_.host);
    } else if (record == "leaks") {
      fields.Required("what", rank_.leaks.emplace());
    } else if (record == "memory") {
      Memory(fields);
    } else if (record == "memory_summary") {
      Summary(fields);
    } else if (record == "held") {
      rank_.held.push_back(ParseHeld(fields));
    } else if (record == "pages") {
      Pages(fields);
    } else {
      complaint.Say("/record", fmt::format("unknown record \"{}\"", record));
    }
    fields.Finish();
  }

 private:
  MemoryRecord& Of() { return rank_.memory ? *rank_.memory : rank_.memory.emplace(); }

  void Memory(FieldReader& fields) {
    MemorySample sample;
    fields.Required("time_ms", sample.time_ms);
    fields.Required("anonymous_bytes", sample.anonymous_bytes);
    fields.Optional("device_bytes", sample.device_bytes);
    fields.Required("stage", sample.stage);
    if (fields.ok()) Of().samples.push_back(std::move(sample));
  }

  void Summary(FieldReader& fields) {
    MemoryRecord& memory = Of();
    fields.Required("idle_bytes", memory.idle_bytes);
    fields.Required("peak_bytes", memory.peak_bytes);
    fields.Required("peak_stage", memory.peak_stage);
    fields.Required("own_shard_bytes", memory.own_shard_bytes);
    fields.Optional("device_peak_bytes", memory.device_peak_bytes);
    fields.Optional("device_own_shard_bytes", memory.device_own_shard_bytes);
    fields.Optional("after_saves_bytes", memory.after_saves_bytes, int64_t{0}, INT64_MAX);
  }

  void Pages(FieldReader& fields) {
    std::string stage, name;
    int64_t step = 0;
    uint64_t storage_bytes = 0, committed_bytes = 0;
    fields.Required("stage", stage);
    fields.Optional("step", step, 0);
    fields.Required("name", name);
    fields.Required("storage_bytes", storage_bytes);
    fields.Required("committed_bytes", committed_bytes);
    if (!fields.ok()) return;
    // A stage or state that the facts lack was lost with the rank; that is no damage here.
    for (StageRecord& record : rank_.stages) {
      if (record.name != stage || record.step != step) continue;
      const auto state = record.tensors.find(name);
      if (state == record.tensors.end()) continue;
      state->second.storage_bytes = storage_bytes;
      state->second.committed_bytes = committed_bytes;
    }
  }

  RankEvidence& rank_;
};

/// What struck the rank from outside.
class FaultsReader {
 public:
  explicit FaultsReader(RankEvidence& rank) : rank_(rank) {}

  void Record(const JsonValue& value, Complaint& complaint) {
    FieldReader fields(value, "", complaint);
    std::string record;
    fields.Required("record", record);
    if (!complaint.ok()) return;
    if (record == "fault") {
      rank_.faults.push_back(ParseFaultRecord(fields));
    } else {
      complaint.Say("/record", fmt::format("expected \"fault\", found \"{}\"", record));
    }
    fields.Finish();
  }

 private:
  RankEvidence& rank_;
};

// Feeds every whole line to reader.Record. \returns what is damaged, or "".
// \param digest  to which the bytes of the lines are added, or null
template <typename Reader>
std::string ReadStream(const std::string& path, const std::string& label, Reader& reader,
                       Digest* digest = nullptr) {
  LineReader lines(path);
  simdjson::dom::parser parser;
  std::string line;
  uint64_t at = 0;
  while (lines.Next(line)) {
    if (digest != nullptr) {
      sp_summary sum = {};
      const sp_run run{at, line.size(), 1, 0, line.data(), 0};
      sp_digest_runs(&sum, &run, 1, SP_NO_FLOAT);
      *digest += Digest(sum.digest);
      at += line.size() + 1;
    }
    const Result<JsonValue> value = ParseJson(parser, line);
    Complaint complaint;
    if (value.ok()) reader.Record(value.value(), complaint);
    const std::string& what = value.ok() ? complaint.text() : value.error().message;
    if (!what.empty()) return fmt::format("{}:{}: {}", label, lines.number(), what);
  }
  if (!lines.failure().empty()) return label + ": " + lines.failure();
  return "";
}

}  // namespace

void ReadRank(const std::string& stem, const std::string& label, uint64_t& budget_bytes,
              RankEvidence& rank) {
  FactsReader facts(rank, budget_bytes);
  rank.damage = ReadStream(stem + ".facts.jsonl", label + ".facts.jsonl", facts, &rank.facts);
  facts.Finish();
  if (!rank.damage.empty()) rank.closed = false;
  // Nothing was measured, nothing struck from outside: that is no damage.
  const auto read = [&](const std::string& kind, auto reader) {
    if (access((stem + kind).c_str(), F_OK) != 0) return;
    const std::string damage = ReadStream(stem + kind, label + kind, reader);
    if (rank.damage.empty()) rank.damage = damage;
  };
  read(".measures.jsonl", MeasuresReader(rank));
  read(".faults.jsonl", FaultsReader(rank));
}

}  // namespace shardproof
