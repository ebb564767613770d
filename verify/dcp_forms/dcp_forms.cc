#include "verify/dcp_forms/dcp_forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <utility>

#include "verify/oracle/synthetic.h"

namespace shardproof::dcp_forms {
namespace {

using Kind = Py::Kind;

constexpr const char* kModule = "torch.distributed.checkpoint.metadata";
constexpr uint64_t kItemsStream = 1, kFilesStream = 2, kMetadataStream = 3, kBesideStream = 4;

struct TorchNames {
  std::string_view dtype;
  const char* torch;
  const char* storage;  ///< empty: none, and its tensors are views of bytes
};

constexpr std::array<TorchNames, 17> kNames = {{
    {"F64", "float64", "DoubleStorage"},
    {"F32", "float32", "FloatStorage"},
    {"F16", "float16", "HalfStorage"},
    {"BF16", "bfloat16", "BFloat16Storage"},
    {"I64", "int64", "LongStorage"},
    {"I32", "int32", "IntStorage"},
    {"I16", "int16", "ShortStorage"},
    {"I8", "int8", "CharStorage"},
    {"U8", "uint8", "ByteStorage"},
    {"BOOL", "bool", "BoolStorage"},
    {"C64", "complex64", "ComplexFloatStorage"},
    {"U64", "uint64", ""},
    {"U32", "uint32", ""},
    {"U16", "uint16", ""},
    {"F8_E4M3", "float8_e4m3fn", ""},
    {"F8_E5M2", "float8_e5m2", ""},
    {"F8_E8M0", "float8_e8m0fnu", ""},
}};

const TorchNames* NamesOf(std::string_view dtype) {
  const auto* found = std::find_if(kNames.begin(), kNames.end(),
                                   [&](const TorchNames& names) { return names.dtype == dtype; });
  return found == kNames.end() ? nullptr : found;
}

int64_t Product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> RowMajor(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

/// Where a dim is cut: at 0, at its end, and mostly nowhere between.
std::vector<int64_t> Cuts(int64_t size, Draws& draws) {
  std::vector<int64_t> cuts = {0, size};
  for (uint64_t more = draws.Below(3); size > 1 && more-- > 0;) {
    const auto cut = static_cast<int64_t>(1 + draws.Below(static_cast<uint64_t>(size - 1)));
    if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) cuts.push_back(cut);
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

/// The chunks of a grid over the shape, each once.
std::vector<Item> Grid(const std::vector<int64_t>& shape, Draws& draws) {
  constexpr size_t kChunksMax = 12;
  std::vector<Item> chunks(1);
  for (const int64_t size : shape) {
    std::vector<int64_t> cuts = Cuts(size, draws);
    if (chunks.size() * (cuts.size() - 1) > kChunksMax) cuts = {0, size};
    std::vector<Item> finer;
    for (const Item& chunk : chunks) {
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        Item& part = finer.emplace_back(chunk);
        part.offsets.push_back(cuts[i]);
        part.sizes.push_back(cuts[i + 1] - cuts[i]);
      }
    }
    chunks = std::move(finer);
  }
  draws.Shuffle(chunks);
  return chunks;
}

/// The bytes of a chunk of an image, in row-major order.
std::string BytesOfChunk(const std::string& image, const std::vector<int64_t>& shape,
                         const Item& chunk, uint64_t width) {
  const std::vector<int64_t> strides = RowMajor(shape);
  std::string bytes;
  for (int64_t i = 0, count = Product(chunk.sizes); i < count; ++i) {
    int64_t rest = i, at = 0;
    for (size_t d = shape.size(); d-- > 0;) {
      at += (chunk.offsets[d] + rest % chunk.sizes[d]) * strides[d];
      rest /= chunk.sizes[d];
    }
    bytes.append(image, static_cast<uint64_t>(at) * width, width);
  }
  return bytes;
}

/// A tensor as torch.save has it: a view of all of its storage, or of some of it.
void FillChunk(const Entry& entry, const std::string& image, Item& chunk, Draws& draws) {
  const TorchNames& names = *NamesOf(entry.dtype->name);
  const auto width = static_cast<uint64_t>(entry.dtype->bytes);
  const uint64_t before = draws.Below(4) == 0 ? 1 + draws.Below(3) : 0;
  const uint64_t behind = draws.Below(4) == 0 ? 1 + draws.Below(3) : 0;
  chunk.storage = std::string(before * width, '\x5a') +
                  BytesOfChunk(image, entry.shape, chunk, width) +
                  std::string(behind * width, '\x5a');
  const bool is_v3 = *names.storage == '\0' || draws.Below(4) == 0;
  const auto numel = static_cast<int64_t>(chunk.storage.size() / (is_v3 ? 1 : width));
  const Py storage = Py::Of(Kind::kTuple, {Py::Text("storage"),
                                           is_v3 ? Py::Name("torch.storage", "UntypedStorage")
                                                 : Py::Name("torch", names.storage),
                                           Py::Text("0"), Py::Text("cpu"), Py::Integer(numel)});
  chunk.content = Py::Of(
      Kind::kCall, {Py::Name("torch._utils", is_v3 ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2"),
                    Py::Of(Kind::kPersistent, {storage}), Py::Integer(static_cast<int64_t>(before)),
                    Py::Integers(chunk.sizes), Py::Integers(RowMajor(chunk.sizes)), Py::Bool(false),
                    Py::Of(Kind::kCall, {Py::Name("collections", "OrderedDict")})});
  if (is_v3) chunk.content.items.push_back(Py::Name("torch", names.torch));
}

Result<Entry> EntryOf(const oracle::PlannedTensor& planned, const std::string& key, Draws& draws) {
  Entry entry{.key = key, .dtype = planned.dtype, .shape = planned.shape};
  if (NamesOf(planned.dtype->name) == nullptr) {
    return BadInput(
        fmt::format("case: tensor '{}': DCP has no dtype {}", key, planned.dtype->name));
  }
  const std::optional<uint64_t> bytes = oracle::BytesOf(planned);
  if (!bytes) return BadInput(fmt::format("case: tensor '{}': too large", key));
  std::string image(*bytes, '\0');
  planned.fill(0, *bytes / static_cast<uint64_t>(planned.dtype->bytes), image.data());
  entry.items = *bytes == 0 ? std::vector<Item>(1) : Grid(planned.shape, draws);
  if (*bytes == 0) {
    entry.items[0].offsets.resize(planned.shape.size());
    entry.items[0].sizes = planned.shape;
  }
  for (Item& chunk : entry.items) FillChunk(entry, image, chunk, draws);
  return entry;
}

/// A tensor beside the model, of a few elements.
Entry TensorBeside(std::vector<std::string> path, const char* dtype, std::vector<int64_t> shape,
                   Draws& draws) {
  Entry entry{.key = fmt::format("{}", fmt::join(path, ".")),
              .dtype = oracle::FindDtype(dtype),
              .shape = std::move(shape),
              .items = {},
              .path = std::move(path)};
  const std::string image(static_cast<size_t>(Product(entry.shape) * entry.dtype->bytes), '\x3c');
  entry.items = Grid(entry.shape, draws);
  for (Item& chunk : entry.items) FillChunk(entry, image, chunk, draws);
  return entry;
}

Entry ValueBeside(std::vector<std::string> path, int64_t number) {
  Item value;
  value.content = Py::Integer(number);
  const std::string key = fmt::format("{}", fmt::join(path, "."));
  return {.key = key, .items = {std::move(value)}, .path = std::move(path)};
}

/// What a training job keeps beside its model, and a load of the model alone passes over: where the
/// model is no part of its own, by what the keys are.
void AddBeside(const Case& test_case, Dcp& dcp) {
  // Averages are known by the model beside them: of a source without tensors, nobody can say.
  const bool has_model = std::any_of(dcp.entries.begin(), dcp.entries.end(),
                                     [](const Entry& entry) { return entry.dtype != nullptr; });
  Draws draws(dcp.seed ^ kBesideStream);
  if (test_case.steps > 0 || !draws.Flag()) return;
  const std::string of = draws.Flag() ? "optim" : "optimizer";
  const std::string parameter = dcp.is_nested ? "model.a.weight" : "a.weight";
  const auto add = [&](Entry entry) { dcp.entries.push_back(std::move(entry)); };
  add(TensorBeside({of, "state", parameter, "exp_avg"}, "F32", {3, 2}, draws));
  add(TensorBeside({of, "state", parameter, "step"}, "F32", {}, draws));
  if (draws.Flag()) add(ValueBeside({of, "param_groups", parameter, "lr"}, 1));
  add(TensorBeside({"rng_0"}, "U8", {16}, draws));
  if (draws.Flag()) {
    add(ValueBeside({"step"}, static_cast<int64_t>(draws.Below(9))));
    add(TensorBeside({"scaler", "scale"}, "F32", {}, draws));
  }
  if (dcp.is_nested && has_model && draws.Flag()) {
    add(TensorBeside({"ema", "a.weight"}, "BF16", {4}, draws));
  }
}

/// An object of a class of DCP's, with its fields in any order.
Py Made(const std::string& module, const std::string& name, std::vector<Py> state, Draws& draws) {
  for (size_t i = state.size() / 2; i > 1; --i) {
    const size_t other = draws.Below(i);
    std::swap(state[2 * (i - 1)], state[2 * other]);
    std::swap(state[2 * (i - 1) + 1], state[2 * other + 1]);
  }
  return Py::Of(Kind::kObject, {Py::Name(module, name), Py::Of(Kind::kDict, std::move(state))});
}

Py PropertiesOf(const oracle::DtypeInfo& dtype, Draws& draws) {
  const Py encoding = Py::Name(kModule, "_MEM_FORMAT_ENCODING");
  const Py memory_format = draws.Flag()
                               ? Py::Of(Kind::kCall, {encoding, Py::Integer(0)})
                               : Py::Of(Kind::kCall, {Py::Name("builtins", "getattr"), encoding,
                                                      Py::Text("TORCH_CONTIGUOUS_FORMAT")});
  const Py state =
      Py::Of(Kind::kTuple, {Py::Name("torch", NamesOf(dtype.name)->torch),
                            Py::Of(Kind::kCall, {Py::Name("torch.serialization", "_get_layout"),
                                                 Py::Text("torch.strided")}),
                            Py::Bool(false), memory_format, Py::Bool(draws.Flag())});
  return Py::Of(Kind::kObject, {Py::Name(kModule, "TensorProperties"), state});
}

Py TensorEntry(const Entry& entry, Draws& draws) {
  std::vector<Py> chunks;
  for (const Item& item : entry.items) {
    chunks.push_back(
        Made(kModule, "ChunkStorageMetadata",
             {Py::Text("offsets"), Py::Size(item.offsets), Py::Text("sizes"), Py::Size(item.sizes)},
             draws));
  }
  return Made(kModule, "TensorStorageMetadata",
              {Py::Text("properties"), PropertiesOf(*entry.dtype, draws), Py::Text("size"),
               Py::Size(entry.shape), Py::Text("chunks"), Py::Of(Kind::kList, std::move(chunks))},
              draws);
}

void AddPlace(const Entry& entry, size_t i, std::vector<Py>& places, Draws& draws) {
  const Item& item = entry.items[i];
  const bool is_tensor = entry.dtype != nullptr;
  const bool has_hint = is_tensor && draws.Flag();
  places.push_back(Made(kModule, "MetadataIndex",
                        {Py::Text("fqn"), Py::Text(entry.key), Py::Text("offset"),
                         is_tensor ? Py::Size(item.offsets) : Py::None(), Py::Text("index"),
                         has_hint ? Py::Integer(static_cast<int64_t>(i)) : Py::None()},
                        draws));
  std::vector<Py> info = {
      Py::Text("relative_path"), Py::Text(item.file),
      Py::Text("offset"),        Py::Integer(static_cast<int64_t>(item.offset)),
      Py::Text("length"),        Py::Integer(static_cast<int64_t>(item.archive.size()))};
  if (draws.Flag()) info.insert(info.end(), {Py::Text("transform_descriptors"), Py::None()});
  places.push_back(
      Made("torch.distributed.checkpoint.filesystem", "_StorageInfo", std::move(info), draws));
}

}  // namespace

Result<Dcp> TakeApart(const Case& test_case) {
  SP_ASSIGN(const auto plans, oracle::PlanSynthetic(test_case));
  Dcp dcp{.seed = oracle::Mix(test_case.seed)};
  Draws draws(dcp.seed);
  dcp.is_nested = draws.Flag();
  for (const oracle::PlannedTensor& plan : plans) {
    SP_ASSIGN(Entry entry, EntryOf(plan, (dcp.is_nested ? "model." : "") + plan.name, draws));
    dcp.entries.push_back(std::move(entry));
  }
  if (dcp.is_nested && draws.Flag()) {
    Item value;
    value.content = Py::Integer(static_cast<int64_t>(draws.Below(70000)));
    dcp.entries.push_back({.key = "epoch", .items = {std::move(value)}});
  }
  AddBeside(test_case, dcp);
  draws.Shuffle(dcp.entries);
  for (Entry& entry : dcp.entries) {
    for (Item& item : entry.items) {
      item.folder = draws.Flag() ? "archive" : "any";
      item.file = fmt::format(
          "__{}_0.distcp",
          draws.Below(static_cast<uint64_t>(std::max<int64_t>(1, test_case.model.files))));
    }
  }
  return dcp;
}

void Build(Dcp& dcp) {
  Draws draws(dcp.seed ^ kItemsStream);
  for (Entry& entry : dcp.entries) {
    for (Item& item : entry.items) {
      const std::string below = item.folder + "/";
      std::vector<ArchiveMember> members = {
          {below + "data.pkl", PickleOf(item.content, Reads::kTorch, draws)},
          {below + "version", "3\n"}};
      if (draws.Below(4) != 0) members.push_back({below + "byteorder", "little"});
      if (draws.Flag()) members.push_back({below + ".data/serialization_id", "0123"});
      if (entry.dtype != nullptr) members.push_back({below + "data/0", item.storage});
      item.archive = ArchiveOf(std::move(members), draws);
    }
  }
}

void LayOut(Dcp& dcp) {
  Draws draws(dcp.seed ^ kFilesStream);
  std::vector<Item*> items;
  for (Entry& entry : dcp.entries) {
    for (Item& item : entry.items) items.push_back(&item);
  }
  draws.Shuffle(items);
  dcp.files.clear();
  for (Item* item : items) {
    std::string& file = dcp.files[item->file];
    file.append(draws.Below(4) == 0 ? draws.Below(9) : 0, '\0');  // room that is nobody's
    item->offset = file.size();
    file += item->archive;
  }
}

Py MetadataOf(const Dcp& dcp) {
  Draws draws(dcp.seed ^ kMetadataStream);
  std::vector<Py> entries, places, paths;
  for (const Entry& entry : dcp.entries) {
    entries.push_back(Py::Text(entry.key));
    entries.push_back(entry.dtype == nullptr ? Made(kModule, "BytesStorageMetadata", {}, draws)
                                             : TensorEntry(entry, draws));
    for (size_t i = 0; i < entry.items.size(); ++i) AddPlace(entry, i, places, draws);
    constexpr std::string_view kModel = "model.";
    const bool is_below = dcp.is_nested && entry.path.empty() && entry.dtype != nullptr;
    std::vector<Py> path;
    if (is_below) path = {Py::Text("model"), Py::Text(entry.key.substr(kModel.size()))};
    for (const std::string& part : entry.path) path.push_back(Py::Text(part));
    if (path.empty()) path = {Py::Text(entry.key)};
    paths.push_back(Py::Text(entry.key));
    paths.push_back(Py::Of(Kind::kTuple, std::move(path)));
  }
  std::vector<Py> state = {Py::Text("state_dict_metadata"), Py::Of(Kind::kDict, std::move(entries)),
                           Py::Text("storage_data"), Py::Of(Kind::kDict, std::move(places))};
  // The names alone say that nothing is nested.
  if (dcp.is_nested || draws.Flag()) {
    state.insert(state.end(), {Py::Text("planner_data"), Py::Of(Kind::kDict, std::move(paths))});
  }
  if (draws.Flag()) state.insert(state.end(), {Py::Text("storage_meta"), Py::None()});
  if (draws.Flag()) state.insert(state.end(), {Py::Text("version"), Py::Text("1.0.0")});
  return Made(kModule, "Metadata", std::move(state), draws);
}

std::string MetadataText(const Dcp& dcp, const Py& metadata) {
  Draws draws(~dcp.seed);
  return PickleOf(metadata, Reads::kPython, draws);
}

Status WriteDcp(const Case& test_case, const std::string& directory) {
  SP_ASSIGN(Dcp dcp, TakeApart(test_case));
  Build(dcp);
  LayOut(dcp);
  std::error_code error;
  if (!std::filesystem::create_directory(directory, error)) {
    return Failed(fmt::format("{}: cannot be made: {}", directory, error.message()));
  }
  for (const auto& [name, text] : dcp.files) {
    SP_TRY(oracle::WriteTextFile(directory + "/" + name, text));
  }
  return oracle::WriteTextFile(directory + "/" + kMetadataName, MetadataText(dcp, MetadataOf(dcp)));
}

}  // namespace shardproof::dcp_forms
