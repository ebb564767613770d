// From the options of `shardproof verify` to the case that they describe.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "verify/bug/bug.h"
#include "verify/cli/verify_arguments.h"
#include "verify/launch/subject.h"

namespace shardproof {
namespace {

constexpr int64_t kStepsDefault = 4;

/// How many ranks torchrun or a shell started, or nothing if none.
std::optional<int64_t> StartedRanks() {
  const char* started = std::getenv("WORLD_SIZE");
  if (std::getenv("RANK") == nullptr || started == nullptr) return std::nullopt;
  return std::max<int64_t>(1, std::atoll(started));  // what is wrong with it, joining tells
}

/// The number of ranks: what was asked for, else those that were started, else 4.
Result<int64_t> WorldFrom(const std::optional<int64_t>& asked) {
  const std::optional<int64_t> started = StartedRanks();
  if (asked && started && *asked > *started) {
    return BadInput(fmt::format(
        "--world: expected at most the {} ranks that were started (WORLD_SIZE), found {}", *started,
        *asked));
  }
  return asked.value_or(started.value_or(4));
}

/// "dp_replicate=2,dp_shard=2"; or "2x2", which names the axes so. Sizes are checked with the Case.
Result<std::vector<AxisCase>> ParseMesh(const char* option, const std::string& text) {
  const auto complain = [&] {
    return BadInput(
        fmt::format("{} {}: expected AXIS=RANKS,... such as "
                    "dp_replicate=2,dp_shard=2, or 2x2 for the same, or 2x2x2 with a "
                    "third axis, tp",
                    option, text));
  };
  const bool named = text.find('=') != std::string::npos;
  const std::vector<std::string> plain_names = {"dp_replicate", "dp_shard", "tp"};
  const char separator = named ? ',' : 'x';
  if (text.empty() || text.back() == separator) return complain();
  std::vector<AxisCase> mesh;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, separator);) {
    AxisCase axis;
    const size_t equals = part.find('=');
    if (named != (equals != std::string::npos)) return complain();
    if (named) axis.name = part.substr(0, equals);
    const std::string size = named ? part.substr(equals + 1) : part;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), axis.size);
    if (error != std::errc() || end != size.data() + size.size()) return complain();
    mesh.push_back(std::move(axis));
  }
  if (!named) {
    if (mesh.size() > plain_names.size()) return complain();
    for (size_t i = 0; i < mesh.size(); ++i) mesh[i].name = plain_names[i];
    if (mesh.size() == 1) mesh[0].name = "dp_shard";
  }
  return mesh;
}

/// RANK:TARGET,TARGET,...; what is wrong with a target is told with the model at hand.
Result<LoraCase> ParseLora(const std::string& text) {
  LoraCase lora;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), lora.rank);
  if (error != std::errc() || end + 1 >= text.data() + text.size() || *end != ':') {
    return BadInput(
        fmt::format("--lora {}: expected RANK:TARGET,..., such as 8:q_proj,v_proj or "
                    "8:all-linear",
                    text));
  }
  std::istringstream targets(end + 1);
  for (std::string target; std::getline(targets, target, ',');) lora.targets.push_back(target);
  return lora;
}

Result<FaultCase> ParseInject(const std::string& text) {
  const size_t at = text.find('@');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    return BadInput(
        fmt::format("--inject {}: expected ID@WHERE, such as "
                    "file/flip@model.norm.weight:3; see 'shardproof list faults'",
                    text));
  }
  return FaultCase{text.substr(0, at), text.substr(at + 1)};
}

/// NAME=VALUE of what the subject declares.
Status AddOption(const std::string& text, std::map<std::string, std::string>& options) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return BadInput(fmt::format(
        "--option {}: expected NAME=VALUE with a name from the subject's OPTIONS", text));
  }
  options[text.substr(0, equals)] = text.substr(equals + 1);
  return Ok();
}

/// What the options say of the model besides where its checkpoint is.
Status SetModel(const VerifyArguments& arguments, ModelCase& model) {
  const bool any = !arguments.adapter.empty() || !arguments.lora.empty() || arguments.from_scratch;
  if (any && model.checkpoint.empty()) {
    return BadInput(
        "--adapter, --lora and --from-scratch need a model with a config.json: expected "
        "--checkpoint, or a case that names a checkpoint");
  }
  if (!arguments.adapter.empty()) {
    model.adapter = std::filesystem::absolute(arguments.adapter).string();
  }
  if (!arguments.lora.empty()) {
    SP_ASSIGN(model.lora, ParseLora(arguments.lora));
  }
  model.from_scratch = model.from_scratch || arguments.from_scratch;
  return Ok();
}

