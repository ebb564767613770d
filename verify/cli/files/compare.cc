// shardproof compare: are two checkpoints the same, to the bit?
#include "verify/compare/compare.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "verify/cli/files/files.h"
#include "verify/process/outputs.h"
#include "verify/report/result.h"

namespace shardproof {
namespace {

struct CompareArguments {
  std::string a;
  std::string b;
  std::string json;
  CompareOptions options;
};

int RunCompare(const CompareArguments& arguments) {
  for (const std::string& input : {arguments.a, arguments.b, arguments.options.map_file}) {
    if (const Status apart = CheckNotOf(arguments.json, input, "--json"); !apart.ok()) {
      return Refuse(apart.error());
    }
  }
  const auto result = Compare(arguments.a, arguments.b, arguments.options);
  if (!result.ok()) return Refuse(result.error());
  const Status shown = ShowResult(CompareText(result.value()),
                                  CompareJson(result.value()).dump(2) + "\n", arguments.json);
  if (!shown.ok()) return Refuse(shown.error());
  return ExitCodeOf(result.value().verdict);
}

}  // namespace

void AddCompare(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<CompareArguments>();
  CLI::App* command = app.add_subcommand(
      "compare", "Compare two checkpoints bit for bit, of any format and however they are sharded");
  command
      ->add_option(
          "A", arguments->a,
          "What is expected: a directory or file of safetensors or torch.save,\na directory of DCP")
      ->required();
  command->add_option("B", arguments->b, "The other one: what is seen")->required();
  command->add_option(
      "--in-a", arguments->options.below_a,
      "Of A only what has names that begin so, without that beginning: --in-a model.");
  command->add_option("--in-b", arguments->options.below_b, "Of B likewise");
  command->add_option("--map", arguments->options.map_file,
                      "JSON that pairs A's names with B's: renamed, prefixed, split, fused or\n"
                      "transposed tensors (verify/compare/MAP.md)");
  command->add_option("--cast", arguments->options.cast,
                      "Equal after A is cast to this dtype: F64, F32, F16, BF16, F8_E4M3, F8_E5M2");
  command->add_option("--json", arguments->json, "File for the result as JSON; - is stdout");
  command->footer("Exit codes: 0 equal, 1 different, 2 bad input, 3 nothing was compared.");
  command->callback([arguments, exit_code] { *exit_code = RunCompare(*arguments); });
}

}  // namespace shardproof
