// The command. What is about files alone runs here; for all else this becomes the engine, which
// lies beside it and is linked to LibTorch.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "verify/cli/files/files.h"

namespace {

constexpr const char* kEngine = "shardproof-engine";

int BecomeEngine(char** argv) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string engine = (self.parent_path() / kEngine).string();
  ::execv(engine.c_str(), argv);
  std::fprintf(stderr, "shardproof: %s: cannot be run: %s\n", engine.c_str(), std::strerror(errno));
  return shardproof::kExitBroken;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app;
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
  for (const CLI::App* ours : app.get_subcommands({})) {
    if (argc > 1 && ours->get_name() == command_line[1])
      return shardproof::RunApp(app, command_line, exit_code);
  }
  return BecomeEngine(argv);
}
