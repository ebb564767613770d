// The command: a table of subcommands.
#include <cstdio>
#include <exception>

#include "verify/cli/command.h"

namespace {

/// One line for a usage error.
std::string Usage(const CLI::App& app, const CLI::ParseError& error,
                  const std::vector<std::string>& command_line) {
  std::string known;
  bool is_known = false;
  for (const CLI::App* command : app.get_subcommands({})) {
    known += (known.empty() ? "" : ", ") + command->get_name();
    is_known = is_known || (command_line.size() > 1 && command->get_name() == command_line[1]);
  }
  if (command_line.size() < 2) return "a subcommand is needed: " + known + "; see --help";
  const std::string& word = command_line[1];
  if (word[0] != '-' && !is_known) {
    return "subcommand '" + word + "' is unknown: known are " + known;
  }
  std::string text = error.what();
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return text + "; see 'shardproof " + word + " --help'";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Shardproof checks, bit for bit, that a model's weights survive load, shard, save and restore.");
  app.name("shardproof");
  app.set_version_flag("--version", "shardproof " SHARDPROOF_VERSION ", torch " SHARDPROOF_TORCH_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Start with:\n"
      "  shardproof compare A B                     two checkpoints: the same, to the bit?\n"
      "  shardproof audit DIR                       one checkpoint: is it all there?\n"
      "  shardproof verify --checkpoint DIR         load, shard, save, restore it on 4 ranks\n"
      "  shardproof verify --checkpoint DIR --inject file/flip@model.norm.weight:3\n"
      "                                             see what a failure looks like\n"
      "Exit codes: 0 pass, 1 fail, 2 usage or bad input, 3 inconclusive, 4 hang, 5 the verifier\n"
      "itself is broken, 77 skipped.");
  int exit_code = 0;
  const std::vector<std::string> command_line(argv, argv + argc);
  shardproof::AddVerify(app, command_line, &exit_code);
  shardproof::AddReplay(app, command_line, &exit_code);
  shardproof::AddShrink(app, &exit_code);
  shardproof::AddReport(app, command_line, &exit_code);
  shardproof::AddCompare(app, &exit_code);
  shardproof::AddAudit(app, &exit_code);
  shardproof::AddSeal(app, &exit_code);
  shardproof::AddList(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help, version
    std::fprintf(stderr, "shardproof: %s\n", Usage(app, error, command_line).c_str());
    return shardproof::kExitBadInput;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shardproof: the verifier itself failed: %s\n", error.what());
    return shardproof::kExitBroken;
  }
  return exit_code;
}
