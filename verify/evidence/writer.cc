#include "verify/evidence/writer.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "verify/evidence/records_json.h"

namespace shardproof {
namespace {

constexpr int kSchema = 1;

void AddAll(JsonText&) {}

template <typename Value, typename... Rest>
void AddAll(JsonText& line, const char* name, const Value& value, const Rest&... rest) {
  line.Add(name, value);
  AddAll(line, rest...);
}

/// A record of few fields: name, value, name, value, ...
template <typename... Fields>
std::string Line(const char* record, const Fields&... fields) {
  JsonText line;
  line.Begin('{').Add("record", record);
  AddAll(line, fields...);
  return line.End('}').text();
}

// FNV-1a, 64 bits. The lines themselves (block digests) would be megabytes that a memory run would
// then see as the subject's.
uint64_t Fingerprint(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

}  // namespace

Result<std::unique_ptr<EvidenceWriter>> EvidenceWriter::Create(const std::string& directory,
                                                               int64_t rank) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return BadInput(fmt::format("evidence {}: {}", directory, error.message()));
  const std::string stem = fmt::format("{}/rank_{}", directory, rank);
  SP_ASSIGN(std::unique_ptr<LineFile> facts, LineFile::Create(stem + ".facts.jsonl"));
  SP_ASSIGN(std::unique_ptr<LineFile> measures, LineFile::Create(stem + ".measures.jsonl"));
  return std::unique_ptr<EvidenceWriter>(new EvidenceWriter(std::move(facts), std::move(measures)));
}

Status EvidenceWriter::Rank(const RankHeader& header) {
  if (facts_->line_count() != 0) return Internal("evidence: Rank must be the first record");
  JsonText line;
  line.Begin('{').Add("record", "rank").Add("schema", kSchema);
  line.Add("rank", header.rank).Add("world_size", header.world_size).Begin("mesh", '[');
  for (const AxisCase& axis : header.mesh)
    line.Begin('{').Add("name", axis.name).Add("size", axis.size).End('}');
  line.End(']').Add("coordinates", header.coordinates).Add("subject", header.subject);
  line.Add("mode", NameOf(header.mode))
      .Add("strategy", header.strategy)
      .Add("seed", header.seed)
      .End('}');
  return facts_->Append(line.text());
}

int64_t EvidenceWriter::Describe(TensorDescriptor descriptor) {
  descriptor.id = 0;
  const auto id = static_cast<int64_t>(descriptors_.size());
  const auto [entry, is_new] = ids_by_content_.emplace(DescriptorLine(descriptor), id);
  if (is_new) {
    descriptors_.push_back(std::move(descriptor));
    written_ids_.push_back(-1);
  }
  return entry->second;
}

Status EvidenceWriter::WriteDescriptor(int64_t id) {
  if (written_ids_[id] != -1) return Ok();
  // Numbered as written, not as described, so that ids in the file run 0, 1, 2, ...
  TensorDescriptor descriptor = descriptors_[id];
  descriptor.id = next_written_id_;
  SP_TRY(facts_->Append(DescriptorLine(descriptor)));
  written_ids_[id] = next_written_id_++;
  return Ok();
}

Status EvidenceWriter::BeginStage(const std::string& name, int64_t step, const std::string& of) {
  if (ended_) return Internal(fmt::format("evidence: stage {} begins after the end", name));
  if (stage_open_) {
    return Internal(fmt::format("evidence: stage {} begins before {} ended", name, stage_));
  }
  stage_ = name;
  step_ = step;
  of_ = of;
  stage_open_ = true;
  seen_.clear();
  if (of == "model") return facts_->Append(Line("stage", "name", name, "step", step));
  return facts_->Append(Line("stage", "name", name, "step", step, "of", of));
}

Status EvidenceWriter::State(const std::string& name, const TensorState& state) {
  if (!stage_open_) return Internal(fmt::format("evidence: state of {} outside a stage", name));
  if (state.descriptor < 0 || static_cast<size_t>(state.descriptor) >= descriptors_.size()) {
    return Internal(fmt::format("evidence: state of {} refers to descriptor {}, of {} described",
                                name, state.descriptor, descriptors_.size()));
  }
  if (!seen_.insert(name).second) {
    return Internal(fmt::format("evidence: {} has two states in stage {}", name, stage_));
  }
  SP_TRY(WriteDescriptor(state.descriptor));
  const std::string line = StateLine(name, state, written_ids_[state.descriptor]);
  const uint64_t fingerprint = Fingerprint(line);
  Fingerprints& last_states = last_states_[of_];
  const auto last = last_states.find(name);
  if (last == last_states.end() || last->second != fingerprint) {
    SP_TRY(facts_->Append(line));
    last_states[name] = fingerprint;
  }
  if (!state.storage_bytes && !state.committed_bytes) return Ok();
  return Pages(stage_, step_, name, state.storage_bytes.value_or(0),
               state.committed_bytes.value_or(0));
}

Status EvidenceWriter::EndStage() {
  if (!stage_open_) return Internal("evidence: EndStage without BeginStage");
  Fingerprints& last_states = last_states_[of_];
  for (auto state = last_states.begin(); state != last_states.end();) {
    if (seen_.count(state->first) == 0) {
      SP_TRY(facts_->Append(Line("gone", "name", state->first)));
      state = last_states.erase(state);
    } else {
      ++state;
    }
  }
  stage_open_ = false;
  return facts_->Append(
      Line("stage_end", "name", stage_, "step", step_, "tensors", last_states.size()));
}

Status EvidenceWriter::Stage(const StageRecord& stage) {
  SP_TRY(BeginStage(stage.name, stage.step, stage.of));
  for (const auto& [name, state] : stage.tensors) SP_TRY(State(name, state));
  if (stage.optimizer) SP_TRY(Optimizer(*stage.optimizer));
  if (stage.steps) SP_TRY(Steps(*stage.steps));
  if (!stage.rng.empty()) SP_TRY(Rng(stage.rng));
  return EndStage();
}

Status EvidenceWriter::Optimizer(const OptimizerRecord& record) {
  if (!stage_open_) return Internal("evidence: an optimizer outside a stage");
  return facts_->Append(OptimizerLine(record));
}

Status EvidenceWriter::Steps(const StepsRecord& record) {
  if (!stage_open_) return Internal("evidence: steps outside a stage");
  return facts_->Append(StepsLine(record));
}

Status EvidenceWriter::Rng(const std::string& digest) {
  if (!stage_open_) return Internal("evidence: a random number generator outside a stage");
  return facts_->Append(Line("rng", "cpu", digest));
}

Status EvidenceWriter::Collective(const CollectiveRecord& record) {
  return facts_->Append(CollectiveLine(record));
}

Status EvidenceWriter::Fault(const FaultRecord& record) {
  return facts_->Append(FaultLine(record));
}

Status EvidenceWriter::Error(const ErrorRecord& record) {
  return facts_->Append(ErrorLine(record));
}

Status EvidenceWriter::Keys(const KeyReport& record) { return facts_->Append(KeysLine(record)); }

Status EvidenceWriter::End() {
  if (ended_) return Internal("evidence: End twice");
  ended_ = true;
  return facts_->Append(Line("end", "lines", facts_->line_count() + 1));
}

Status EvidenceWriter::Process(int64_t process_id, const std::string& host) {
  return measures_->Append(Line("process", "pid", process_id, "host", host));
}

Status EvidenceWriter::Leaks(const std::vector<std::string>& what) {
  return measures_->Append(Line("leaks", "what", what));
}

void EvidenceWriter::SetStage(const std::string& name) {
  const std::lock_guard<std::mutex> lock(stage_mutex_);
  working_on_ = name;
}

Status EvidenceWriter::Memory(const MemorySample& sample) {
  std::string stage = sample.stage;
  if (stage.empty()) {
    const std::lock_guard<std::mutex> lock(stage_mutex_);
    stage = working_on_;
  }
  JsonText line;
  line.Begin('{').Add("record", "memory").Add("time_ms", sample.time_ms);
  line.Add("anonymous_bytes", sample.anonymous_bytes).Add("stage", stage);
  if (sample.device_bytes > 0) line.Add("device_bytes", sample.device_bytes);
  return measures_->Append(line.End('}').text());
}

Status EvidenceWriter::MemorySummary(const MemoryRecord& record) {
  return measures_->Append(
      Line("memory_summary", "idle_bytes", record.idle_bytes, "peak_bytes", record.peak_bytes,
           "peak_stage", record.peak_stage, "own_shard_bytes", record.own_shard_bytes,
           "device_peak_bytes", record.device_peak_bytes, "device_own_shard_bytes",
           record.device_own_shard_bytes, "after_saves_bytes", record.after_saves_bytes));
}

Status EvidenceWriter::Pages(const std::string& stage, int64_t step, const std::string& name,
                             uint64_t storage_bytes, uint64_t committed_bytes) {
  return measures_->Append(Line("pages", "stage", stage, "step", step, "name", name,
                                "storage_bytes", storage_bytes, "committed_bytes",
                                committed_bytes));
}

}  // namespace shardproof
