// Runs reproducer.py, or that of the reference.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "verify/process/program.h"
#include "verify/report/report.h"
#include "verify/report/text.h"

namespace shardproof {
namespace {

constexpr auto kReproducersDeadline = std::chrono::minutes(30);

/// The script of lowest number: they are numbered from cause to consequence.
std::string FirstScript(const std::string& out) {
  std::ifstream file(out + "/reproducers.json");
  const auto index = nlohmann::json::parse(file, nullptr, false);
  if (!index.is_object() || !index.contains("findings")) return "";
  std::string first;
  for (const auto& [fingerprint, entry] : index.at("findings").items()) {
    if (!entry.value("seen", false) || !entry.at("script").is_string()) continue;
    const std::string script = entry.at("script");
    if (first.empty() || script < first) first = script;
  }
  return first.empty() ? "" : out + "/" + first;
}

}  // namespace

Result<std::string> WriteReproducers(std::vector<std::string> command,
                                     const std::string& result_json,
                                     const std::string& evidence_directory,
                                     const std::string& out) {
  std::error_code error;  // scripts of an earlier report are not this run's
  if (std::filesystem::exists(out + "/reproducers.json")) std::filesystem::remove_all(out, error);
  const std::string script = command.at(1);
  command.insert(command.end(), {result_json, evidence_directory, out});
  const auto end = RunProgram(command, kReproducersDeadline);
  if (!end.ok()) return end.error().While("reproducers " + out);
  if (end.value().ok()) return FirstScript(out);
  return BadInput(fmt::format("reproducers {}: {} ended with {}: {}", out, script, end.value().how,
                              Printable(end.value().error_tail, true)));
}

}  // namespace shardproof
