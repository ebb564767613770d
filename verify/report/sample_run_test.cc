#include "verify/report/sample_run.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "src/core/check.h"
#include "verify/evidence/reader.h"
#include "verify/evidence/writer.h"

namespace shardproof {
namespace {

constexpr int64_t kRanks = 4;
constexpr int64_t kHidden = 64;

void Add(Case& c, const std::string& name, std::vector<int64_t> shape) {
  TensorCase tensor;
  tensor.name = name;
  tensor.dtype = "BF16";
  tensor.shape = std::move(shape);
  c.model.tensors.push_back(tensor);
}

Case SampleCase() {
  Case c;
  c.why = "five layers over four ranks; the head does not divide evenly";
  c.seed = 17;
  c.mesh = {{"dp_shard", kRanks}};
  Add(c, "model.embed_tokens.weight", {257, kHidden});
  for (int layer = 0; layer < 5; ++layer) {
    const std::string stem = fmt::format("model.layers.{}.", layer);
    Add(c, stem + "input_layernorm.weight", {kHidden});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      Add(c, stem + "self_attn." + name + ".weight", {kHidden, kHidden});
    }
    Add(c, stem + "mlp.up_proj.weight", {3 * kHidden + 1, kHidden});
    Add(c, stem + "mlp.down_proj.weight", {kHidden, 3 * kHidden + 1});
    Add(c, stem + "mlp.router.expert_bias", {2});
  }
  Add(c, "model.norm.weight", {kHidden});
  return c;
}

// Chunk semantics on dim 0, but down_proj on dim 1 (strided) and the norms replicated.
TensorDescriptor Describe(const TensorCase& tensor, int64_t rank) {
  TensorDescriptor d;
  d.name = tensor.name;
  d.kind = tensor.kind;
  d.dtype = tensor.dtype;
  d.shape = tensor.shape;
  d.requires_grad = true;
  const uint64_t elements = d.ElementCount();
  if (tensor.name.find("norm") != std::string::npos) {
    d.placements = {{"replicate", 0, 1}};
    d.owned = {{0, elements, 1, 0}};
    return d;
  }
  const int64_t dim = tensor.name.find("down_proj") == std::string::npos ? 0 : 1;
  const int64_t size = tensor.shape[dim];
  const int64_t chunk = (size + kRanks - 1) / kRanks;
  const int64_t begin = std::min(rank * chunk, size);
  const int64_t end = std::min(begin + chunk, size);
  d.placements = {{"shard", dim, 1}};
  if (begin == end) return d;
  const auto rows = static_cast<uint64_t>(tensor.shape[0]);
  const uint64_t row_elements = elements / rows;
  if (dim == 0) {
    d.owned = {{begin * row_elements, (end - begin) * row_elements, 1, 0}};
  } else {
    d.owned = {{static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin), rows,
                static_cast<uint64_t>(size)}};
  }
  return d;
}

void WriteValues(const Case& c, const std::string& directory, int64_t rank) {
  auto writer = EvidenceWriter::Create(directory + "/values", rank).value();
  SP_CHECK(
      writer->Rank({rank, kRanks, c.mesh, {rank}, c.subject, RunMode::kValues, c.strategy, c.seed})
          .ok());
  for (const char* stage_name : {"built", "loaded", "ready", "saved"}) {
    StageRecord stage{.name = stage_name, .complete = true};
    for (const TensorCase& tensor : c.model.tensors) {
      TensorState state;
      state.descriptor = writer->Describe(Describe(tensor, rank));
      state.is_meta = stage.name == "built";
      state.device = state.is_meta ? "meta" : "cpu";
      state.content = state.is_meta ? Content::kNone : Content::kDefined;
      if (!state.is_meta) {
        state.digest = Digest(17, 4);
        state.coverage = Digest(3, 5);
        state.blocks = {4096, 0, {Digest(17, 4)}};
        state.bytes = {{0, "ab"}};
      }
      stage.tensors[tensor.name] = state;
    }
    SP_CHECK(writer->Stage(stage).ok());
    SP_CHECK(writer->Collective({0, "broadcast", 0, "BF16", 64, {"model.norm.weight"}}).ok());
  }
  SP_CHECK(writer->Keys({{}, {"extra"}}).ok());
  SP_CHECK(writer->Fault({"disk/eio", "rank 0", "third read"}).ok());
  SP_CHECK(writer->Error({"peer", "saved", "rank 1 vanished"}).ok());
  SP_CHECK(writer->End().ok());
  SP_CHECK(writer->Process(100 + rank, "node-1").ok());
}

