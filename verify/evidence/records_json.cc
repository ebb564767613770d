#include "verify/evidence/records_json.h"

#include <fmt/format.h>

namespace shardproof {
namespace {

using nlohmann::json;

constexpr size_t kDigestDigits = 32;
constexpr int64_t kRankMax = 65535;
constexpr int64_t kSizeMax = int64_t{1} << 48;

const NameTable& ContentNames() {
  static const NameTable names = {"none", "undefined", "defined"};
  return names;
}

/// Those of a Case, and what an optimizer keeps.
const NameTable& EvidenceKinds() {
  static const NameTable names = [] {
    NameTable all = KnownKinds();
    all.push_back("optimizer");
    return all;
  }();
  return names;
}

const NameTable& PlacementNames() {
  static const NameTable names = {"replicate", "shard", "partial", "strided_shard",
                                  "flat_shard"};
  return names;
}

std::string HexOf(std::string_view bytes) {
  static const char* kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::optional<std::string> BytesOf(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = HexDigit(hex[i]);
    const int low = HexDigit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

OwnedRun ParseRun(const json& value, const std::string& pointer, uint64_t elements,
                  Complaint& complaint) {
  OwnedRun run;
  FieldReader fields(value, pointer, complaint);
  fields.Required("start", run.start);
  fields.Required("length", run.length);
  fields.Optional("count", run.count, 1);
  fields.Optional("stride", run.stride);
  fields.Finish();
  // Properties loop over runs, so a run must lie within the tensor and its stretches must advance.
  uint64_t end = 0;
  const bool overflow = __builtin_mul_overflow(run.count - 1, run.stride, &end) ||
                        __builtin_add_overflow(end, run.start, &end) ||
                        __builtin_add_overflow(end, run.length, &end);
  if (overflow || end > elements || (run.count > 1 && run.stride == 0)) {
    complaint.Say(pointer, fmt::format("expected stretches within {} elements, found start {} "
                                       "length {} count {} stride {}",
                                       elements, run.start, run.length, run.count, run.stride));
  }
  return run;
}

PlacementRecord ParsePlacement(const json& value, const std::string& pointer,
                               Complaint& complaint) {
  PlacementRecord placement;
  FieldReader fields(value, pointer, complaint);
  fields.OneOf("kind", PlacementNames(), placement.kind);
  fields.Optional("dim", placement.dim, 0, 64);
  fields.Optional("split_factor", placement.split_factor, 1);
  fields.Finish();
  return placement;
}

uint64_t CheckedElements(FieldReader& fields, const std::vector<int64_t>& shape) {
  uint64_t elements = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(size), &elements) ||
        elements > static_cast<uint64_t>(kSizeMax)) {
      fields.complaint().Say(fields.PointerTo("shape"),
                             fmt::format("expected at most {} elements, found more", kSizeMax));
      return 0;
    }
  }
  return elements;
}

}  // namespace

std::string ToString(Content content) {
  return std::string(ContentNames()[static_cast<size_t>(content)]);
}

