// From the options of `shardproof verify` to the case that they describe.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "verify/bug/bug.h"
#include "verify/case/case_json.h"
#include "verify/case/fields.h"
#include "verify/cli/common/factory.h"
#include "verify/cli/verify_arguments.h"
#include "verify/launch/started_ranks.h"
#include "verify/launch/subject.h"

namespace shardproof {
namespace {

constexpr int64_t kStepsDefault = 4;
constexpr double kDeadlineMin = 0.001;  // seconds
constexpr double kDeadlineMax = 24 * 60 * 60;

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

/// "2", or "2@dp_shard+cp" of an axis that is laid over others. \returns whether it is that.
bool ParseAxis(const std::string& text, AxisCase& axis) {
  const size_t at = text.find('@');
  const std::string size = text.substr(0, at);
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), axis.size);
  if (error != std::errc() || end != size.data() + size.size()) return false;
  if (at == std::string::npos) return true;
  if (text.back() == '@' || text.back() == '+') return false;
  std::istringstream names(text.substr(at + 1));
  for (std::string name; std::getline(names, name, '+');) axis.over.push_back(name);
  return std::find(axis.over.begin(), axis.over.end(), "") == axis.over.end();
}

/// "dp_replicate=2,dp_shard=2"; or "2x2", which names the axes so. What is said is checked with the
/// Case.
Result<std::vector<AxisCase>> ParseMesh(const char* option, const std::string& text) {
  const auto complain = [&] {
    return BadInput(
        fmt::format("{} {}: expected AXIS=RANKS,... such as "
                    "dp_replicate=2,dp_shard=2, or 2x2 for the same, or 2x2x2 with a "
                    "third axis, tp; AXIS=RANKS@AXIS+... is laid over other axes",
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
    if (!ParseAxis(named ? part.substr(equals + 1) : part, axis)) return complain();
    if (!named && !axis.over.empty()) return complain();
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

using Texts = std::vector<std::string>;

Status SetSubject(const Texts& texts, Case& test_case) {
  const std::string& text = texts.back();
  const bool is_reference = text == kReference;
  test_case.subject = is_reference ? text : std::filesystem::absolute(text).string();
  return Ok();
}

Status SetCheckpoint(const Texts& texts, Case& test_case) {
  test_case.model.checkpoint = std::filesystem::absolute(texts.back()).string();
  test_case.why = "load, shard, save and restore " +
                  std::filesystem::path(test_case.model.checkpoint).filename().string();
  return Ok();
}

/// What is wrong with the function itself, the twin tells.
Status SetFactory(const Texts& texts, Case& test_case) {
  if (const std::string wrong = IsFactory(texts.back()); !wrong.empty()) {
    return BadInput("--model: " + wrong);
  }
  test_case.model.factory = AbsoluteFactory(texts.back());
  return Ok();
}

Status SetAdapter(const Texts& texts, Case& test_case) {
  test_case.model.adapter = std::filesystem::absolute(texts.back()).string();
  return Ok();
}

Status SetLora(const Texts& texts, Case& test_case) {
  SP_ASSIGN(test_case.model.lora, ParseLora(texts.back()));
  return Ok();
}

Status SetMesh(const Texts& texts, Case& test_case) {
  SP_ASSIGN(test_case.mesh, ParseMesh("--mesh", texts.back()));
  return Ok();
}

Status SetResumeMesh(const Texts& texts, Case& test_case) {
  SP_ASSIGN(test_case.resume_mesh, ParseMesh("--resume-mesh", texts.back()));
  return Ok();
}

/// NAME=VALUE of what the subject declares.
Status SetOptions(const Texts& texts, Case& test_case) {
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return BadInput(fmt::format(
          "--option {}: expected NAME=VALUE with a name from the subject's OPTIONS", text));
    }
    test_case.options[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return Ok();
}

Status SetFaults(const Texts& texts, Case& test_case) {
  for (const std::string& text : texts) {
    SP_ASSIGN(FaultCase fault, ParseInject(text));
    test_case.faults.push_back(std::move(fault));
  }
  return Ok();
}

Status SetDeadline(const Texts& texts, Case& test_case) {
  const std::string& text = texts.back();
  double seconds = 0;
  if (!CLI::detail::lexical_cast(text, seconds) ||
      !(seconds >= kDeadlineMin && seconds <= kDeadlineMax)) {
    return BadInput(fmt::format("--deadline: expected seconds from {} to {}, found {}",
                                kDeadlineMin, kDeadlineMax, text));
  }
  test_case.deadline_ms = static_cast<uint64_t>(seconds * 1000);
  return Ok();
}

/// For each row whose option is read by hand, by the path of the field.
const std::map<std::string, Status (*)(const Texts&, Case&)>& SetByHand() {
  static const std::map<std::string, Status (*)(const Texts&, Case&)> functions = {
      {"subject", SetSubject},        {"model/checkpoint", SetCheckpoint},
      {"model/factory", SetFactory},  {"model/adapter", SetAdapter},
      {"model/lora", SetLora},        {"mesh", SetMesh},
      {"resume_mesh", SetResumeMesh}, {"options", SetOptions},
      {"faults", SetFaults},          {"deadline_ms", SetDeadline}};
  return functions;
}

/// The option has checked the text.
template <typename Integer>
void SetInteger(const std::string& text, Integer& value) {
  std::from_chars(text.data(), text.data() + text.size(), value);
}

/// A field whose option says what it holds as it is; a list becomes longer.
void SetAsGiven(const Texts& texts, const FieldOfCase& field) {
  if (auto* const* flag = std::get_if<bool*>(&field.value)) **flag = true;
  if (auto* const* text = std::get_if<std::string*>(&field.value)) **text = texts.back();
  if (auto* const* number = std::get_if<int64_t*>(&field.value)) {
    SetInteger(texts.back(), **number);
  }
  if (auto* const* number = std::get_if<uint64_t*>(&field.value)) {
    SetInteger(texts.back(), **number);
  }
  if (auto* const* names = std::get_if<std::vector<std::string>*>(&field.value)) {
    (*names)->insert((*names)->end(), texts.begin(), texts.end());
  }
}

/// "axis tp: " where a pointer is to the size of one, which its index alone would not tell.
std::string AxisAt(const std::string& pointer, const Case& test_case) {
  for (const auto& [field, mesh] :
       {std::pair("/mesh/", &test_case.mesh), {"/resume_mesh/", &test_case.resume_mesh}}) {
    for (size_t i = 0; i < mesh->size(); ++i) {
      if (pointer == fmt::format("{}{}/size", field, i)) return "axis " + (*mesh)[i].name + ": ";
    }
  }
  return "";
}

/// What is wrong with a field of the case, in the words of the option that set it.
Error ByOption(const VerifyArguments& arguments, const Case& test_case,
               const Complaint& complaint) {
  const auto is_of = [&, &where = complaint.pointer()](const std::string& field) {
    return where == field || where.starts_with(field + "/");
  };
  std::string option;
  if (arguments.world && is_of("/mesh")) option = "--world";
  if (arguments.resume_world && is_of("/resume_mesh")) option = "--resume-world";
  Case plain;
  for (const FieldOfCase& field : FieldsOf(plain)) {
    if (arguments.IsGiven(field.path) && is_of("/" + field.path)) option = field.row->option.name;
  }
  const std::string axis = AxisAt(complaint.pointer(), test_case);
  return BadInput(option.empty() ? complaint.text() : option + ": " + axis + complaint.what());
}

/// What the case is before options change it: a case file, that of a bug, or nothing yet.
Result<Case> BaseOf(const VerifyArguments& arguments) {
  if (!arguments.case_file.empty()) return ReadCaseFile(arguments.case_file);
  if (arguments.IsGiven("model/checkpoint")) return Case();
  if (IsDrawn(arguments)) return ParseCaseText(kEveryKindOfTensor);
  SP_ASSIGN(const PlantedBug bug, FindBug(arguments.fields.at("bug").back()));
  return ParseCaseText(bug.smallest_case);
}

/// Ranks and steps that follow from other options where none says them.
Status SetWhatFollows(const VerifyArguments& arguments, Case& test_case) {
  if (!arguments.IsGiven("mesh") && (test_case.mesh.empty() || arguments.world)) {
    SP_ASSIGN(const int64_t world, WorldFrom(arguments.world));
    test_case.mesh = {{"dp_shard", world}};
  }
  const bool restores =
      arguments.IsGiven("model/checkpoint") || arguments.world || arguments.resume_world;
  if (!arguments.IsGiven("resume_mesh") && restores) {
    // One rank fewer is another sharding that any launcher can still run; from one rank, go to two.
    const int64_t world = test_case.WorldSize();
    const int64_t other = world == 1 ? 2 : std::min(world - 1, kRanksMax);
    test_case.resume_mesh = {{"dp_shard", arguments.resume_world.value_or(other)}};
  }
  // Two before the save and two after. A subject that does not train is not asked to, and values of
  // every magnitude are none to train on.
  const bool is_subject = test_case.subject != kReference && !IsDrawn(arguments);
  if (!arguments.IsGiven("steps") && is_subject && test_case.steps == 0) {
    test_case.steps = kStepsDefault;
  }
  return Ok();
}

}  // namespace

bool IsDrawn(const VerifyArguments& arguments) {
  return arguments.IsGiven("subject") && arguments.fields.at("subject").back() != kReference &&
         arguments.case_file.empty() && !arguments.IsGiven("model/checkpoint") &&
         !arguments.IsGiven("model/factory") && !arguments.IsGiven("bug");
}

bool VerifyArguments::IsGiven(const std::string& field) const {
  const auto texts = fields.find(field);
  return texts != fields.end() && !texts->second.empty();
}

Status SetGivenFields(const VerifyArguments& arguments, Case& test_case) {
  for (const FieldOfCase& field : FieldsOf(test_case)) {
    if (!arguments.IsGiven(field.path)) continue;
    const Texts& texts = arguments.fields.at(field.path);
    if (!field.row->option.by_hand) {
      SetAsGiven(texts, field);
      continue;
    }
    SP_TRY(SetByHand().at(field.path)(texts, test_case));
  }
  return Ok();
}

Result<Case> CaseFrom(const VerifyArguments& arguments) {
  SP_ASSIGN(Case test_case, BaseOf(arguments));
  const bool of_config = arguments.IsGiven("model/adapter") || arguments.IsGiven("model/lora") ||
                         arguments.IsGiven("model/from_scratch");
  const bool has_config =
      !test_case.model.checkpoint.empty() || arguments.IsGiven("model/checkpoint");
  if (of_config && !has_config) {
    return BadInput(
        "--adapter, --lora and --from-scratch need a model with a config.json: expected "
        "--checkpoint, or a case that names a checkpoint");
  }
  SP_TRY(SetGivenFields(arguments, test_case));
  SP_TRY(SetWhatFollows(arguments, test_case));
  for (const std::string& where : arguments.kill) test_case.faults.push_back({"rank/kill", where});
  for (const std::string& where : arguments.stop) test_case.faults.push_back({"rank/stop", where});
  // Through the codec, so that an option is checked as a case file is.
  Complaint complaint;
  SP_ASSIGN(Case checked, ParseCase(CaseToJson(test_case), complaint));
  if (!complaint.ok()) return ByOption(arguments, test_case, complaint);
  return checked;
}

}  // namespace shardproof