void WriteMemory(const Case& c, const std::string& directory, int64_t rank) {
  auto writer = EvidenceWriter::Create(directory + "/memory", rank).value();
  SP_CHECK(
      writer->Rank({rank, kRanks, c.mesh, {rank}, c.subject, RunMode::kMemory, c.strategy, c.seed})
          .ok());
  SP_CHECK(writer->End().ok());
  SP_CHECK(writer->Process(200 + rank, "node-1").ok());
  constexpr double kMib = 1 << 20;
  uint64_t peak_bytes = 0;
  for (int i = 0; i < 200; ++i) {
    const char* stage = i < 30 ? "built" : i < 130 ? "loaded" : i < 160 ? "ready" : "saved";
    const double filled = i < 30 ? 0 : i < 130 ? (i - 30) / 100.0 : 1;
    const double bucket = i >= 30 && i < 130 ? 12 + 4 * std::sin(i / 3.0 + rank) : 0;
    const auto bytes = static_cast<uint64_t>((40 + 64 * filled + bucket + rank) * kMib);
    peak_bytes = std::max(peak_bytes, bytes);
    SP_CHECK(writer->Memory({i * 1.25, bytes, bytes / 2, stage}).ok());
  }
  MemoryRecord summary{
      static_cast<uint64_t>(40 * kMib), peak_bytes, "loaded", static_cast<uint64_t>(64 * kMib), {}};
  SP_CHECK(writer->MemorySummary(summary).ok());
  SP_CHECK(writer->Pages("built", 0, "model.norm.weight", 4096, 0).ok());
}

}  // namespace

Evidence WriteSampleEvidence(const std::string& directory) {
  Evidence evidence;
  evidence.test_case = SampleCase();
  const std::vector<AxisCase>& mesh = evidence.test_case.mesh;
  for (const Phase each : {Phase::kValues, Phase::kMemory}) {
    PhaseEvidence phase{.phase = each, .strategy = "rank0-broadcast", .mesh = mesh};
    phase.ranks.resize(kRanks);
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      phase.ranks[rank].rank = rank;
      phase.ranks[rank].exit = "ok";
    }
    evidence.phases.push_back(phase);
  }
  evidence.phases.push_back({.phase = Phase::kResume,
                             .strategy = "rank0-broadcast",
                             .mesh = mesh,
                             .skipped = "the case has no resume_mesh"});
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    WriteValues(evidence.test_case, directory, rank);
    WriteMemory(evidence.test_case, directory, rank);
  }
  SP_CHECK(WriteRun(directory, evidence).ok());
  SP_CHECK(WriteOracle(directory, evidence.oracle).ok());
  return ReadEvidence(directory).value();
}

Finding SampleFinding() {
  Finding f;
  f.property = "loading.equals_source";
  f.kind = "differs";
  f.phase = Phase::kValues;
  f.stage = "ready";
  f.ranks = {2};
  f.world_size = kRanks;
  f.hosts = {"node-1"};
  f.tensor = "model.layers.0.mlp.up_proj.weight";
  f.index = 100 * kHidden + 17;
  f.coordinates = {100, 17};
  f.differing = 3136;
  f.expected = "0.01446533203125 (0x3c6d)";
  f.seen = "nan (0xffff)";
  f.explanation = "never written (poison) from row 98 to 146: the rows that rank 2 owns";
  f.message =
      "model.layers.0.mlp.up_proj.weight[100,17] on rank 2 of 4 is nan (0xffff), expected "
      "0.01446533203125 (0x3c6d)";
  f.in_message.explanation = false;
  return f;
}

