// A damaged source: one file of the checkpoint that is loaded is other than the format allows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "verify/fault/fault.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/faults/edit_where.h"
#include "verify/faults/shown_files.h"

namespace shardproof::faults::file_damage {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kAbsent = "model-absent.safetensors";

/// A safetensors file, taken apart.
struct Parts {
  Json header;
  std::string data;
};

/// \pre it is a sound file: the verifier's own reader has read it.
Parts PartsOf(const std::string& bytes) {
  uint64_t length = 0;
  for (int i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  return {Json::parse(bytes.substr(8, length)), bytes.substr(8 + length)};
}

std::string LengthText(uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(length >> 8 * i & 0xff);
  return text;
}

std::string Joined(const std::string& header, const std::string& data) {
  return LengthText(header.size()) + header + data;
}

/// A file whose entry of the tensor is as `change` makes it.
template <typename Change>
std::string WithEntry(const std::string& bytes, const std::string& tensor, const Change& change) {
  Parts parts = PartsOf(bytes);
  change(parts.header.at(tensor));
  return Joined(parts.header.dump(), parts.data);
}

uint64_t Elements(const oracle::TensorLocation& tensor) {
  uint64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= static_cast<uint64_t>(size);
  return elements;
}

/// What is done to a file, so that no reader may take it: by the format itself, whatever it reads.
struct Edit {
  const char* name;
  const char* in_words;  ///< after the file's name; {}: "tensor 'w'" or "it"
  /// Makes the damaged text of the sound one. `other`: a file that does not hold the tensor.
  std::string (*make)(std::string bytes, const oracle::TensorLocation& tensor, uint64_t n,
                      const std::string& other);
  bool of_index = false;
};

/// A tensor's place in the index.
std::string WithPlace(const std::string& text, const std::string& tensor, const std::string& file) {
  Json index = Json::parse(text);
  index.at("weight_map").at(tensor) = file;
  return index.dump();
}

constexpr Edit kEdits[] = {
    {"cut", "is cut short",
     [](std::string bytes, const oracle::TensorLocation&, uint64_t n, const std::string&) {
       bytes.resize(bytes.size() - 1 - n % bytes.size());
       return bytes;
     }},
    {"tail", "goes on behind its data",
     [](std::string bytes, const oracle::TensorLocation&, uint64_t n, const std::string&) {
       return bytes.append(1 + n % 8, '\0');
     }},
    {"length", "gives its header a wrong length",
     [](std::string bytes, const oracle::TensorLocation&, uint64_t n, const std::string&) {
       const Parts parts = PartsOf(bytes);
       const uint64_t left = bytes.size() - 8, length = left - parts.data.size();
       const uint64_t wrong[] = {length + 1,          length - 1, 0,         left + 1,
                                 left + (1ULL << 26), UINT64_MAX, 1ULL << 63};
       return LengthText(wrong[n % std::size(wrong)]) + bytes.substr(8);
     }},
    {"dtype", "gives {} a dtype of another width",
     [](std::string bytes, const oracle::TensorLocation& tensor, uint64_t, const std::string&) {
       const bool is_wide = tensor.byte_length == 8 * Elements(tensor);
       return WithEntry(bytes, tensor.name,
                        [&](Json& entry) { entry["dtype"] = is_wide ? "F32" : "F64"; });
     }},
    {"shape", "gives {} a shape of twice its elements",
     [](std::string bytes, const oracle::TensorLocation& tensor, uint64_t, const std::string&) {
       return WithEntry(bytes, tensor.name, [](Json& entry) { entry["shape"].push_back(2); });
     }},
    {"offset", "gives {} a wrong offset",
     [](std::string bytes, const oracle::TensorLocation& tensor, uint64_t n, const std::string&) {
       return WithEntry(bytes, tensor.name, [&](Json& entry) {
         Json& offset = entry["data_offsets"][n % 2];
         offset = offset.get<uint64_t>() + 1;
       });
     }},
    {"number", "gives {} an offset or a size that is none",
     [](std::string bytes, const oracle::TensorLocation& tensor, uint64_t n, const std::string&) {
       return WithEntry(bytes, tensor.name, [&](Json& entry) {
         static const Json kNone[] = {-1, 0.5, "0", nullptr, UINT64_MAX};
         Json& sizes = entry["shape"];
         const uint64_t place = n % (2 + sizes.size());
         (place < 2 ? entry["data_offsets"][place] : sizes[place - 2]) =
             kNone[n / 7 % std::size(kNone)];
       });
     }},
    {"twice", "has the entry of {} twice",
     [](std::string bytes, const oracle::TensorLocation& tensor, uint64_t, const std::string&) {
       const Parts parts = PartsOf(bytes);
       return Joined(
           fmt::format("{{{}:{},{}", Json(tensor.name).dump(), parts.header.at(tensor.name).dump(),
                       parts.header.dump().substr(1)),
           parts.data);
     }},
    {"gone", "has no entry of {}, whose bytes are there",
     [](std::string bytes, const oracle::TensorLocation& tensor, uint64_t, const std::string&) {
       Parts parts = PartsOf(bytes);
       parts.header.erase(tensor.name);
       return Joined(parts.header.dump(), parts.data);
     }},
    {"other-file", "says of {} that another file holds it",
     [](std::string bytes, const oracle::TensorLocation& tensor, uint64_t,
        const std::string& other) { return WithPlace(bytes, tensor.name, other); },
     true},
    {"absent-file", "says of {} that a file holds it which is not there",
     [](std::string bytes, const oracle::TensorLocation& tensor, uint64_t, const std::string&) {
       return WithPlace(bytes, tensor.name, kAbsent);
     },
     true},
};

/// Whether it is from an adapter's folder, which lies anywhere.
bool IsOfAdapter(const oracle::TensorLocation& tensor) { return tensor.file.starts_with('/'); }

/// Whether a file has it under this name: the adapter's copies of base layers go by others.
bool IsNamedSo(const oracle::TensorLocation& tensor) {
  return !IsOfAdapter(tensor) || tensor.name.starts_with("base_model.model.");
}

/// What WHERE means in a source.
struct Target {
  const Edit* edit = nullptr;
  uint64_t n = 0;
  oracle::TensorLocation tensor;
  std::string other;  ///< a file that does not hold it, if the edit needs one

  /// Its name in the source, or in the adapter that goes with it.
  std::string File() const {
    return edit->of_index        ? oracle::kModelIndexName
           : IsOfAdapter(tensor) ? std::filesystem::path(tensor.file).filename().string()
                                 : tensor.file;
  }
  std::string Path(const std::string& source) const {
    return IsOfAdapter(tensor) ? tensor.file : source + "/" + File();
  }
  std::string InWords() const {
    return File() + " " + fmt::format(fmt::runtime(edit->in_words), "tensor '" + tensor.name + "'");
  }
};

struct Place {
  const Edit* edit;
  uint64_t n;
};

Result<Place> Parse(const std::string& where) {
  std::vector<std::string> names;
  for (const Edit& edit : kEdits) names.emplace_back(edit.name);
  SP_ASSIGN(const EditAndNumber parsed, ParseEdit(where, names));
  const auto number = std::find(names.begin(), names.end(), parsed.edit) - names.begin();
  return Place{&kEdits[number], parsed.n};
}

Result<Target> TargetOf(const std::vector<oracle::TensorLocation>& source,
                        const std::string& where) {
  SP_ASSIGN(const Place parsed, Parse(where));
  std::vector<oracle::TensorLocation> with_bytes;
  std::set<std::string> files;
  for (const oracle::TensorLocation& tensor : source) {
    if (!IsOfAdapter(tensor)) files.insert(tensor.file);
    if (tensor.byte_length > 0 && IsNamedSo(tensor)) with_bytes.push_back(tensor);
  }
  if (with_bytes.empty()) return BadInput("the checkpoint has no tensor with a byte");
  Target target{parsed.edit, parsed.n, with_bytes[parsed.n % with_bytes.size()], ""};
  if (!target.tensor.file.ends_with(".safetensors")) {
    return BadInput(fmt::format("{}: expected a safetensors file", target.tensor.file));
  }
  if (!parsed.edit->of_index) return target;
  files.erase(target.tensor.file);
  if (IsOfAdapter(target.tensor)) return BadInput("an adapter has no index");
  if (target.tensor.file == "model.safetensors") return BadInput("the checkpoint has no index");
  target.other = files.empty() ? kAbsent : *files.begin();
  return target;
}

std::shared_ptr<FileSystem> Damage(const FaultSite& site, const Target& target) {
  const std::string path = target.Path(site.source_directory);
  return ShowOther(
      site.world.files,
      [path, target, log = site.log](const std::string& read,
                                     std::string_view bytes) -> std::optional<std::string> {
        if (read != path && std::filesystem::absolute(read) != path) return std::nullopt;
        log({.detail = target.InWords(), .file = target.File(), .tensors = {target.tensor.name}});
        return target.edit->make(std::string(bytes), target.tensor, target.n, target.other);
      });
}

const FaultRegistration kRegistration{{
    .id = "file/damage",
    .what =
        "a file of the checkpoint that is loaded, or of the adapter that goes with it, is damaged "
        "so that no reader may take it",
    .where = "EDIT:N: what is done (cut, tail, length, dtype, shape, offset, number, twice, "
             "gone; in an index other-file, absent-file), and to the N-th tensor that has bytes, "
             "or its file, in the order of their names, wrapping around: offset:3",
    .example = {"offset:3",
                "the file of the fourth tensor that has bytes, by their names, gives it a wrong "
                "offset"},
    .model = FaultModel::kMustRefuse,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>& source,
                const std::string& where) -> Status {
      SP_TRY(TargetOf(source, where));
      return CheckFormat(test_case, "safetensors");
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          site.world.files = Damage(site, TargetOf(site.source, where).value());
        },
    .in_words = [](const Case&, const std::string& where) -> std::string {
      const auto parsed = Parse(where);
      if (!parsed.ok()) return "";
      const Edit& edit = *parsed.value().edit;
      return fmt::format("{} of the {} tensor that has bytes, by their names, {}",
                         edit.of_index ? "the index" : "the file",
                         Ordinal(static_cast<int64_t>(parsed.value().n) + 1),
                         fmt::format(fmt::runtime(edit.in_words), "it"));
    },
    .on_any_device = true,
    .tried_at = {"cut:0",        "cut:40",   "cut:100000", "tail:0",       "tail:1",
                 "length:0",     "length:1", "length:2",   "length:3",     "length:4",
                 "length:5",     "length:6", "dtype:0",    "dtype:1",      "shape:2",
                 "offset:0",     "offset:1", "number:0",   "number:9",     "number:18",
                 "twice:0",      "gone:1",   "gone:2",     "other-file:0", "other-file:1",
                 "absent-file:2"},
}};

}  // namespace
}  // namespace shardproof::faults::file_damage