std::string DumpLine(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson DescriptorToJson(const TensorDescriptor& d) {
  OrderedJson out = {{"record", "tensor"}, {"id", d.id},       {"name", d.name},
                     {"kind", d.kind},     {"dtype", d.dtype}, {"shape", d.shape}};
  out["persistent"] = d.persistent;
  out["requires_grad"] = d.requires_grad;
  out["local_shape"] = d.local_shape;
  out["local_stride"] = d.local_stride;
  out["placements"] = OrderedJson::array();
  for (const PlacementRecord& placement : d.placements) {
    OrderedJson entry = {{"kind", placement.kind}};
    if (placement.kind == "shard" || placement.kind == "strided_shard") {
      entry["dim"] = placement.dim;
    }
    if (placement.kind == "strided_shard") entry["split_factor"] = placement.split_factor;
    out["placements"].push_back(std::move(entry));
  }
  out["owned"] = OrderedJson::array();
  for (const OwnedRun& run : d.owned) {
    OrderedJson entry = {{"start", run.start}, {"length", run.length}};
    if (run.count != 1) {
      entry["count"] = run.count;
      entry["stride"] = run.stride;
    }
    out["owned"].push_back(std::move(entry));
  }
  if (d.alias_group != -1) out["alias_group"] = d.alias_group;
  if (d.identity != -1) out["identity"] = d.identity;
  if (!d.attributes.empty()) out["attributes"] = d.attributes;
  return out;
}

TensorDescriptor ParseDescriptor(FieldReader& fields) {
  TensorDescriptor d;
  fields.Required("id", d.id, 0);
  fields.Required("name", d.name);
  fields.OneOf("kind", EvidenceKinds(), d.kind);
  fields.Required("dtype", d.dtype);
  fields.Required("shape", d.shape, 0, kSizeMax);
  fields.Optional("persistent", d.persistent);
  fields.Optional("requires_grad", d.requires_grad);
  fields.Optional("local_shape", d.local_shape, 0, kSizeMax);
  fields.Optional("local_stride", d.local_stride, 0, kSizeMax);
  const uint64_t elements = CheckedElements(fields, d.shape);
  if (fields.Known("placements")) {
    ForEach(fields, "placements", [&](const json& value, const std::string& pointer) {
      d.placements.push_back(ParsePlacement(value, pointer, fields.complaint()));
    });
  }
  ForEach(fields, "owned", [&](const json& value, const std::string& pointer) {
    d.owned.push_back(ParseRun(value, pointer, elements, fields.complaint()));
  });
  fields.Optional("alias_group", d.alias_group, -1);
  fields.Optional("identity", d.identity, -1);
  fields.Optional("attributes", d.attributes);
  return d;
}

void AppendBlocks(OrderedJson& out, const BlockDigests& blocks) {
  if (blocks.blocks.empty()) return;
  out["block_bytes"] = blocks.block_bytes;
  out["first_block"] = blocks.first_block;
  std::string hex;
  hex.reserve(kDigestDigits * blocks.blocks.size());
  for (const Digest& block : blocks.blocks) hex += block.Hex();
  out["blocks"] = std::move(hex);
}

void ParseBlocks(FieldReader& fields, BlockDigests& blocks) {
  if (!fields.Known("blocks")) return;
  fields.Required("block_bytes", blocks.block_bytes, 1, uint64_t{1} << 50);
  fields.Optional("first_block", blocks.first_block, 0, uint64_t{1} << 50);
  std::string hex;
  fields.Required("blocks", hex);
  blocks.blocks.reserve(hex.size() / kDigestDigits);
  for (size_t i = 0; i < hex.size() && fields.ok(); i += kDigestDigits) {
    const std::optional<Digest> block =
        Digest::FromHex(std::string_view(hex).substr(i, kDigestDigits));
    if (!block) {
      fields.complaint().Say(fields.PointerTo("blocks"),
                             fmt::format("expected {} hexadecimal digits a block, found \"{}\" at "
                                         "digit {}",
                                         kDigestDigits, hex.substr(i, kDigestDigits), i));
      return;
    }
    blocks.blocks.push_back(*block);
  }
}

void AppendBytes(OrderedJson& out, const std::vector<ByteRange>& ranges) {
  if (ranges.empty()) return;
  out["bytes"] = OrderedJson::array();
  for (const ByteRange& range : ranges) {
    out["bytes"].push_back({{"start", range.start}, {"hex", HexOf(range.bytes)}});
  }
}

void ParseBytes(FieldReader& fields, std::vector<ByteRange>& ranges) {
  if (!fields.Known("bytes")) return;
  ForEach(fields, "bytes", [&](const json& value, const std::string& pointer) {
    ByteRange range;
    std::string hex;
    FieldReader entry(value, pointer, fields.complaint());
    entry.Required("start", range.start, 0, uint64_t{1} << 50);
    entry.Required("hex", hex);
    entry.Finish();
    std::optional<std::string> bytes = BytesOf(hex);
    if (!bytes) {
      return fields.complaint().Say(pointer + "/hex", "expected two hexadecimal digits a byte");
    }
    range.bytes = std::move(*bytes);
    ranges.push_back(std::move(range));
  });
}

void ParseDigest(FieldReader& fields, const char* name, Digest& digest) {
  std::string hex;
  fields.Required(name, hex);
  if (!fields.ok()) return;
  const std::optional<Digest> parsed = Digest::FromHex(hex);
  if (!parsed) {
    return fields.complaint().Expected(
        fields.PointerTo(name), fmt::format("{} hexadecimal digits", kDigestDigits), json(hex));
  }
  digest = *parsed;
}

OrderedJson StateToJson(const std::string& name, const TensorState& state) {
  OrderedJson out = {{"record", "state"},
                     {"name", name},
                     {"tensor", state.descriptor},
                     {"device", state.device},
                     {"is_meta", state.is_meta},
                     {"content", ToString(state.content)},
                     {"digest", state.digest.Hex()},
                     {"coverage", state.coverage.Hex()},
                     {"nan", state.nan_count},
                     {"inf", state.inf_count}};
  if (state.first_nonfinite) out["first_nonfinite"] = *state.first_nonfinite;
  if (!state.unreadable.empty()) out["unreadable"] = state.unreadable;
  AppendBlocks(out, state.blocks);
  AppendBytes(out, state.bytes);
  return out;
}

TensorState ParseState(FieldReader& fields) {
  TensorState state;
  fields.Required("tensor", state.descriptor, 0);
  fields.Required("device", state.device);
  fields.Required("is_meta", state.is_meta);
  std::string content;
  fields.OneOf("content", ContentNames(), content);
  for (size_t i = 0; i < ContentNames().size(); ++i) {
    if (ContentNames()[i] == content) state.content = static_cast<Content>(i);
  }
  fields.Optional("unreadable", state.unreadable);
  // A tensor without a value has no digest to give.
  const bool defined = state.content == Content::kDefined;
  if (fields.Known("digest") || defined) ParseDigest(fields, "digest", state.digest);
  if (fields.Known("coverage") || defined) ParseDigest(fields, "coverage", state.coverage);
  fields.Optional("nan", state.nan_count);
  fields.Optional("inf", state.inf_count);
  fields.Optional("first_nonfinite", state.first_nonfinite);
  ParseBlocks(fields, state.blocks);
  ParseBytes(fields, state.bytes);
  return state;
}

OrderedJson CollectiveToJson(const CollectiveRecord& r) {
  OrderedJson out = {{"record", "collective"}, {"sequence", r.sequence}, {"op", r.op}};
  if (r.root != -1) out["root"] = r.root;
  out["dtype"] = r.dtype;
  out["count"] = r.count;
  out["tensors"] = r.tensors;
  if (!r.group.empty()) out["group"] = r.group;
  return out;
}

CollectiveRecord ParseCollective(FieldReader& fields) {
  CollectiveRecord r;
  fields.Required("sequence", r.sequence, 0);
  fields.Required("op", r.op);
  fields.Optional("root", r.root, -1);
  fields.Optional("dtype", r.dtype);
  fields.Optional("count", r.count);
  fields.Optional("tensors", r.tensors);
  fields.Optional("group", r.group, 0, kRankMax);
  return r;
}

OrderedJson FaultToJson(const FaultRecord& r) {
  return {{"record", "fault"}, {"id", r.id}, {"where", r.where}, {"detail", r.detail}};
}

FaultRecord ParseFaultRecord(FieldReader& fields) {
  FaultRecord r;
  fields.Required("id", r.id);
  fields.Optional("where", r.where);
  fields.Optional("detail", r.detail);
  return r;
}

OrderedJson ErrorToJson(const ErrorRecord& r) {
  return {{"record", "error"}, {"code", r.code}, {"stage", r.stage}, {"message", r.message}};
}

ErrorRecord ParseErrorRecord(FieldReader& fields) {
  ErrorRecord r;
  fields.Required("code", r.code);
  fields.Required("stage", r.stage);
  fields.Required("message", r.message);
  return r;
}

OrderedJson KeysToJson(const KeyReport& r) {
  return {{"record", "keys"}, {"missing", r.missing}, {"unexpected", r.unexpected}};
}

KeyReport ParseKeys(FieldReader& fields) {
  KeyReport r;
  fields.Required("missing", r.missing);
  fields.Required("unexpected", r.unexpected);
  return r;
}

OrderedJson OptimizerToJson(const OptimizerRecord& r) {
  OrderedJson groups = OrderedJson::array();
  for (const OptimizerGroup& group : r.groups) {
    groups.push_back({{"options", group.options}, {"parameters", group.parameters}});
  }
  OrderedJson strangers = OrderedJson::array();
  for (const Stranger& one : r.strangers) {
    strangers.push_back(
        {{"group", one.group}, {"index", one.index}, {"was", one.was}, {"shape", one.shape}});
  }
  return {{"record", "optimizer"}, {"groups", groups}, {"strangers", strangers}, {"values", r.values}};
}

OptimizerRecord ParseOptimizer(FieldReader& fields) {
  OptimizerRecord r;
  ForEach(fields, "groups", [&](const json& value, const std::string& pointer) {
    OptimizerGroup group;
    FieldReader entry(value, pointer, fields.complaint());
    entry.Required("options", group.options);
    entry.Required("parameters", group.parameters);
    entry.Finish();
    r.groups.push_back(std::move(group));
  });
  ForEach(fields, "strangers", [&](const json& value, const std::string& pointer) {
    Stranger stranger;
    FieldReader entry(value, pointer, fields.complaint());
    entry.Required("group", stranger.group, 0);
    entry.Required("index", stranger.index, 0);
    entry.Required("was", stranger.was);
    entry.Required("shape", stranger.shape, 0, kSizeMax);
    entry.Finish();
    r.strangers.push_back(std::move(stranger));
  });
  fields.Required("values", r.values);
  return r;
}

}  // namespace shardproof