PropertyResult Outcome(const std::string& id, Verdict verdict, const std::string& reason) {
  PropertyResult result{id, {}};
  if (verdict == Verdict::kSkip) result.judgement.Skipped(reason);
  if (verdict == Verdict::kInconclusive) result.judgement.Inconclusive(reason);
  if (verdict == Verdict::kPass || verdict == Verdict::kFail) result.judgement.Compared(168);
  if (verdict == Verdict::kFail) {
    result.judgement.Found(SampleFinding());
    result.judgement.findings().back().property = id;
  }
  return result;
}

RunResult SampleResult(const Evidence& evidence, const std::string& directory, bool failing) {
  const auto or_pass = [&](Verdict verdict) { return failing ? verdict : Verdict::kPass; };
  std::vector<PropertyResult> properties;
  for (const char* id : {"checkpoint.round_trip", "loading.all_defined"}) {
    properties.push_back(Outcome(id, Verdict::kPass));
  }
  properties.push_back(Outcome("loading.equals_source", or_pass(Verdict::kFail)));
  properties.push_back(Outcome("loading.no_meta_left", Verdict::kPass));
  properties.push_back(Outcome("memory.host_peak_within_bound", or_pass(Verdict::kInconclusive),
                               "rank 3 left no memory samples"));
  properties.push_back(Outcome("checkpoint.reshard_exact", Verdict::kSkip,
                               "phase resume did not run: the case has no resume_mesh"));
  properties.push_back(Outcome("sharding.shards_tile_exactly", Verdict::kPass));
  RunResult result = MakeRunResult(evidence, std::move(properties), directory);
  result.duration_ms = 4312;
  result.versions = {{"torch", "2.15.0"}, {"shardproof", "0.1.0"}};
  result.command_line = {"shardproof", "verify", "case.json"};
  return result;
}

namespace {

/// Three ranks on two hosts, with all that a record may have and every text as given.
std::vector<StageMemory> MemoryNamed(const std::string& text) {
  PhaseEvidence phase;
  for (int64_t rank = 0; rank < 3; ++rank) {
    HeldRecord held{.stage = text, .step = 3, .time_ms = 2.5};
    held.host = held.proportional.emplace() = {300 << 20, 20 << 20, 100 << 20};
    held.pinned = 64 << 20;
    held.peak = HeldPeak{400 << 20, 20 << 20, 1.5, 10, 390 << 20, {{text, text}, {text}}};
    held.tensors = {{"parameter", text, 1 << 20, 0}, {"other", "cpu", 200 << 20, 200 << 20}};
    held.devices = {{text, 1 << 20, 2 << 20, 3 << 20, 4 << 20}};
    held.who = {{"holder", text, 200 << 20, 291, {text}}, {"device", text, 1 << 20, 1, {}}};
    RankEvidence evidence{.rank = rank, .world_size = 3, .host = rank < 2 ? text : "host-b"};
    evidence.held = {held, held};
    evidence.held[0].stage = "ready";
    phase.ranks.push_back(std::move(evidence));
  }
  return MemoryByStage({.phases = {phase}});
}

}  // namespace

RunResult HostileResult(const std::string& directory) {
  const std::string hostile =
      "</script><b>&\"'\x1b[2J\x01\xff\xed\xa0\x80\xef\xbf\xbe]]>\n--{{7*7}}";
  Finding finding = SampleFinding();
  for (std::string* text : {&finding.kind, &finding.stage, &finding.tensor, &finding.expected,
                            &finding.seen, &finding.explanation, &finding.message}) {
    *text = hostile;
  }
  finding.hosts = {hostile};
  RunResult result;
  result.test_case = SampleCase();
  result.test_case.why = hostile;
  result.test_case.subject = hostile;
  result.verdict = Verdict::kFail;
  result.exit_code = 1;
  result.properties = {Outcome("loading." + hostile, Verdict::kFail),
                       Outcome("loading.b", Verdict::kInconclusive, hostile),
                       Outcome("loading.c", Verdict::kSkip, hostile)};
  result.properties[0].judgement.findings() = {finding};
  result.versions = {{hostile, hostile}};
  result.compared.skipped = {{Phase::kResume, hostile}};
  result.memory = MemoryNamed(hostile);
  result.evidence_directory = directory;
  result.next_command = "shardproof replay " + hostile;
  return result;
}

}  // namespace shardproof
