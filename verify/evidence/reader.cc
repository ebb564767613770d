// run.json, and the directory as a whole.
#include "verify/evidence/reader.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "verify/case/case_json.h"
#include "verify/evidence/line_file.h"
#include "verify/evidence/line_reader.h"
#include "verify/evidence/records_json.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr size_t kRunBytesMax = 256u << 20;
constexpr uint64_t kStateBytesMax = uint64_t{4} << 30;

/// The mode is the table's; a file that has another was written by something else.
void CheckMode(FieldReader& fields, Phase phase, Complaint& complaint) {
  std::string mode;
  fields.Required("mode", mode);
  const char* expected = NameOf(FactsOf(phase).mode);
  if (fields.ok() && mode != expected) {
    complaint.Expected(fields.PointerTo("mode"),
                       fmt::format("{}, as of phase {}", expected, NameOf(phase)), mode);
  }
}

void ParseRankExit(const JsonValue& value, const std::string& pointer, std::set<int64_t>& seen,
                   PhaseEvidence& phase, Complaint& complaint) {
  FieldReader fields(value, pointer, complaint);
  int64_t rank = 0;
  fields.Required("rank", rank, 0, static_cast<int64_t>(phase.ranks.size()) - 1);
  if (!fields.ok()) return;
  fields.Required("exit", phase.ranks[rank].exit);
  fields.Optional("stderr_tail", phase.ranks[rank].stderr_tail);
  fields.Finish();
  if (!seen.insert(rank).second)
    complaint.Say(pointer, fmt::format("rank {} is given twice", rank));
}

PhaseEvidence ReadPhase(const JsonValue& value, const std::string& pointer, Complaint& complaint) {
  PhaseEvidence phase;
  FieldReader fields(value, pointer, complaint);
  std::string name;
  fields.Required("name", name);
  const auto known = ParsePhase(name);
  if (fields.ok() && !known.ok()) complaint.Say(fields.PointerTo("name"), known.error().message);
  if (known.ok()) phase.phase = known.value();
  CheckMode(fields, phase.phase, complaint);
  fields.Required("strategy", phase.strategy);
  phase.mesh = ParseAxes(fields, "mesh");
  if (fields.Known("laid_over")) phase.laid_over = ParseLaidOver(fields, "laid_over", phase.mesh);
  fields.Optional("skipped", phase.skipped);
  fields.Optional("saved_files", phase.saved_files);
  int64_t world_size = 0;
  fields.Required("world_size", world_size, 0, kRecordedRanksMax);
  phase.ranks.resize(static_cast<size_t>(world_size));
  for (int64_t rank = 0; rank < world_size; ++rank) {
    phase.ranks[rank].rank = rank;
    phase.ranks[rank].world_size = world_size;
  }
  std::set<int64_t> seen;
  ForEach(fields, "ranks", [&](const JsonValue& rank, const std::string& at) {
    ParseRankExit(rank, at, seen, phase, complaint);
  });
  fields.Finish();
  return phase;
}

Result<Evidence> ParseRun(const JsonValue& value) {
  Evidence evidence;
  Complaint complaint;
  FieldReader fields(value, "", complaint);
  int64_t schema = 0;
  fields.Required("schema", schema, 1, 1);
  const std::optional<JsonValue> test_case = fields.Object("case");
  fields.Optional("cannot", evidence.cannot);
  fields.Optional("mesh_is_asked", evidence.mesh_is_asked);
  fields.Optional("is_quick", evidence.is_quick);
  if (fields.Known("shows")) {
    ForEachMember(fields, "shows",
                  [&](const std::string& what, const JsonValue& names, const std::string& at) {
                    ParseStrings(names, at, complaint, evidence.shows[what]);
                  });
  }
  std::set<Phase> known;
  ForEach(fields, "phases", [&](const JsonValue& phase, const std::string& pointer) {
    evidence.phases.push_back(ReadPhase(phase, pointer, complaint));
    if (!known.insert(evidence.phases.back().phase).second) {
      complaint.Say(pointer, fmt::format("phase {} is given twice", evidence.phases.back().name()));
    }
  });
  fields.Finish();
  SP_TRY(complaint.ToStatus());
  Result<Case> parsed = ParseCase(*test_case);
  if (!parsed.ok()) return parsed.error().While("/case");
  evidence.test_case = std::move(parsed).value();
  return evidence;
}

