#include "verify/launch/subject.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/text/printable.h"
#include "verify/process/program.h"
#include "verify/verdict/property.h"

namespace shardproof {
namespace {

constexpr auto kDeclareDeadline = std::chrono::seconds(60);

/// The declaration that _declare.py prints, checked.
Result<Subject> SubjectFrom(const std::string& file, const std::string& python,
                            const std::string& text) {
  const auto declared = nlohmann::json::parse(text, nullptr, false);
  if (!declared.is_object() || !declared.contains("cannot") || !declared.contains("options")) {
    return BadInput(fmt::format("{}: expected {} to print the subject's declaration, found '{}'",
                                file, python, Printable(text.substr(0, 200))));
  }
  Subject subject{.name = std::filesystem::path(file).stem().string()};
  std::vector<std::string> known;
  for (const Capability& capability : KnownCapabilities()) known.push_back(capability.name);
  for (const auto& [capability, reason] : declared.at("cannot").items()) {
    if (std::find(known.begin(), known.end(), capability) == known.end()) {
      return BadInput(fmt::format("{}: CANNOT: there is no capability '{}': known are {}", file,
                                  Printable(capability), fmt::join(known, ", ")));
    }
    subject.cannot[capability] = reason;
  }
  subject.options = declared.at("options").get<decltype(subject.options)>();
  subject.shows = declared.at("shows").get<decltype(subject.shows)>();
  subject.builds = declared.at("builds").get<bool>();
  subject.adapts = declared.at("adapts").get<bool>();
  subject.reads = declared.at("reads").get<decltype(subject.reads)>();
  return subject;
}

}  // namespace

bool Subject::OnlyRank0Reads(const std::map<std::string, std::string>& chosen) const {
  return std::any_of(reads.begin(), reads.end(), [&](const std::string& condition) {
    const auto option = chosen.find(condition.substr(0, condition.find('=')));
    return condition.empty() ||
           (option != chosen.end() && condition == option->first + "=" + option->second);
  });
}

Result<Subject> DeclareSubject(const std::string& subject, const PythonOptions& options) {
  if (subject == kReference) return Subject{.name = kReference};
  if (!std::filesystem::is_regular_file(subject)) {
    return BadInput(fmt::format("subject {}: no such file", subject));
  }
  // -I: nothing of the environment or the current directory decides what is read.
  SP_ASSIGN(const ProgramEnd end,
            RunProgram({options.python, "-I", options.package + "/_programs/_declare.py", subject},
                       kDeclareDeadline));
  if (end.exit == 2) {
    std::string line = end.error_tail;
    while (!line.empty() && line.back() == '\n') line.pop_back();
    return BadInput(line);
  }
  if (!end.ok()) {
    return BadInput(fmt::format("reading subject {} with {}: {}: {}", subject, options.python,
                                end.how, end.error_tail));
  }
  return SubjectFrom(subject, options.python, end.output);
}

Status CheckOptions(const Subject& subject, const std::map<std::string, std::string>& options) {
  for (const auto& [name, value] : options) {
    const auto declared = subject.options.find(name);
    if (declared == subject.options.end()) {
      std::vector<std::string> known;
      for (const auto& [other, values] : subject.options) known.push_back(other);
      return BadInput(
          fmt::format("option {}: subject {} declares {}", name, subject.name,
                      known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
    }
    const std::vector<std::string>& values = declared->second;
    if (std::find(values.begin(), values.end(), value) == values.end()) {
      return BadInput(fmt::format("option {}={}: subject {} takes one of {}", name, value,
                                  subject.name, fmt::join(values, ", ")));
    }
  }
  return Ok();
}

}  // namespace shardproof
