#include "verify/formats/training_folder.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <set>

#include "src/text/python_notation.h"
#include "verify/oracle/header.h"
#include "verify/oracle/json.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::JsonElement;
using oracle::Printable;
using oracle::Quote;
using simdjson::dom::element_type;

constexpr const char* kFolder = "training";
constexpr const char* kIndexName = "state.safetensors.index.json";
constexpr const char* kValuesName = "values.json";
constexpr uint64_t kValuesBytesMax = 64u << 20;
constexpr int kJsonDepthMax = 100;
constexpr size_t kBitsDigits = 16;

/// A value of values.json in Python's notation, as pickled ones are shown.
class ValueText {
 public:
  ValueText(const std::string& path, const std::string& field) : path_(path), field_(field) {}

  Result<std::string> Of(const JsonElement& value) {
    SP_TRY(Add(value, 0));
    return std::move(out_);
  }

 private:
  Status Add(const JsonElement& value, int depth) {
    if (depth > kJsonDepthMax) return Wrong(value);
    switch (value.type()) {
      case element_type::NULL_VALUE:
        out_ += "None";
        return Ok();
      case element_type::BOOL:
        out_ += value.get_bool().value_unsafe() ? "True" : "False";
        return Ok();
      case element_type::INT64:
        out_ += fmt::format("{}", value.get_int64().value_unsafe());
        return Ok();
      case element_type::UINT64:
        return Wrong(value);  // beyond 63 bits
      case element_type::DOUBLE:
        out_ += text::PythonFloat(value.get_double().value_unsafe());
        return Ok();
      case element_type::STRING:
        out_ += text::PythonText(value.get_string().value_unsafe());
        return Ok();
      case element_type::ARRAY:
        return AddItems("[", value.get_array().value_unsafe(), "]", depth);
      case element_type::OBJECT:
        return AddNamed(value, depth);
    }
    return Wrong(value);
  }

  Status Wrong(const JsonElement& found) const {
    return BadInput(fmt::format(
        "{}: {}: expected a value, a list, or an object that says that it is a tuple, dict or "
        "float, found {}",
        Printable(path_), field_, oracle::Describe(found)));
  }

  /// A tuple, a dict or the bits of a float.
  Status AddNamed(const JsonElement& value, int depth) {
    const simdjson::dom::object object = value.get_object().value_unsafe();
    if (object.size() != 1) return Wrong(value);
    const std::string_view kind = (*object.begin()).key;
    const JsonElement content = (*object.begin()).value;
    simdjson::dom::array items;
    std::string_view digits;
    if (kind == "float" && !content.get_string().get(digits)) {
      uint64_t bits = 0;
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
      const bool is_whole = error == std::errc() && end == digits.data() + digits.size();
      if (digits.size() != kBitsDigits || !is_whole) return Wrong(value);
      out_ += text::PythonFloat(std::bit_cast<double>(bits));
      return Ok();
    }
    if (content.get_array().get(items)) return Wrong(value);
    if (kind == "tuple") return AddItems("(", items, items.size() == 1 ? ",)" : ")", depth);
    if (kind != "dict") return Wrong(value);
    out_ += "{";
    bool is_first = true;
    for (const JsonElement pair : items) {
      simdjson::dom::array both;
      if (pair.get_array().get(both) || both.size() != 2) return Wrong(value);
      if (!is_first) out_ += ", ";
      is_first = false;
      SP_TRY(Add(both.at(0).value_unsafe(), depth + 1));
      out_ += ": ";
      SP_TRY(Add(both.at(1).value_unsafe(), depth + 1));
    }
    out_ += "}";
    return Ok();
  }

  Status AddItems(const char* open, const simdjson::dom::array& items, const char* close,
                  int depth) {
    out_ += open;
    bool is_first = true;
    for (const JsonElement item : items) {
      if (!is_first) out_ += ", ";
      is_first = false;
      SP_TRY(Add(item, depth + 1));
    }
    out_ += close;
    return Ok();
  }

  const std::string& path_;
  const std::string& field_;
  std::string out_;
};

Status AddValues(const std::string& path, StoredCheckpoint& checkpoint, Damage* damage) {
  auto text = oracle::ReadWholeFile(path, kValuesBytesMax);
  if (!text.ok()) return oracle::Note(text.error(), damage);
  checkpoint.files.push_back({std::string(kFolder) + "/" + kValuesName, path, text.value().size()});
  const auto read = [&]() -> Status {
    simdjson::dom::parser parser;
    SP_ASSIGN(const simdjson::dom::object root, oracle::ParseObject(parser, path, text.value()));
    SP_ASSIGN(const auto members, oracle::Members(path, root));
    const JsonElement* found = nullptr;
    for (const oracle::JsonMember& member : members) {
      if (member.key == "values") found = &member.value;
      if (member.key == "schema") SP_TRY(oracle::AsInteger(path, "schema", member.value, 1, 1));
    }
    simdjson::dom::object values;
    if (found == nullptr || found->get_object().get(values)) {
      return BadInput(fmt::format("{}: values: expected an object, found {}", Printable(path),
                                  found == nullptr ? "none" : oracle::Describe(*found)));
    }
    SP_ASSIGN(const auto entries, oracle::Members(path + ": values", values));
    for (const oracle::JsonMember& entry : entries) {
      const std::string field = "value " + Quote(entry.key);
      auto shown = ValueText(path, field).Of(entry.value);
      if (!shown.ok()) {
        SP_TRY(oracle::Note(shown.error(), damage));
        continue;
      }
      checkpoint.values.push_back({std::string(entry.key), std::move(shown).value()});
    }
    return Ok();
  };
  const Status status = read();
  return status.ok() ? status : oracle::Note(status.error(), damage);
}

}  // namespace

bool HoldsTrainingFolder(const std::string& directory) {
  const std::string folder = directory + "/" + kFolder + "/";
  return oracle::IsThere(folder + kIndexName) || oracle::IsThere(folder + kValuesName);
}

Status AddTrainingFolder(const std::string& directory, StoredCheckpoint& checkpoint,
                         Damage* damage) {
  const std::string folder = directory + "/" + kFolder;
  if (oracle::IndexOf(folder, kIndexName).empty()) {
    SP_TRY(oracle::Note(BadInput(fmt::format("{}/{}: expected an index, found none",
                                             Printable(folder), kIndexName)),
                        damage));
  }
  auto opened = OpenSafetensors(folder, damage, kIndexName);
  if (!opened.ok()) return oracle::Note(opened.error(), damage);
  StoredCheckpoint& state = opened.value();
  std::set<std::string> known;
  for (const StoredTensor& tensor : checkpoint.tensors) known.insert(tensor.name);
  const auto first_file = static_cast<uint32_t>(checkpoint.files.size());
  for (StoredTensor& tensor : state.tensors) {
    if (known.contains(tensor.name)) {
      SP_TRY(oracle::Note(BadInput(fmt::format("{}: tensor {}: the model has one of that name",
                                               Printable(folder), Quote(tensor.name))),
                          damage));
      continue;
    }
    for (Chunk& chunk : tensor.chunks) chunk.file += first_file;
    checkpoint.tensors.push_back(std::move(tensor));
  }
  for (StoredFile& file : state.files) {
    file.name = std::string(kFolder) + "/" + file.name;
    checkpoint.files.push_back(std::move(file));
  }
  SP_TRY(AddValues(folder + "/" + kValuesName, checkpoint, damage));
  return SortByName(directory, checkpoint);
}

}  // namespace shardproof::formats
