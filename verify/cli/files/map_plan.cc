// shardproof map-plan: for the Python package, which part of which tensor of a live model is which
// part of a checkpoint's, under a map. Of the tensors only names, dtypes and shapes are known.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "verify/cli/common/app.h"
#include "verify/cli/common/places.h"
#include "verify/cli/files/files.h"
#include "verify/maps/model_config.h"
#include "verify/maps/pairs.h"
#include "verify/oracle/json.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr const char* kInput = "standard input";

Result<simdjson::dom::array> ArrayIn(const std::string& field, const oracle::JsonElement& value) {
  simdjson::dom::array array;
  if (!value.get_array().get(array)) return array;
  return BadInput(fmt::format("{}: {}: expected an array", kInput, field));
}

/// [[name, dtype, shape], ...], sorted by name. A dtype that is not known here is left out.
Result<std::vector<formats::StoredTensor>> TensorsIn(const std::string& field,
                                                     const oracle::JsonElement& value) {
  std::vector<formats::StoredTensor> tensors;
  SP_ASSIGN(const simdjson::dom::array array, ArrayIn(field, value));
  for (const oracle::JsonElement each : array) {
    simdjson::dom::array entry;
    if (each.get_array().get(entry) || entry.size() != 3) {
      return BadInput(fmt::format("{}: {}: expected [name, dtype, shape]", kInput, field));
    }
    SP_ASSIGN(const std::string_view name, oracle::AsString(kInput, field, entry.at(0)));
    SP_ASSIGN(const std::string_view dtype, oracle::AsString(kInput, field, entry.at(1)));
    SP_ASSIGN(std::vector<int64_t> shape, oracle::AsSizes(kInput, field, entry.at(2)));
    if (oracle::FindDtype(std::string(dtype)) == nullptr) continue;
    formats::StoredTensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    tensors.push_back(std::move(tensor));
  }
  const auto by_name = [](const auto& x, const auto& y) { return x.name < y.name; };
  std::sort(tensors.begin(), tensors.end(), by_name);
  return tensors;
}

Result<std::vector<std::string>> WordsIn(const std::string& field,
                                         const oracle::JsonElement& value) {
  std::vector<std::string> words;
  SP_ASSIGN(const simdjson::dom::array array, ArrayIn(field, value));
  for (const oracle::JsonElement each : array) {
    SP_ASSIGN(const std::string_view word, oracle::AsString(kInput, field, each));
    words.emplace_back(word);
  }
  return words;
}

json StepsOf(const std::vector<maps::Step>& steps) {
  json all = json::array();
  for (const maps::Step& step : steps) {
    switch (step.kind) {
      case maps::Step::Kind::kReshape:
        all.push_back({"reshape", step.numbers});
        break;
      case maps::Step::Kind::kPermute:
        all.push_back({"permute", step.numbers});
        break;
      case maps::Step::Kind::kBits:
        all.push_back({"bits", step.dtype});
        break;
    }
  }
  return all;
}

/// [name, offsets, sizes], of a fill [null, its bytes, sizes].
json BoxOf(const maps::Box& box) {
  if (box.tensor == nullptr) {
    const std::vector<uint8_t> bytes(box.fill.begin(), box.fill.end());
    return {nullptr, bytes, box.sizes};
  }
  return {box.tensor->name, box.offsets, box.sizes};
}

/// Of the tensors that a view is made of, each once.
std::vector<std::string> NamesIn(const maps::View& view) {
  std::vector<std::string> names;
  maps::ForEachStored(view, [&](const maps::View& box) {
    if (names.empty() || names.back() != box.stored->name) names.push_back(box.stored->name);
  });
  return names;
}

json PlanOf(const maps::Applied& applied) {
  json pairs = json::array();
  json left = json::array();
  if (!applied.incomplete_a.empty()) {
    left.push_back({applied.incomplete_a, "the map joins it with tensors that are not there"});
  }
  json misfits = json::array();
  for (const maps::Held& held : applied.held) {
    if (held.a->shape != held.b->shape) {
      misfits.push_back({NamesIn(*held.a), NamesIn(*held.b), held.a->shape, held.b->shape});
      continue;
    }
    const auto found = maps::PairsOf(held);
    if (found.ok()) {
      for (const maps::Pair& pair : found.value()) {
        pairs.push_back({BoxOf(pair.a), BoxOf(pair.b), StepsOf(pair.steps), pair.again});
      }
      continue;
    }
    left.push_back({NamesIn(*held.a), found.error().message});
  }
  return {{"pairs", std::move(pairs)},
          {"left", std::move(left)},
          {"misfits", std::move(misfits)},
          {"only_in_a", applied.only_in_a},
          {"only_in_b", applied.only_in_b}};
}

Result<json> Planned(const std::string& text) {
  simdjson::dom::parser parser;
  SP_ASSIGN(const simdjson::dom::object object, oracle::ParseObject(parser, kInput, text));
  const auto member = [&](const char* key) -> Result<oracle::JsonElement> {
    oracle::JsonElement value;
    if (!object.at_key(key).get(value)) return value;
    return BadInput(fmt::format("{}: expected a member {:?}", kInput, key));
  };
  SP_ASSIGN(const oracle::JsonElement map, member("map"));
  SP_ASSIGN(const oracle::JsonElement a, member("a"));
  SP_ASSIGN(const oracle::JsonElement b, member("b"));
  SP_ASSIGN(const oracle::JsonElement config, member("config"));
  SP_ASSIGN(std::vector<std::string> words, WordsIn("map", map));
  SP_ASSIGN(const std::vector<std::string> configs, WordsIn("config", config));
  SP_ASSIGN(const auto tensors_a, TensorsIn("a", a));
  SP_ASSIGN(const auto tensors_b, TensorsIn("b", b));
  FindReadyMaps(words);
  SP_ASSIGN(const maps::Map rules, maps::ReadMaps(words));
  const maps::Side side_a{"the checkpoint", tensors_a};
  const maps::Side side_b{"the model", tensors_b};
  SP_ASSIGN(const maps::Applied applied,
            maps::Apply(rules, side_a, side_b, maps::ConfigOf(configs)));
  return PlanOf(applied);
}

int RunMapPlan() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const auto plan = Planned(text);
  if (!plan.ok()) return Refuse(plan.error());
  std::cout << plan.value().dump() << "\n" << std::flush;
  return 0;
}

}  // namespace

void AddMapPlan(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "map-plan", "What a map says of a live model: for the Python package, JSON in and out");
  command->group("");  // nobody calls it by hand
  command->callback([exit_code] { *exit_code = RunMapPlan(); });
}

}  // namespace shardproof
