#include "src/format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "src/aten/dtype.h"
#include "src/core/strict_json.h"
#include "src/format/file_names.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit
constexpr uint64_t kIndexBytesMax = 1u << 30;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

/// Bytes of a tensor, or nothing if shape and dtype overflow 64 bits.
std::optional<uint64_t> ByteLength(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  uint64_t bytes = c10::elementSize(dtype);
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return std::nullopt;
  }
  if (bytes > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return bytes;
}

bool IsCount(const json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
}

Result<SourceTensor> ParseTensor(const json& entry, const std::string& where, uint64_t data_bytes) {
  const bool complete = entry.is_object() && entry.contains("dtype") && entry.contains("shape") &&
                        entry.contains("data_offsets");  // more is for readers that know it
  if (!complete || !entry["dtype"].is_string() || !entry["shape"].is_array() ||
      !entry["data_offsets"].is_array()) {
    return BadInput(where + ": expected an object of dtype, shape and data_offsets");
  }
  SourceTensor tensor;
  const auto dtype = DtypeFromName(entry["dtype"].get<std::string>());
  if (!dtype) {
    return BadInput(fmt::format("{}: dtype {} is unknown: known are {}", where,
                                ShownText(entry["dtype"].get<std::string>()), KnownDtypes()));
  }
  tensor.dtype = *dtype;
  for (const json& size : entry["shape"]) {
    if (!IsCount(size)) {
      return BadInput(
          fmt::format("{}: shape {} holds what is no size", where, Shown(entry["shape"])));
    }
    tensor.shape.push_back(size.get<int64_t>());
  }
  const json& offsets = entry["data_offsets"];
  if (offsets.size() != 2 || !IsCount(offsets[0]) || !IsCount(offsets[1])) {
    return BadInput(
        fmt::format("{}: data_offsets {} are not two byte offsets", where, Shown(offsets)));
  }
  const auto begin = offsets[0].get<uint64_t>();
  const auto end = offsets[1].get<uint64_t>();
  if (begin > end || end > data_bytes) {
    return BadInput(
        fmt::format("{}: data_offsets [{}, {}] lie outside the {} data bytes of the "
                    "file",
                    where, begin, end, data_bytes));
  }
  const auto expected = ByteLength(tensor.shape, tensor.dtype);
  if (!expected || *expected != end - begin) {
    return BadInput(fmt::format("{}: {} of shape {} takes {} bytes, but data_offsets span {}",
                                where, DtypeName(tensor.dtype), Shown(entry["shape"]),
                                expected ? std::to_string(*expected) : "more than 2^63",
                                end - begin));
  }
  tensor.offset = begin;
  tensor.length = end - begin;
  return tensor;
}

/// The data bytes must be used exactly once, or a tensor silently shares or loses bytes.
Status CheckCover(const std::map<std::string, SourceTensor>& tensors, const std::string& path,
                  uint64_t data_bytes) {
  std::vector<std::pair<const std::string*, const SourceTensor*>> order;
  for (const auto& [name, tensor] : tensors) order.emplace_back(&name, &tensor);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->offset, a.second->length) <
           std::pair(b.second->offset, b.second->length);
  });
  uint64_t reached = 0;
  for (const auto& [name, tensor] : order) {
    if (tensor->offset != reached) {
      return BadInput(
          fmt::format("{}: tensor {} begins at data byte {}, where {} was expected: "
                      "tensors {}",
                      path, ShownText(*name), tensor->offset, reached,
                      tensor->offset < reached ? "overlap" : "leave a gap"));
    }
    reached += tensor->length;
  }
  if (reached != data_bytes) {
    return BadInput(
        fmt::format("{}: {} data bytes belong to no tensor", path, data_bytes - reached));
  }
  return Ok();
}

Status CheckMetadata(const json& metadata, const std::string& path) {
  bool sound = metadata.is_object();
  for (const auto& item : metadata.items()) sound = sound && item.value().is_string();
  if (!sound) return BadInput(path + ": __metadata__ is not an object of strings");
  return Ok();
}

