#include "verify/formats/flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "verify/formats/dtensor.h"
#include "verify/oracle/dtype.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using Kind = PickleValue::Kind;

constexpr int kNestingMax = 100;
constexpr uint64_t kPartsMax = 4'000'000;
constexpr uint64_t kVisitsPerPart = 16;
constexpr uint64_t kTextBytesMax = uint64_t{256} << 20;  // of all names and texts of a checkpoint
constexpr uint64_t kOpaqueBytesMax = 64 << 10;  // in an object that surely holds no weights

/// How torch builds what is not one plain strided tensor, and the names of its tensors.
struct BuiltOfParts {
  std::string_view function;
  std::string_view layout;  ///< of a sparse tensor; empty: any other
  std::string_view parts[3];
};
constexpr BuiltOfParts kBuiltOfParts[] = {
    {"torch._utils._rebuild_sparse_tensor", "torch.sparse_coo", {".indices", ".values", ".size"}},
    {"torch._utils._rebuild_sparse_tensor",
     "",
     {".compressed_indices", ".plain_indices", ".values"}},
    {"torch._utils._rebuild_nested_tensor", "", {".buffer", ".sizes", ".strides"}},
};

/// The layout that a sparse tensor is rebuilt with: a name, or a call that gives it.
std::string_view LayoutOf(const PickleValue& value) {
  const PickleValue& layout = *value.items[0];
  return layout.Is(Kind::kObject) && !layout.items.empty() ? layout.items[0]->text : layout.text;
}

// What is read here though pickles of the pipeline may not name it.
constexpr std::string_view kKnownElsewhere[] = {
    "torch.distributed.tensor.",           "torch.distributed._tensor.",
    "torch.distributed.device_mesh.",      "torch.distributed._mesh_layout.",
    "torch.distributed._shard.",           "torch.distributed.remote_device.",
    "torch._tensor._rebuild_from_type_v2", "torch._utils._rebuild_"};

class Flattener {
 public:
  /// \param is_spelled  names are as Python writes the way to a value: w['a'][0], not w.a.0.
  Flattener(const TorchArchive& archive, uint32_t file, const std::string& where, bool is_spelled,
            StoredCheckpoint& checkpoint)
      : archive_(archive),
        file_(file),
        where_(where),
        is_spelled_(is_spelled),
        checkpoint_(checkpoint) {}

  Status Add(const PickleValue& value, const std::string& name, int depth) {
    if (depth > kNestingMax) return Wrong(name, fmt::format("nests deeper than {}", kNestingMax));
    if (++checkpoint_.parts > kPartsMax) {
      return Wrong(name, fmt::format("the checkpoint has more than {} parts", kPartsMax));
    }
    checkpoint_.text_bytes += name.size();
    if (checkpoint_.text_bytes > kTextBytesMax) {
      return Wrong(name, fmt::format("the checkpoint has more than {} bytes of names and texts",
                                     kTextBytesMax));
    }
    const std::string own_name = name.empty() ? "value" : name;
    auto shard = AsShard(archive_, value);
    if (!shard.ok()) return Wrong(own_name, shard.error().message);
    if (shard.value()) {
      AddShard(own_name, *shard.value());
      return Ok();
    }
    const auto found = archive_.AsTensor(value, true);
    if (!found.ok()) return found.error().While("tensor " + oracle::Quote(own_name));
    const std::optional<TorchTensor>& tensor = found.value();
    if (tensor) {
      checkpoint_.tensors.push_back({own_name + (tensor->lazy.empty() ? "" : "." + tensor->lazy),
                                     tensor->dtype,
                                     tensor->shape,
                                     {WholeChunk(*tensor, file_)}});
      const bool has_state = value.IsObject("torch._utils._rebuild_parameter_with_state");
      return has_state ? Add(*value.items[3], Joined(name, "state"), depth + 1) : Ok();
    }
    if (value.Is(Kind::kObject) && value.is_opaque) return AddOpaque(value, own_name, depth);
    SP_ASSIGN(const bool is_taken_apart, HoldsNamed(value, name, depth));
    if (!is_taken_apart) {
      auto text = TextOf(value);
      if (!text.ok()) return Wrong(name, text.error().message);
      checkpoint_.text_bytes += text.value().size();
      checkpoint_.values.push_back({own_name, std::move(text).value()});
      return Ok();
    }
    if (value.Is(Kind::kDict)) {
      for (size_t i = 0; i + 1 < value.items.size(); i += 2) {
        SP_ASSIGN(const std::string key, KeyText(*value.items[i], name));
        SP_TRY(Add(*value.items[i + 1], Joined(name, key), depth + 1));
      }
      return Ok();
    }
    for (size_t i = 0; i < value.items.size(); ++i) {
      SP_TRY(Add(*value.items[i], Joined(name, std::to_string(i)), depth + 1));
    }
    return value.state == nullptr ? Ok() : Add(*value.state, Joined(name, "state"), depth + 1);
  }

