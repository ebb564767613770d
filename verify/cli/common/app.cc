#include "verify/cli/common/app.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>

#include "src/digest/digest.h"
#include "src/text/nearest.h"
#include "src/text/quote.h"
#include "verify/cli/common/gating.h"
#include "verify/cli/common/help.h"
#include "verify/cli/common/places.h"
#include "verify/formats/archive.h"

namespace shardproof {
namespace {

// One line for each way in which the command line can be wrong.

/// "shardproof list bugs"
std::string FullName(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : FullName(*parent) + " " + command.get_name();
}

/// The subcommand called that was given a word which it does not take; else the last one called.
const CLI::App& Called(const CLI::App& app) {
  const auto called = app.get_subcommands();
  return !app.remaining().empty() || called.empty() ? app : Called(*called.front());
}

/// Names the first word that the subcommand does not take; empty if it takes all.
std::string UnknownWord(const CLI::App& command) {
  const std::vector<std::string> words = command.remaining();
  if (words.empty()) return "";
  const std::string help = "'" + FullName(command) + " --help' shows what it takes";
  if (words[0][0] != '-') return "unexpected argument " + text::Quote(words[0]) + "; " + help;
  const std::string option = words[0].substr(0, words[0].find('='));
  std::vector<std::string> known;
  for (const CLI::Option* each : command.get_options({})) {
    if (each->get_group().empty()) continue;  // a former name
    for (const std::string& name : each->get_lnames()) known.push_back(name);
  }
  const size_t dashes = std::min(option.find_first_not_of('-'), option.size());
  const std::string nearest = text::Nearest(option.substr(dashes), known);
  return "unknown option " + text::Quote(option) +
         (nearest.empty() ? "; " : ": did you mean --" + nearest + "? ") + help;
}

/// One line for a usage error.
std::string Usage(const CLI::App& app, const CLI::ParseError& error,
                  const std::vector<std::string>& command_line) {
  std::string known;
  bool is_known = false;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_group().empty()) continue;
    known += (known.empty() ? "" : ", ") + command->get_name();
    is_known = is_known || (command_line.size() > 1 && command->get_name() == command_line[1]);
  }
  if (command_line.size() < 2) return "expected a subcommand: " + known + "; see --help";
  const std::string& word = command_line[1];
  if (word[0] != '-' && !is_known) {
    return "unknown subcommand '" + word + "': expected one of " + known;
  }
  const CLI::App& command = Called(app);
  if (const std::string unknown = UnknownWord(command); !unknown.empty()) return unknown;
  std::string text = error.what();
  // CLI11 says "--a excludes --b".
  const std::string excludes = " excludes ";
  if (const size_t at = text.find(excludes);
      error.get_name() == "ExcludesError" && at != std::string::npos) {
    text.replace(at, excludes.size(), " cannot be combined with ");
  }
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return text + "; see '" + FullName(command) + " --help'";
}

}  // namespace

CLI::App* AddFileCommand(CLI::App& app, std::string_view name) {
  const auto* found = std::find_if(kFileCommands.begin(), kFileCommands.end(),
                                   [name](const FileCommand& each) { return each.name == name; });
  return app.add_subcommand(found->name, found->description)->group(found->door);
}

int RunApp(CLI::App& app, const std::vector<std::string>& command_line, const int& exit_code) {
  if (const char* refused = sp_digest_kernel_refused(); *refused != '\0') {
    std::fprintf(stderr, "shardproof: %s\n", refused);
    return kExitBadInput;
  }
  const Places places = FindPlaces();
  formats::ReadUrlsBy({places.python, places.package + "/_programs/_urls.py"});
  formats::ReadOrbaxBy({places.python, places.package + "/_programs/_orbax.py"});
  std::vector<std::string> words(command_line.rbegin(),
                                 command_line.rend());  // as CLI11 takes them
  if (!words.empty()) words.pop_back();
  UseHelp(app);
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help, version
    std::fprintf(stderr, "shardproof: %s\n", Usage(app, error, command_line).c_str());
    return kExitBadInput;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shardproof: the verifier itself failed: %s\n", error.what());
    return kExitBroken;
  }
  if (exit_code == kExitBadInput || exit_code == kExitBroken) {
    WriteRefusal(command_line.at(1), exit_code);
  }
  return exit_code;
}

Status ShowResult(const std::string& text, const std::string& document, const std::string& json) {
  fmt::print("{}", json == "-" ? document : text);
  if (json.empty() || json == "-") return Ok();
  std::ofstream file(json);
  if (file << document << std::flush) return Ok();
  return BadInput(fmt::format("{}: cannot be written", json));
}

int Refuse(const Error& error) {
  fmt::print(stderr, "shardproof: {}\n", NoteRefusal(error.message));
  return error.code == ErrorCode::kInternal ? kExitBroken : kExitBadInput;
}

std::string NotEmpty(const std::string& text) {
  return text.empty() ? "expected a path, found an empty one" : "";
}

}  // namespace shardproof
