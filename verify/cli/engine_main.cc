// The command's engine: a table of all subcommands. It is linked to LibTorch, which takes a third
// of a second to load; `shardproof` (main.cc) becomes it for what needs that.
#include "verify/cli/command.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Shardproof checks, bit for bit, that a model's weights survive load, shard, save and "
      "restore.");
  app.name("shardproof");
  app.set_version_flag("--version",
                       "shardproof " SHARDPROOF_VERSION ", torch " SHARDPROOF_TORCH_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  shardproof compare A B                      are two checkpoints equal, bit for bit?\n"
      "  shardproof audit DIR                        is a checkpoint complete?\n"
      "  shardproof crashtest --root DIR -- COMMAND  what does a crash of this save leave behind?\n"
      "  shardproof verify --checkpoint DIR          load, shard, save and restore it on 4 ranks\n"
      "  shardproof verify --checkpoint DIR --inject file/flip@model.norm.weight:3\n"
      "                                              see what a failure looks like\n" +
      std::string(shardproof::kExitCodesHelp));
  int exit_code = 0;
  const std::vector<std::string> command_line(argv, argv + argc);
  // For --help alone: these and bisect are run before there is an engine.
  for (const auto& each : shardproof::kFileCommands) shardproof::AddFileCommand(app, each.name);
  shardproof::AddReport(app, command_line, shardproof::PartsOfReport(), &exit_code);
  shardproof::AddVerify(app, command_line, &exit_code);
  shardproof::AddReplay(app, command_line, &exit_code);
  shardproof::AddShrink(app, &exit_code);
  app.add_subcommand("bisect", "Find the first release of a framework on which a subject fails")
      ->group(shardproof::kFrameworkDoor);
  shardproof::AddList(app, &exit_code);
  return shardproof::RunApp(app, command_line, exit_code);
}