/// What is wrong with a field of the case, in the words of the option that set it.
Error ByOption(const VerifyArguments& arguments, Error error) {
  const std::tuple<std::string, std::string, bool> options[] = {
      {"/mesh", "--mesh", arguments.mesh.has_value()},
      {"/mesh", "--world", arguments.world.has_value()},
      {"/resume_mesh", "--resume-mesh", arguments.resume_mesh.has_value()},
      {"/resume_mesh", "--resume-world", arguments.resume_world.has_value()},
      {"/strategy", "--strategy", !arguments.strategy.empty()},
      {"/device", "--device", !arguments.device.empty()},
      {"/optimizer", "--optimizer", !arguments.optimizer.empty()},
      {"/subject", "--subject", !arguments.subject.empty()},
      {"/steps", "--steps", arguments.steps.has_value()},
      {"/bucket_bytes", "--bucket-bytes", arguments.bucket_bytes.has_value()},
      {"/deadline_ms", "--deadline", arguments.deadline_seconds.has_value()},
      {"/model/lora", "--lora", !arguments.lora.empty()},
      {"/model/missing", "--allow-missing", !arguments.allow_missing.empty()},
      {"/model/unexpected", "--allow-unexpected", !arguments.allow_unexpected.empty()}};
  const std::string where = error.message.substr(0, error.message.find(": "));
  for (const auto& [field, option, given] : options) {
    if (!given || (where != field && !where.starts_with(field + "/"))) continue;
    error.message.replace(0, where.size(), option);
    break;
  }
  return error;
}

}  // namespace

Result<Case> CaseFrom(const VerifyArguments& arguments) {
  Case test_case;
  if (!arguments.case_file.empty()) {
    SP_ASSIGN(test_case, ReadCaseFile(arguments.case_file));
  } else if (!arguments.checkpoint.empty()) {
    test_case.model.checkpoint = std::filesystem::absolute(arguments.checkpoint).string();
    test_case.why = "load, shard, save and restore " +
                    std::filesystem::path(test_case.model.checkpoint).filename().string();
  } else {
    SP_ASSIGN(const PlantedBug bug, FindBug(arguments.bug));
    SP_ASSIGN(test_case, ParseCaseText(bug.smallest_case));
  }
  SP_TRY(SetModel(arguments, test_case.model));
  if (test_case.mesh.empty() || arguments.world) {
    SP_ASSIGN(const int64_t world, WorldFrom(arguments.world));
    test_case.mesh = {{"dp_shard", world}};
  }
  if (arguments.mesh) {
    SP_ASSIGN(test_case.mesh, ParseMesh("--mesh", *arguments.mesh));
  }
  if (!arguments.checkpoint.empty() || arguments.world || arguments.resume_world) {
    // One rank fewer is another sharding that any launcher can still run; from one rank, go to two.
    const int64_t world = test_case.WorldSize();
    const int64_t other = world == 1 ? 2 : std::min(world - 1, kWorldMax);
    test_case.resume_mesh = {{"dp_shard", arguments.resume_world.value_or(other)}};
  }
  if (arguments.resume_mesh) {
    SP_ASSIGN(test_case.resume_mesh, ParseMesh("--resume-mesh", *arguments.resume_mesh));
  }
  if (!arguments.subject.empty() && arguments.subject != kReference) {
    test_case.subject = std::filesystem::absolute(arguments.subject).string();
  }
  // Two before the save and two after. A subject that does not train is not asked to.
  if (test_case.subject != kReference && test_case.steps == 0) test_case.steps = kStepsDefault;
  if (arguments.steps) test_case.steps = *arguments.steps;
  for (const std::string& text : arguments.options) SP_TRY(AddOption(text, test_case.options));
  if (!arguments.strategy.empty()) test_case.strategy = arguments.strategy;
  if (!arguments.transport.empty()) test_case.transport = arguments.transport;
  if (!arguments.device.empty()) test_case.device = arguments.device;
  if (!arguments.optimizer.empty()) test_case.optimizer = arguments.optimizer;
  if (!arguments.bug.empty()) test_case.bug = arguments.bug;
  if (arguments.seed) test_case.seed = *arguments.seed;
  if (arguments.bucket_bytes) test_case.bucket_bytes = *arguments.bucket_bytes;
  if (arguments.deadline_seconds) test_case.deadline_ms = *arguments.deadline_seconds * 1000;
  for (const std::string& name : arguments.allow_missing) test_case.model.missing.push_back(name);
  for (const std::string& name : arguments.allow_unexpected) {
    test_case.model.unexpected.push_back(name);
  }
  for (const std::string& text : arguments.inject) {
    SP_ASSIGN(FaultCase fault, ParseInject(text));
    test_case.faults.push_back(std::move(fault));
  }
  for (const std::string& where : arguments.kill) test_case.faults.push_back({"rank/kill", where});
  for (const std::string& where : arguments.stop) test_case.faults.push_back({"rank/stop", where});
  test_case.as_stated = test_case.as_stated || arguments.as_stated;
  // Through the codec, so that an option is checked as a case file is.
  const auto checked = ParseCase(CaseToJson(test_case));
  if (!checked.ok()) return ByOption(arguments, checked.error());
  return checked;
}

}  // namespace shardproof
