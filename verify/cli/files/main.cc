// The command. What is about files alone runs here; for all else this becomes the engine, which is
// linked to LibTorch: it lies beside the command, or is a package of its own.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "verify/cli/common/app.h"
#include "verify/cli/common/places.h"
#include "verify/cli/common/report.h"
#include "verify/cli/files/files.h"

namespace {

constexpr std::array<const char*, 4> kOfTheEngine = {"verify", "replay", "shrink", "list"};

int BecomeEngine(const std::string& engine, char** argv) {
  ::execv(engine.c_str(), argv);
  std::fprintf(stderr, "shardproof: %s: cannot be run: %s\n", engine.c_str(), std::strerror(errno));
  return shardproof::kExitBroken;
}

/// Why there is no engine, which shardproof/__main__.py has found out.
const char* WhyNoEngine() {
  const char* why = std::getenv("SHARDPROOF_NO_ENGINE");
  return why != nullptr && *why != '\0' ? why : "it needs the package shardproof-engine";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Shardproof checks, bit for bit, that a model's weights survive.");
  app.name("shardproof");
  app.require_subcommand(1);
  int exit_code = 0;
  shardproof::AddCompare(app, &exit_code);
  shardproof::AddAudit(app, &exit_code);
  shardproof::AddSeal(app, &exit_code);
  shardproof::AddCrashtest(app, &exit_code);
  shardproof::AddMapPlan(app, &exit_code);
  shardproof::AddClean(app, &exit_code);
  const std::vector<std::string> command_line(argv, argv + argc);
  if (shardproof::IsOfVersions(command_line)) return shardproof::RunVersions(command_line);
  const std::string word = argc > 1 ? command_line[1] : "";
  for (const CLI::App* ours : app.get_subcommands({})) {
    if (ours->get_name() == word) return shardproof::RunApp(app, command_line, exit_code);
  }
  const std::string engine = shardproof::FindEngine();
  if (!engine.empty()) return BecomeEngine(engine, argv);
  shardproof::AddReport(app, command_line, shardproof::NoPartsOfReport(WhyNoEngine()), &exit_code);
  if (std::find(kOfTheEngine.begin(), kOfTheEngine.end(), word) != kOfTheEngine.end()) {
    std::fprintf(stderr, "shardproof %s: %s\n", word.c_str(), WhyNoEngine());
    return shardproof::kExitBadInput;
  }
  app.set_version_flag("--version", "shardproof " SHARDPROOF_VERSION ", without an engine");
  app.footer("verify, replay, shrink, list: " + std::string(WhyNoEngine()) + "\n" +
             shardproof::kExitCodesHelp);
  return shardproof::RunApp(app, command_line, exit_code);
}
