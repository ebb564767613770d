// A damaged config.json, of the model or of its adapter: what is read describes no model.
#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "verify/fault/fault.h"
#include "verify/faults/shown_files.h"
#include "verify/oracle/declare.h"
#include "verify/oracle/input_file.h"

namespace shardproof::faults::file_damage_config {
namespace {

using Json = nlohmann::ordered_json;
using Pointer = Json::json_pointer;

constexpr const char* kName = "config.json";
constexpr const char* kAdapterName = "adapter_config.json";
constexpr uint64_t kConfigBytesMax = 1u << 24;

/// Whatever a field may hold by mistake.
const std::vector<Json>& Values() {
  static const std::vector<Json> values = {0,
                                           -1,
                                           1,
                                           3,
                                           7,
                                           1.5,
                                           1e300,
                                           1 << 20,
                                           INT64_MAX,
                                           UINT64_MAX,
                                           true,
                                           false,
                                           "x",
                                           "1",
                                           "",
                                           Json::array(),
                                           Json::array({0}),
                                           Json::array({-1}),
                                           Json::array({"x"}),
                                           Json::array({1, 2, 3}),
                                           Json::object(),
                                           Json::object({{"x", 1}}),
                                           nullptr};
  return values;
}

/// Every field, those in other fields too.
void AddFields(const Json& value, const Pointer& at, std::vector<Pointer>& fields) {
  if (!value.is_object()) return;
  for (const auto& [name, member] : value.items()) {
    fields.push_back(at / name);
    AddFields(member, at / name, fields);
  }
}

/// What may be wrong with a field by what it is.
struct Change {
  const char* in_words;
  void (*make)(Json& whole, const Pointer& field);
};

const Change kChanges[] = {
    {"lacks",
     [](Json& whole, const Pointer& field) { whole[field.parent_pointer()].erase(field.back()); }},
    {"has what no config has beside",
     [](Json& whole, const Pointer& field) { whole[field.parent_pointer()]["no_such_field"] = 1; }},
    {"has one more for",
     [](Json& whole, const Pointer& field) {
       Json& value = whole[field];
       if (value.is_number_integer()) value = value.get<int64_t>() + 1;
       if (value.is_array()) value.push_back(value.empty() ? Json("x") : Json(value.back()));
       if (value.is_string()) value = value.get<std::string>() + "x";
     }},
    {"has one less for",
     [](Json& whole, const Pointer& field) {
       Json& value = whole[field];
       if (value.is_number_integer()) value = value.get<int64_t>() - 1;
       if (value.is_array() && !value.empty()) value.erase(value.size() - 1);
       if (value.is_string()) value.get_ref<std::string&>().erase(0, 1);
     }},
    {"has half of the number for",
     [](Json& whole, const Pointer& field) {
       Json& value = whole[field];
       if (value.is_number()) value = value.get<double>() / 2;
     }},
};

/// Ways to damage a text, beside what can be done to each of its fields.
constexpr uint64_t kOfText = 3;

struct Damaged {
  std::string text;
  std::string what;  ///< in words, of the file
  std::string path = {};
  std::string name = {};
};

Damaged DamagedText(std::string text, uint64_t way, uint64_t n) {
  if (way == 0) return {text.substr(0, n % text.size()), "is cut short"};
  if (way == 1) return {text + "}", "goes on behind its end"};
  const Json whole = Json::parse(text);
  const auto first = whole.begin();
  text.insert(text.find('{') + 1,
              fmt::format("{}: {},", Json(first.key()).dump(), first.value().dump()));
  return {text, fmt::format("has the field {} twice", first.key())};
}

/// The n-th of all ways to damage the text, wrapping around.
Damaged DamagedBy(const std::string& text, uint64_t n) {
  Json whole = Json::parse(text);
  std::vector<Pointer> fields;
  AddFields(whole, Pointer(), fields);
  const uint64_t of_field = Values().size() + std::size(kChanges);
  const uint64_t ways = fields.size() * of_field + kOfText;
  const uint64_t way = n % ways;
  if (way < kOfText) return DamagedText(text, way, n / ways + 1);
  const Pointer& field = fields[(way - kOfText) % fields.size()];
  const uint64_t number = (way - kOfText) / fields.size();
  if (number >= Values().size()) {
    const Change& change = kChanges[number - Values().size()];
    change.make(whole, field);
    return {whole.dump(), fmt::format("{} {}", change.in_words, field.to_string())};
  }
  const Json& value = Values()[number];
  whole[field] = value;
  return {whole.dump(), fmt::format("has {} for {}", value.dump(), field.to_string())};
}

/// What the oracle makes of a case whose adapter has this text for a config.
bool DescribesModel(Case test_case, const std::string& text, const std::string& adapter) {
  std::ofstream(adapter + "/" + kAdapterName) << text;
  test_case.model.adapter = adapter;
  return oracle::DeclareModel(test_case).ok();
}

/// The first from the n-th on that describes no model, as `describes` has it: most values are ones
/// that some field may have.
template <typename Describes>
Result<Damaged> FirstOf(const std::string& path, uint64_t n, const Describes& describes) {
  constexpr uint64_t kTriesMax = 1000;
  SP_ASSIGN(const std::string text, oracle::ReadWholeFile(path, kConfigBytesMax));
  if (!Json::parse(text, nullptr, false).is_object()) {
    return BadInput(path + ": expected an object, found none");
  }
  for (uint64_t i = 0; i < kTriesMax; ++i) {
    Damaged damaged = DamagedBy(text, n + i);
    if (describes(damaged.text)) continue;
    damaged.path = path;
    damaged.name = std::filesystem::path(path).filename().string();
    return damaged;
  }
  return BadInput(path + ": nothing that was tried makes it a config of no model");
}

/// Of a case with an adapter every second one is of its config.
Result<Damaged> FirstRefused(const Case& test_case, const std::string& where) {
  namespace fs = std::filesystem;
  SP_ASSIGN(const int64_t number, ParseIndex(where, int64_t{1} << 48, "the number"));
  const ModelCase& model = test_case.model;
  if (model.checkpoint.empty()) return BadInput("expected a model of a config.json");
  auto n = static_cast<uint64_t>(number);
  const bool is_of_adapter = !model.adapter.empty() && n % 2 == 1;
  if (!model.adapter.empty()) n /= 2;
  if (!is_of_adapter) {
    const std::string path = model.checkpoint + "/" + kName;
    return FirstOf(path, n, [&](const std::string& text) {
      return oracle::DeclareConfig(test_case, text, path).ok();
    });
  }
  std::string made = (fs::temp_directory_path() / "shardproof-adapter-XXXXXX").string();
  if (::mkdtemp(made.data()) == nullptr) return BadInput(made + ": cannot be made");
  auto found = FirstOf(model.adapter + "/" + kAdapterName, n, [&](const std::string& text) {
    return DescribesModel(test_case, text, made);
  });
  std::error_code error;
  fs::remove_all(made, error);
  return found;
}

const FaultRegistration kRegistration{{
    .id = "file/damage-config",
    .what = "config.json, or that of the adapter, has a field that no model has, or is no JSON",
    .where = "N: the N-th thing that can be done to it, or the first one after it of which no "
             "model comes (with an adapter, odd numbers are of its config): 3",
    .example = {"3",
                "config.json, or that of the adapter, has a field that no model has, or is no JSON "
                "(3)"},
    .model = FaultModel::kMustRefuse,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>&,
                const std::string& where) -> Status {
      SP_TRY(FirstRefused(test_case, where));
      return Ok();
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          const auto damaged = FirstRefused(site.test_case, where).value();
          const std::string target = damaged.name == kName
                                         ? site.source_directory + "/" + kName
                                         : std::filesystem::absolute(damaged.path).string();
          const auto shown = [damaged, target, log = site.log](
                                 const std::string& path,
                                 std::string_view) -> std::optional<std::string> {
            if (path != target && std::filesystem::absolute(path) != target) return std::nullopt;
            log({.detail = fmt::format("{} {}", damaged.name, damaged.what), .file = damaged.name});
            return damaged.text;
          };
          site.world.files = ShowOther(site.world.files, shown);
        },
    .on_any_device = true,
    .tried_at = {"0", "1", "2", "3", "40", "80", "120", "160"},
}};

}  // namespace
}  // namespace shardproof::faults::file_damage_config