/// The tensors of one file, offsets absolute.
Result<std::map<std::string, SourceTensor>> ParseFile(const MappedFile& file,
                                                      const std::string& path) {
  if (file.size() < 8) {
    return BadInput(
        fmt::format("{}: {} bytes, too short for the 8-byte header length", path, file.size()));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), 8);
  if (header_bytes > kHeaderBytesMax || header_bytes > file.size() - 8) {
    return BadInput(
        fmt::format("{}: header length {} does not fit: the file has {} bytes after it "
                    "and the format allows {}",
                    path, header_bytes, file.size() - 8, kHeaderBytesMax));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  if (!text.starts_with('{')) {
    return BadInput(fmt::format("{}: header: begins with no '{{', as the format asks", path));
  }
  SP_ASSIGN(const json header, ParseStrictObject(text, path + ": header"));
  const uint64_t data_start = 8 + header_bytes;
  const uint64_t data_bytes = file.size() - data_start;
  std::map<std::string, SourceTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      SP_TRY(CheckMetadata(entry, path));
      continue;
    }
    SP_ASSIGN(tensors[name],
              ParseTensor(entry, fmt::format("{}: tensor {}", path, ShownText(name)), data_bytes));
  }
  SP_TRY(CheckCover(tensors, path, data_bytes));
  for (auto& [name, tensor] : tensors) tensor.offset += data_start;
  return tensors;
}

}  // namespace

Status AddFile(FileSystem& files, const std::string& directory, const std::string& name,
               Source& source) {
  const std::string path = directory + "/" + name;
  SP_ASSIGN(auto mapping, files.Map(path));
  SP_ASSIGN(auto tensors, ParseFile(*mapping, path));
  const auto index = static_cast<int64_t>(source.files.size());
  source.files.push_back(std::move(mapping));
  source.paths.push_back(path);
  for (auto& [tensor_name, tensor] : tensors) {
    tensor.file = index;
    if (!source.tensors.emplace(tensor_name, std::move(tensor)).second) {
      return BadInput(
          fmt::format("{}: tensor {} is in another file too", path, ShownText(tensor_name)));
    }
  }
  return Ok();
}

namespace {

/// Whether a file of that name is below the directory that the name is relative to.
bool IsBelow(const std::string& name) {
  if (name.empty() || name.find('\0') != std::string::npos || name.back() == '/') return false;
  const std::string slashed = "/" + name + "/";
  return slashed.find("//") == std::string::npos && slashed.find("/./") == std::string::npos &&
         slashed.find("/../") == std::string::npos;
}

/// weight_map: tensor name -> file name, which is below the directory.
Result<std::map<std::string, std::string>> ReadIndex(FileSystem& files, const std::string& path) {
  SP_ASSIGN(const std::string text, files.ReadText(path, kIndexBytesMax));
  SP_ASSIGN(const json index, ParseStrictObject(text, path));
  if (!index.contains("weight_map") || !index["weight_map"].is_object()) {
    return BadInput(path + ": has no object 'weight_map'");
  }
  std::map<std::string, std::string> file_of;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const std::string target = file.is_string() ? file.get<std::string>() : "";
    if (!IsBelow(target)) {
      return BadInput(
          fmt::format("{}: weight_map[{}] is {}: expected the name of a file below the "
                      "directory",
                      path, ShownText(name), Shown(file)));
    }
    file_of[name] = target;
  }
  return file_of;
}

}  // namespace

Result<Source> OpenIndexed(FileSystem& files, const std::string& directory,
                           const std::string& index) {
  const std::string index_path = directory + "/" + index;
  SP_ASSIGN(const auto file_of, ReadIndex(files, index_path));
  std::map<std::string, int64_t> number_of;  // of a file, in Source::files
  for (const auto& [tensor, file] : file_of) number_of.emplace(file, 0);
  Source source;
  for (auto& [name, number] : number_of) {
    number = static_cast<int64_t>(source.files.size());
    if (!files.Exists(directory + "/" + name)) {
      return BadInput(
          fmt::format("{}: names file {}, which is not there", index_path, ShownText(name)));
    }
    SP_TRY(AddFile(files, directory, name, source));
  }
  for (const auto& [tensor, file] : file_of) {
    const auto found = source.tensors.find(tensor);
    if (found == source.tensors.end() || found->second.file != number_of.at(file)) {
      return BadInput(fmt::format("{}: tensor {} is not in {}, where weight_map puts it",
                                  index_path, ShownText(tensor), ShownText(file)));
    }
  }
  for (const auto& [tensor, where] : source.tensors) {
    if (!file_of.contains(tensor)) {
      return BadInput(fmt::format("{}: does not list tensor {}, which a file holds", index_path,
                                  ShownText(tensor)));
    }
  }
  return source;
}

