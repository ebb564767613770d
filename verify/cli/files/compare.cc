// shardproof compare: are two checkpoints the same, to the bit?
#include "verify/compare/compare.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "verify/cli/common/app.h"
#include "verify/cli/common/gating.h"
#include "verify/cli/common/places.h"
#include "verify/cli/files/files.h"
#include "verify/cli/files/outcomes.h"
#include "verify/formats/archive.h"
#include "verify/process/outputs.h"
#include "verify/verdict/run_result.h"

namespace shardproof {
namespace {

struct CompareArguments {
  std::string a;
  std::string b;
  std::string json;
  CompareOptions options;
  bool sealed = false;
  gate::Options gate;
};

int RunCompare(CompareArguments& arguments) {
  FindReadyMaps(arguments.options.maps);
  std::vector<std::string> inputs = arguments.options.maps;
  inputs.insert(inputs.end(), {arguments.a, arguments.b, arguments.options.adapter});
  for (const std::string& input : inputs) {
    if (const Status apart = CheckNotOf(arguments.json, input, "--json"); !apart.ok()) {
      return Refuse(apart.error());
    }
  }
  const auto gate = OpenGate(arguments.gate, {arguments.a, arguments.b}, arguments.json);
  if (!gate.ok()) return Refuse(gate.error());
  const auto result = arguments.sealed ? CompareSeals(arguments.a, arguments.b, arguments.options)
                                       : Compare(arguments.a, arguments.b, arguments.options);
  if (!result.ok()) return Refuse(result.error());
  if (const Status same = formats::CheckUrls(); !same.ok()) return Refuse(same.error());
  const auto code =
      Conclude(gate.value(), OutcomeOfCompare(result.value()), CompareText(result.value()),
               CompareJson(result.value()), arguments.json);
  return code.ok() ? code.value() : Refuse(code.error());
}

}  // namespace

void AddCompare(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<CompareArguments>();
  CLI::App* command = AddFileCommand(app, "compare");
  command
      ->add_option(
          "A", arguments->a,
          "The expected checkpoint: a directory or file of safetensors or torch.save, or a DCP "
          "directory")
      ->required();
  command->add_option("B", arguments->b, "The checkpoint to compare with it")->required();
  command
      ->add_option("--in-a", arguments->options.below_a,
                   "Compare only tensors of A whose names start with PREFIX, with PREFIX removed "
                   "(e.g. --in-a model.)")
      ->type_name("PREFIX");
  command->add_option("--in-b", arguments->options.below_b, "The same for B")->type_name("PREFIX");
  auto* map =
      command
          ->add_option(
              "--map", arguments->options.maps,
              "How tensors of A become those of B, if they were renamed, fused, stacked, padded, "
              "scaled ...: a file of rules, a ready map such as transformers-megatron, or one rule "
              "such as 'old.{l}.w -> new.{l}.w'; may be given again (verify/maps/README.md)")
          ->type_name("FILE|RULE")
          ->check(NotEmpty)
          ->allow_extra_args(false);
  auto* adapter =
      command
          ->add_option(
              "--adapter", arguments->options.adapter,
              "Merge this LoRA adapter (a directory of PEFT's files) into A before comparing")
          ->check(NotEmpty)
          ->type_name("DIR");
  auto* cast =
      command
          ->add_option(
              "--cast", arguments->options.cast,
              "Cast A to this dtype before comparing: F64, F32, F16, BF16, F8_E4M3 or F8_E5M2")
          ->type_name("DTYPE");
  auto* dequantised =
      command
          ->add_flag(
              "--dequantised", arguments->options.dequantised,
              "Compare quantised weights by the numbers that they stand for: two dialects of "
              "one model, or one with its source, within the bound that the formats imply")
          ->excludes(cast);
  command
      ->add_option("--json", arguments->json, "Write the result as JSON to this file; - is stdout")
      ->type_name("FILE");
  command
      ->add_flag("--sealed", arguments->sealed,
                 "Compare the seals of A and B and read no values; A or B may be a seal itself. "
                 "Changes after sealing are not seen; audit finds them")
      ->excludes(map)
      ->excludes(dequantised)
      ->excludes(adapter)
      ->excludes(cast);
  AddGateOptions(*command, arguments->gate);
  command->footer(
      "Examples:\n"
      "  shardproof compare before/ after/\n"
      "  shardproof compare hf/ step_1000.pt --in-b model. --cast BF16\n"
      "  shardproof compare a/ b/ --map 'stack(experts.{e}.up.weight) -> experts.up'\n"
      "Exit codes: 0 equal, 1 different, 2 bad input, 3 nothing was compared.");
  command->callback([arguments, exit_code] { *exit_code = RunCompare(*arguments); });
}

}  // namespace shardproof