 private:
  void AddShard(const std::string& name, const SavedShard& shard) {
    StoredShard added{name, shard.dtype, shard.shape, {}, shard.place, file_};
    const auto width = static_cast<uint64_t>(oracle::FindDtype(shard.dtype)->bytes);
    for (const ShardPart& part : shard.parts) {
      for (const ShardBox& box : part.boxes) {
        Chunk chunk = WholeChunk(part.local, file_);
        chunk.offsets = box.offsets;
        chunk.sizes = box.sizes;
        for (size_t dim = 0; dim < box.local.size(); ++dim) {
          chunk.file_offset += static_cast<uint64_t>(box.local[dim] * chunk.strides[dim]) * width;
        }
        added.chunks.push_back(std::move(chunk));
      }
    }
    checkpoint_.parts += added.chunks.size();
    checkpoint_.shards.push_back(std::move(added));
  }

  /// A tensor of a subclass or layout whose parts are tensors: these, by the names that they have.
  /// \returns false if it is no such thing.
  Result<bool> AddParts(const PickleValue& value, const std::string& name, int depth) {
    if (IsFromType(value)) {
      const PickleValue* state = value.items[3];
      if (state->Is(Kind::kTuple) && !state->items.empty()) state = state->items[0];
      if (!state->Is(Kind::kDict)) return false;
      return AddNamedTensors(*state, name, depth);
    }
    for (const BuiltOfParts& built : kBuiltOfParts) {
      if (!value.IsObject(built.function)) continue;
      // Of a sparse tensor, (layout, its parts); of a nested one its parts.
      const bool has_layout = value.items.size() == 2 && value.items[1]->Is(Kind::kTuple);
      if (!built.layout.empty() && (!has_layout || LayoutOf(value) != built.layout)) continue;
      const auto& parts = has_layout ? value.items[1]->items : value.items;
      for (size_t i = 0; i < std::size(built.parts) && i < parts.size(); ++i) {
        SP_TRY(Add(*parts[i], name + std::string(built.parts[i]), depth + 1));
      }
      return true;
    }
    if (!value.IsObject("torch._utils._rebuild_qtensor") || value.items.size() < 5) return false;
    // (storage, offset, size, strides, quantizer, ...): the integers, and how they are scaled
    PickleValue strides_of{.kind = Kind::kObject, .text = "torch._utils._rebuild_tensor"};
    strides_of.items.assign(value.items.begin(), value.items.begin() + 4);
    SP_TRY(Add(strides_of, Joined(name, "int_repr"), depth + 1));
    SP_TRY(Add(*value.items[4], Joined(name, "quantizer"), depth + 1));
    return true;
  }