Result<Source> OpenSource(FileSystem& files, const std::string& directory) {
  if (files.Exists(directory + "/" + kSingleName)) {
    Source source;
    SP_TRY(AddFile(files, directory, kSingleName, source));
    return source;
  }
  if (files.Exists(directory + "/" + kIndexName)) return OpenIndexed(files, directory, kIndexName);
  return BadInput(fmt::format("{}: has neither {} nor {}, nor the {} of DCP", directory,
                              kSingleName, kIndexName, kDcpMetadataName));
}

namespace {

json DescribeTensors(const std::map<std::string, SourceTensor>& tensors) {
  json document = json::object();
  for (const auto& [name, tensor] : tensors) {
    json& entry = document[name];
    entry = {DtypeName(tensor.dtype), tensor.shape, tensor.file, tensor.offset, tensor.length};
    for (const SourcePiece& piece : tensor.pieces) {
      entry.push_back(
          {piece.start, piece.length, piece.count, piece.stride, piece.file, piece.offset});
    }
  }
  return document;
}

std::map<std::string, SourceTensor> TensorsFrom(const json& document) {
  std::map<std::string, SourceTensor> tensors;
  for (const auto& [name, entry] : document.items()) {
    SourceTensor& tensor = tensors[name];
    tensor.dtype = DtypeFromName(entry[0].get<std::string>()).value_or(at::kFloat);
    tensor.shape = entry[1].get<std::vector<int64_t>>();
    tensor.file = entry[2].get<int64_t>();
    tensor.offset = entry[3].get<uint64_t>();
    tensor.length = entry[4].get<uint64_t>();
    for (size_t i = 5; i < entry.size(); ++i) {
      const json& piece = entry[i];
      tensor.pieces.push_back({piece[0], piece[1], piece[2], piece[3], piece[4], piece[5]});
    }
  }
  return tensors;
}

}  // namespace

std::string DescribeSource(const Source& source) {
  json values = json::object();
  for (const auto& [name, pickle] : source.values) {
    std::string hex;
    for (const char byte : pickle) hex += fmt::format("{:02x}", static_cast<uint8_t>(byte));
    values[name] = std::move(hex);
  }
  json paths = json::object();
  for (const auto& [name, path] : source.paths_of_state) {
    json& keys = paths[name] = json::array();
    for (const auto& key : path) std::visit([&](const auto& one) { keys.push_back(one); }, key);
  }
  const json document = {DescribeTensors(source.tensors), DescribeTensors(source.state), values,
                         paths, source.sealed};
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Source> SourceFromDescription(const std::string& text) {
  const json document = json::parse(text, nullptr, false);
  if (!document.is_array() || document.size() != 5) {
    return Failed(
        "what rank 0 sent as the checkpoint's tensors does not parse: the ranks are not in "
        "the same collective");
  }
  Source source;
  source.tensors = TensorsFrom(document[0]);
  source.state = TensorsFrom(document[1]);
  source.sealed = document[4].get<bool>();
  for (const auto& [name, keys] : document[3].items()) {
    StatePath& path = source.paths_of_state[name];
    for (const json& key : keys) {
      if (key.is_string())
        path.emplace_back(key.get<std::string>());
      else
        path.emplace_back(key.get<int64_t>());
    }
  }
  for (const auto& [name, bytes] : document[2].items()) {
    const auto& hex = bytes.get_ref<const std::string&>();
    std::string& pickle = source.values[name];
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
      pickle += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
  }
  return source;
}

}  // namespace shardproof
