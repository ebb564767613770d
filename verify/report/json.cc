// The `--json` document.
#include <nlohmann/json.hpp>

#include "verify/case/json_fields.h"
#include "verify/evidence/line_file.h"
#include "verify/report/memory_text.h"
#include "verify/report/report.h"

namespace shardproof {
namespace {

using nlohmann::json;

const Property* Registered(const std::string& id) {
  for (const Property& property : AllProperties()) {
    if (property.id == id) return &property;
  }
  return nullptr;
}

json PropertyToJson(const PropertyResult& result) {
  const Judgement& judgement = result.judgement;
  json out = {{"id", result.id},
              {"verdict", ToString(judgement.verdict())},
              {"comparisons", judgement.comparisons()},
              {"findings", judgement.FindingCount()},
              {"reason", judgement.reason()}};
  // Evidence judged by an older or newer build may name properties that this one lacks.
  if (const Property* property = Registered(result.id)) {
    out["claim"] = property->claim;
    json& reads = out["reads"] = json::array();
    for (const Reading& reading : property->reads) {
      reads.push_back({{"phases", PhasesOf(reading)},
                       {"stages", StagesOf(reading)},
                       {"records", reading.records}});
    }
    out["tolerance"] = property->tolerance;
    out["source"] = property->source;
  }
  return out;
}

json ComparedToJson(const Compared& compared) {
  json skipped = json::array();
  for (const SkippedPhase& phase : compared.skipped) {
    skipped.push_back({{"name", NameOf(phase.phase)}, {"reason", phase.reason}});
  }
  json phases = json::array();
  for (const Phase phase : compared.phases) phases.push_back(NameOf(phase));
  json held = json::array();
  for (const HeldCount& count : compared.held) {
    held.push_back({{"how", count.how}, {"tensors", count.tensors}});
  }
  return {{"comparisons", compared.comparisons},
          {"ranks", compared.ranks},
          {"hosts", compared.hosts},
          {"stages", compared.stages},
          {"phases", std::move(phases)},
          {"held", std::move(held)},
          {"skipped_phases", std::move(skipped)}};
}

json KnownToJson(const KnownAs& as) {
  json out = {{"owner", as.owner},
              {"issue", as.issue},
              {"expires", as.expires},
              {"is_expired", as.is_expired}};
  if (!as.why.empty()) out["why"] = as.why;
  return out;
}

json GateToJson(const RunResult& result) {
  const GateNotes& gate = result.gate;
  return {{"new", result.FindingCount() - gate.known_count - gate.expired_count},
          {"known", gate.known_count},
          {"expired", gate.expired_count},
          {"notes", gate.notes}};
}

}  // namespace

json RunResultToJson(const RunResult& result) {
  json properties = json::array();
  json findings = json::array();
  for (const PropertyResult& property : result.properties) {
    properties.push_back(PropertyToJson(property));
  }
  for (const Finding* finding : result.Findings()) {
    findings.push_back(FindingToJson(*finding));
    findings.back()["next_command"] = result.next_command;
    const auto known = result.gate.known.find(finding->Fingerprint());
    if (known != result.gate.known.end()) findings.back()["known"] = KnownToJson(known->second);
  }
  json document = {{"schema", 1},
                   {"verdict", ToString(result.verdict)},
                   {"exit_code", result.exit_code},
                   {"subject", result.test_case.subject},
                   {"properties", std::move(properties)},
                   {"findings", std::move(findings)},
                   {"faults", result.faults},
                   {"compared", ComparedToJson(result.compared)},
                   {"memory", MemoryToJson(result.memory)},
                   {"loading_memory", LoadingToJson(result.loading_memory)},
                   {"tensor_count", result.tensor_count},
                   {"duration_ms", result.duration_ms},
                   {"versions", result.versions},
                   {"command_line", result.command_line},
                   {"evidence", result.evidence_directory},
                   {"report", result.report_path},
                   {"case", CaseToJson(result.test_case)}};
  if (result.gate.is_used) document["gate"] = GateToJson(result);
  return document;
}

Status WriteResultJson(const RunResult& result, const std::string& path) {
  return WriteFileAtomically(path, DumpJson(RunResultToJson(result), 2) + "\n");
}

}  // namespace shardproof
