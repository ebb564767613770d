// What --help prints.
#pragma once

#include <CLI/CLI.hpp>

namespace shardproof {

/// Gives `app` and its subcommands one form of help: options by group, each with a word for its
/// value, and descriptions wrapped at 100 columns. What cannot be combined is told when it is.
void UseHelp(CLI::App& app);

}  // namespace shardproof