Result<Evidence> ReadRun(const std::string& path) {
  std::string text, failure;
  if (!ReadWholeFile(path, kRunBytesMax, text, failure)) return BadInput(failure);
  simdjson::dom::parser parser;
  SP_ASSIGN(const JsonValue run, ParseJson(parser, text));
  return ParseRun(run);
}

json PhaseToJson(const PhaseEvidence& phase) {
  json ranks = json::array();
  for (const RankEvidence& rank : phase.ranks) {
    ranks.push_back({{"rank", rank.rank}, {"exit", rank.exit}, {"stderr_tail", rank.stderr_tail}});
  }
  json out = {{"name", phase.name()},
              {"mode", NameOf(phase.facts().mode)},
              {"strategy", phase.strategy},
              {"mesh", AxesToJson(phase.mesh)},
              {"skipped", phase.skipped},
              {"saved_files", phase.saved_files},
              {"world_size", phase.ranks.size()},
              {"ranks", ranks}};
  if (!phase.laid_over.empty()) out["laid_over"] = AxesToJson(phase.laid_over);
  return out;
}

/// The last by name of the runs that lie in a directory of them, as jobs that are watched leave
/// them; empty if there is none.
std::string LastRunIn(const std::string& path) {
  std::string last;
  std::error_code error;
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    const std::string& name = at->path().native();
    std::error_code unknown;
    if (name > last && std::filesystem::exists(name + "/run.json", unknown)) last = name;
  }
  return last;
}

}  // namespace

Status WriteRun(const std::string& directory, const Evidence& evidence) {
  json phases = json::array();
  for (const PhaseEvidence& phase : evidence.phases) phases.push_back(PhaseToJson(phase));
  const json run = {{"schema", 1},
                    {"case", CaseToJson(evidence.test_case)},
                    {"cannot", evidence.cannot},
                    {"shows", evidence.shows},
                    {"mesh_is_asked", evidence.mesh_is_asked},
                    {"is_quick", evidence.is_quick},
                    {"phases", std::move(phases)}};
  return WriteFileAtomically(directory + "/run.json", DumpJson(run, 1) + "\n");
}

Result<std::string> FindEvidence(const std::string& path) {
  for (const std::string& directory : {path, path + "/evidence"}) {
    if (std::filesystem::exists(directory + "/run.json")) return directory;
  }
  const std::string last = LastRunIn(path);
  const std::string expected =
      last.empty() ? "" : fmt::format(": expected one of its runs, of which {} is the last", last);
  return BadInput(
      fmt::format("{}: holds neither run.json nor evidence/run.json{}", path, expected));
}

Result<Evidence> ReadEvidence(const std::string& directory) {
  Result<Evidence> parsed = ReadRun(directory + "/run.json");
  if (!parsed.ok()) return parsed.error().While(directory + "/run.json");
  Evidence evidence = std::move(parsed).value();

  const std::string oracle_path = directory + "/oracle.json";
  if (std::FILE* file = std::fopen(oracle_path.c_str(), "rbe")) {
    std::fclose(file);
    SP_ASSIGN(evidence.oracle, ReadOracle(oracle_path));
  } else {
    evidence.oracle.source.error = "the evidence has no oracle.json";
  }

  uint64_t budget_bytes = kStateBytesMax;
  for (PhaseEvidence& phase : evidence.phases) {
    if (!phase.skipped.empty()) continue;
    for (RankEvidence& rank : phase.ranks) {
      const std::string label = fmt::format("{}/rank_{}", phase.name(), rank.rank);
      ReadRank(directory + "/" + label, label, budget_bytes, rank);
    }
  }
  return evidence;
}

}  // namespace shardproof