  /// Of a dict, what holds tensors. \returns whether anything does.
  Result<bool> AddNamedTensors(const PickleValue& dict, const std::string& name, int depth) {
    bool has_any = false;
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const PickleValue& item = *dict.items[i + 1];
      if (ContentOf(item).tensors == 0) continue;
      SP_ASSIGN(const std::string key, KeyText(*dict.items[i], name));
      SP_TRY(Add(item, Joined(name, key), depth + 1));
      has_any = true;
    }
    return has_any;
  }

  /// An object of a class that is not known: a value, and the tensors that are in it.
  Status AddOpaque(const PickleValue& value, const std::string& name, int depth) {
    SP_ASSIGN(const bool is_done, AddParts(value, name, depth));
    if (is_done) return Ok();
    const Content content = ContentOf(value);
    if (content.tensors > 0 && std::find(within_.begin(), within_.end(), &value) == within_.end()) {
      within_.push_back(&value);
      for (size_t i = 0; i < value.items.size(); ++i) {
        if (ContentOf(*value.items[i]).tensors == 0) continue;
        SP_TRY(Add(*value.items[i], Joined(name, std::to_string(i)), depth + 1));
      }
      if (value.state != nullptr && value.state->Is(Kind::kDict)) {
        SP_ASSIGN([[maybe_unused]] const bool has_any, AddNamedTensors(*value.state, name, depth));
      } else if (value.state != nullptr && ContentOf(*value.state).tensors > 0) {
        SP_TRY(Add(*value.state, Joined(name, "state"), depth + 1));
      }
      within_.pop_back();
      Unjudged(name, value, fmt::format("holds {} tensors", content.tensors));
      return Ok();
    }
    if (content.bytes > kOpaqueBytesMax) {
      Unjudged(name, value, fmt::format("holds {} bytes", content.bytes));
    }
    const auto text = TextOf(value);
    const std::string shown =
        text.ok() ? text.value() : fmt::format("{}, which {}", value.text, text.error().message);
    checkpoint_.text_bytes += shown.size();
    checkpoint_.values.push_back({name, shown});
    return Ok();
  }

  void Unjudged(const std::string& name, const PickleValue& value, const std::string& what) {
    checkpoint_.unjudged.push_back(fmt::format(
        "{}: {} is an object of {}, a class that is not known; it {}, which may be "
        "weights",
        oracle::Printable(where_), oracle::Quote(name), oracle::Printable(value.text), what));
  }

  struct Content {
    uint64_t tensors = 0;  ///< and storages
    uint64_t bytes = 0;    ///< of text and bytes
  };

  /// What is below a value, each part once however often it is shared. Its work is counted as
  /// parts of the checkpoint: beyond their bound it ends, and Add refuses what comes next.
  Content ContentOf(const PickleValue& value) {
    Content content;
    if (checkpoint_.parts > kPartsMax) return content;
    std::unordered_set<const PickleValue*> seen = {&value};
    std::vector<const PickleValue*> left = {&value};
    const auto look = [&](const PickleValue* found) {
      if (found != nullptr && seen.insert(found).second) left.push_back(found);
    };
    while (!left.empty()) {
      const PickleValue& at = *left.back();
      left.pop_back();
      content.tensors += at.Is(Kind::kPersistent);
      if (at.Is(Kind::kText) || at.Is(Kind::kBytes)) content.bytes += at.text.size();
      if (at.Is(Kind::kPersistent)) continue;
      for (const PickleValue* item : at.items) look(item);
      look(at.state);
    }
    checkpoint_.parts += seen.size() / kVisitsPerPart;
    return content;
  }

  Error Wrong(const std::string& name, const std::string& what) const {
    return BadInput(
        fmt::format("{}: {}: {}", oracle::Printable(where_), oracle::Quote(name), what));
  }

  std::string Joined(const std::string& name, const std::string& key) const {
    if (is_spelled_) return name + "[" + key + "]";
    return name.empty() ? key : name + "." + key;
  }

  Result<std::string> KeyText(const PickleValue& key, const std::string& name) const {
    if (!is_spelled_ && key.Is(Kind::kText)) return std::string(key.text);
    auto text = TextOf(key);
    if (!text.ok()) return Wrong(name, text.error().message);
    return text;
  }

  /// Whether there is a dict or a tensor in it. Each value is looked at once, however often it is
  /// shared.
  Result<bool> HoldsNamed(const PickleValue& value, const std::string& name, int depth) {
    if (value.Is(Kind::kDict)) return true;
    if (value.Is(Kind::kObject) && value.is_opaque) {  // which may lead back to itself
      return ContentOf(value).tensors > 0;
    }
    if (value.items.empty() && value.state == nullptr) return false;
    if (depth > kNestingMax) return Wrong(name, fmt::format("nests deeper than {}", kNestingMax));
    const auto known = holds_named_.find(&value);
    if (known != holds_named_.end()) return known->second;
    const auto tensor = archive_.AsTensor(value);
    bool holds = !tensor.ok() || tensor.value().has_value();  // what is wrong with it, Add says
    for (const PickleValue* item : value.items) {
      if (holds) break;
      SP_ASSIGN(holds, HoldsNamed(*item, name, depth + 1));
    }
    if (!holds && value.state != nullptr) {
      SP_ASSIGN(holds, HoldsNamed(*value.state, name, depth + 1));
    }
    holds_named_.emplace(&value, holds);
    return holds;
  }

  const TorchArchive& archive_;
  uint32_t file_;
  const std::string& where_;
  const bool is_spelled_;
  StoredCheckpoint& checkpoint_;
  std::unordered_map<const PickleValue*, bool> holds_named_;
  std::vector<const PickleValue*> within_;  ///< opaque objects whose tensors are being added
};

