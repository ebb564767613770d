#include "verify/cli/command.h"

namespace shardproof {

void AddOutputOptions(CLI::App& command, ExecuteOptions& options) {
  command.add_option("--property", options.properties, "Judge only this property; may be repeated");
  command
      .add_option("--report", options.report,
                  "Directory for report.html, junit.xml, result.json and the evidence")
      ->check(NotEmpty);
  command.add_option("--json", options.json, "File for the result as JSON; - is stdout")
      ->check(NotEmpty);
}

}  // namespace shardproof
