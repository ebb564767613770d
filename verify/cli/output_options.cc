#include "verify/cli/command.h"
#include "verify/cli/files/gating.h"

namespace shardproof {

void AddOutputOptions(CLI::App& command, ExecuteOptions& options) {
  command
      .add_option("--property", options.properties,
                  "Judge only this property (see 'shardproof list properties'); may be repeated")
      ->type_name("ID")
      ->group(kResults);
  command
      .add_flag("--explain", options.explain,
                "Show each property that was skipped, with the reason")
      ->group(kResults);
  command
      .add_option("--report", options.report,
                  "Write report.html, junit.xml, result.json and the evidence to this directory")
      ->check(NotEmpty)
      ->type_name("DIR")
      ->group(kResults);
  command.add_option("--json", options.json, "Write the result as JSON to this file; - is stdout")
      ->check(NotEmpty)
      ->type_name("FILE")
      ->group(kResults);
  // `report` has an option of this name, which is about what it packs.
  if (command.get_name() != "report") {
    command
        .add_flag("--redact", options.redacts,
                  "Leave values out of the Markdown reports of findings, which say what was hidden")
        ->group(kResults)
        ->needs(command.get_option("--report"));
  }
  AddGateOptions(command, options.gate);
}

}  // namespace shardproof
