#include "verify/formats/flatten.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>

#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using Kind = PickleValue::Kind;

constexpr int kNestingMax = 100;
constexpr uint64_t kPartsMax = 4'000'000;
constexpr uint64_t kTextBytesMax = uint64_t{256} << 20;  // of all names and texts of a checkpoint

class Flattener {
 public:
  Flattener(const TorchArchive& archive, uint32_t file, const std::string& where,
            StoredCheckpoint& checkpoint)
      : archive_(archive), file_(file), where_(where), checkpoint_(checkpoint) {}

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
    const auto found = archive_.AsTensor(value);
    if (!found.ok()) return found.error().While("tensor " + oracle::Quote(own_name));
    const std::optional<TorchTensor>& tensor = found.value();
    if (tensor) {
      checkpoint_.tensors.push_back(
          {own_name, tensor->dtype, tensor->shape, {WholeChunk(*tensor, file_)}});
      const bool has_state = value.IsObject("torch._utils._rebuild_parameter_with_state");
      return has_state ? Add(*value.items[3], Joined(name, "state"), depth + 1) : Ok();
    }
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
  Error Wrong(const std::string& name, const std::string& what) const {
    return BadInput(
        fmt::format("{}: {}: {}", oracle::Printable(where_), oracle::Quote(name), what));
  }

  static std::string Joined(const std::string& name, const std::string& key) {
    return name.empty() ? key : name + "." + key;
  }

  Result<std::string> KeyText(const PickleValue& key, const std::string& name) const {
    if (key.Is(Kind::kText)) return std::string(key.text);
    auto text = TextOf(key);
    if (!text.ok()) return Wrong(name, text.error().message);
    return text;
  }

  /// Whether there is a dict or a tensor in it. Each value is looked at once, however often it is
  /// shared.
  Result<bool> HoldsNamed(const PickleValue& value, const std::string& name, int depth) {
    if (value.Is(Kind::kDict)) return true;
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
  StoredCheckpoint& checkpoint_;
  std::unordered_map<const PickleValue*, bool> holds_named_;
};

}  // namespace

Status Flatten(const TorchArchive& archive, const std::string& name, uint32_t file,
               const std::string& where, StoredCheckpoint& checkpoint) {
  return Flattener(archive, file, where, checkpoint)
      .Add(archive.root(), name, name.empty() ? 0 : 1);
}

Chunk WholeChunk(const TorchTensor& tensor, uint32_t file) {
  return {.offsets = std::vector<int64_t>(tensor.shape.size()),
          .sizes = tensor.shape,
          .strides = tensor.strides,
          .file = file,
          .file_offset = tensor.offset};
}

}  // namespace shardproof::formats