Result<StoredCheckpoint> Flattened(const TorchArchive& archive, const std::string& name,
                                   uint32_t file, const std::string& where, bool is_spelled,
                                   const StoredCheckpoint& counted) {
  StoredCheckpoint part{.parts = counted.parts, .text_bytes = counted.text_bytes};
  SP_TRY(Flattener(archive, file, where, is_spelled, part)
             .Add(archive.root(), name, name.empty() ? 0 : 1));
  return part;
}

template <typename Entry>
bool HasTwice(const std::vector<Entry>& list) {
  std::unordered_set<std::string_view> names;
  return !std::all_of(list.begin(), list.end(),
                      [&](const Entry& entry) { return names.insert(entry.name).second; });
}

/// Takes the names of `spelled`, which has the same entries, for those that two have.
template <typename Entry>
void Rename(std::vector<Entry>& list, const std::vector<Entry>& spelled) {
  std::unordered_map<std::string, int> times;
  for (const Entry& entry : list) ++times[entry.name];
  for (size_t i = 0; i < list.size(); ++i) {
    if (times[list[i].name] > 1) list[i].name = spelled[i].name;
  }
}

template <typename List>
void Append(List& from, List& to) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

}  // namespace

Status Flatten(const TorchArchive& archive, const std::string& name, uint32_t file,
               const std::string& where, StoredCheckpoint& checkpoint) {
  for (const auto& named : archive.pickle().opaque()) {
    const bool is_torchs =
        !DtypeOfName(named.first).empty() ||
        std::any_of(std::begin(kKnownElsewhere), std::end(kKnownElsewhere),
                    [&](std::string_view known) { return named.first.starts_with(known); });
    if (!is_torchs) checkpoint.opaque[named.first] += std::max<uint64_t>(named.second, 1);
  }
  SP_ASSIGN(StoredCheckpoint part, Flattened(archive, name, file, where, false, checkpoint));
  // Two ways that lead to one name, such as {"a": {"b": x}, "a.b": y}.
  if (HasTwice(part.tensors) || HasTwice(part.values) || HasTwice(part.shards)) {
    SP_ASSIGN(const StoredCheckpoint spelled,
              Flattened(archive, name, file, where, true, checkpoint));
    Rename(part.tensors, spelled.tensors);
    Rename(part.values, spelled.values);
    Rename(part.shards, spelled.shards);
  }
  Append(part.tensors, checkpoint.tensors);
  Append(part.values, checkpoint.values);
  Append(part.shards, checkpoint.shards);
  Append(part.unjudged, checkpoint.unjudged);
  checkpoint.parts = part.parts;
  checkpoint.text_bytes = part.text_bytes;
  return Ok();
}

Chunk WholeChunk(const TorchTensor& tensor, uint32_t file) {
  return {.offsets = std::vector<int64_t>(tensor.shape.size()),
          .sizes = tensor.shape,
          .strides = tensor.strides,
          .file = file,
          .file_offset = tensor.offset};
}

}  // namespace shardproof::formats
