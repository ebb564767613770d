#include "verify/run/subject.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "verify/process/program.h"
#include "verify/verdict/property.h"

namespace shardproof {
namespace {

constexpr auto kDeadline = std::chrono::seconds(60);

/// The declaration that _declare.py prints, checked.
Result<Subject> SubjectFrom(const std::string& file, const std::string& text) {
  const auto declared = nlohmann::json::parse(text, nullptr, false);
  if (!declared.is_object() || !declared.contains("cannot")) {
    return Internal(fmt::format("{}: its declaration cannot be read: {}", file, text));
  }
  Subject subject{std::filesystem::path(file).stem().string(), {}};
  std::vector<std::string> known;
  for (const Capability& capability : KnownCapabilities()) known.push_back(capability.name);
  for (const auto& [capability, reason] : declared.at("cannot").items()) {
    if (std::find(known.begin(), known.end(), capability) == known.end()) {
      return BadInput(fmt::format("{}: CANNOT: there is no capability '{}': known are {}", file,
                                  capability, fmt::join(known, ", ")));
    }
    subject.cannot[capability] = reason;
  }
  return subject;
}

}  // namespace

Result<Subject> DeclareSubject(const std::string& subject, const PythonOptions& options) {
  if (subject == kReference) return Subject{kReference, {}};
  if (!std::filesystem::is_regular_file(subject)) {
    return BadInput(fmt::format("subject {}: there is no such file", subject));
  }
  // -I: nothing of the environment or the current directory decides what is read.
  SP_ASSIGN(const ProgramEnd end,
            RunProgram({options.python, "-I", options.package + "/_declare.py", subject},
                       kDeadline));
  if (end.how == "exit 2") {
    std::string line = end.error_tail;
    while (!line.empty() && line.back() == '\n') line.pop_back();
    return BadInput(line);
  }
  if (!end.ok()) {
    return BadInput(fmt::format("reading subject {} with {}: {}: {}", subject, options.python,
                                end.how, end.error_tail));
  }
  return SubjectFrom(subject, end.output);
}

}  // namespace shardproof
