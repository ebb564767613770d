#include "verify/evidence/records_json.h"

#include <fmt/format.h>

#include "verify/case/axes.h"

namespace shardproof {
namespace {

constexpr size_t kDigestDigits = 32;
constexpr int64_t kRankMax = 65535;

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
  static const NameTable names = {"replicate",     "shard",      "partial",
                                  "strided_shard", "flat_shard", "uneven_shard"};
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

OwnedRun ParseRun(const JsonValue& value, const std::string& pointer, uint64_t elements,
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

PlacementRecord ParsePlacement(const JsonValue& value, const std::string& pointer,
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
        elements > static_cast<uint64_t>(kRecordedSizeMax)) {
      fields.complaint().Say(
          fields.PointerTo("shape"),
          fmt::format("expected at most {} elements, found more", kRecordedSizeMax));
      return 0;
    }
  }
  return elements;
}

}  // namespace

std::string ToString(Content content) {
  return std::string(ContentNames()[static_cast<size_t>(content)]);
}

JsonText Record(const char* kind) {
  JsonText line;
  line.Begin('{').Add("record", kind);
  return line;
}

namespace {

void AddPlacements(JsonText& out, const std::vector<PlacementRecord>& placements) {
  out.Begin("placements", '[');
  for (const PlacementRecord& placement : placements) {
    out.Begin('{').Add("kind", placement.kind);
    if (placement.kind == "shard" || placement.kind == "strided_shard")
      out.Add("dim", placement.dim);
    if (placement.kind == "strided_shard") out.Add("split_factor", placement.split_factor);
    out.End('}');
  }
  out.End(']');
}

void AddOwned(JsonText& out, const std::vector<OwnedRun>& owned) {
  out.Begin("owned", '[');
  for (const OwnedRun& run : owned) {
    out.Begin('{').Add("start", run.start).Add("length", run.length);
    if (run.count != 1) out.Add("count", run.count).Add("stride", run.stride);
    out.End('}');
  }
  out.End(']');
}

}  // namespace

std::string DescriptorLine(const TensorDescriptor& d) {
  JsonText line = Record("tensor");
  line.Add("id", d.id).Add("name", d.name).Add("kind", d.kind).Add("dtype", d.dtype);
  line.Add("shape", d.shape).Add("persistent", d.persistent).Add("requires_grad", d.requires_grad);
  line.Add("local_shape", d.local_shape).Add("local_stride", d.local_stride);
  AddPlacements(line, d.placements);
  AddOwned(line, d.owned);
  if (d.alias_group != -1) line.Add("alias_group", d.alias_group);
  if (d.identity != -1) line.Add("identity", d.identity);
  if (d.also) line.Add("also", true);
  if (d.in_turn) line.Add("in_turn", true);
  if (!d.varies.empty()) line.Add("varies", d.varies);
  if (!d.attributes.empty()) line.Add("attributes", d.attributes);
  return line.End('}').text();
}

TensorDescriptor ParseDescriptor(FieldReader& fields) {
  TensorDescriptor d;
  fields.Required("id", d.id, 0);
  fields.Required("name", d.name);
  fields.OneOf("kind", EvidenceKinds(), d.kind);
  fields.Required("dtype", d.dtype);
  fields.Required("shape", d.shape, 0, kRecordedSizeMax);
  fields.Optional("persistent", d.persistent);
  fields.Optional("requires_grad", d.requires_grad);
  fields.Optional("local_shape", d.local_shape, 0, kRecordedSizeMax);
  fields.Optional("local_stride", d.local_stride, 0, kRecordedSizeMax);
  const uint64_t elements = CheckedElements(fields, d.shape);
  if (fields.Known("placements")) {
    ForEach(fields, "placements", [&](const JsonValue& value, const std::string& pointer) {
      d.placements.push_back(ParsePlacement(value, pointer, fields.complaint()));
    });
  }
  fields.Optional("mesh", d.mesh, -1);
  fields.Optional("groups", d.groups, -1);
  ForEach(fields, "owned", [&](const JsonValue& value, const std::string& pointer) {
    d.owned.push_back(ParseRun(value, pointer, elements, fields.complaint()));
  });
  fields.Optional("alias_group", d.alias_group, -1);
  fields.Optional("identity", d.identity, -1);
  fields.Optional("also", d.also);
  fields.Optional("in_turn", d.in_turn);
  if (fields.Known("varies")) fields.OneOf("varies", {"batches", "own", "rewritten"}, d.varies);
  fields.Optional("attributes", d.attributes);
  return d;
}

namespace {

AxisCase ParseAxis(const JsonValue& value, const std::string& pointer, Complaint& complaint,
                   bool is_laid_over) {
  AxisCase axis;
  FieldReader fields(value, pointer, complaint);
  fields.Required("name", axis.name);
  fields.Required("size", axis.size, 1, kRecordedRanksMax);
  if (is_laid_over) fields.Required("over", axis.over);
  fields.Finish();
  return axis;
}

}  // namespace

std::vector<AxisCase> ParseAxes(FieldReader& fields, const char* name) {
  std::vector<AxisCase> axes;
  ForEach(fields, name, [&](const JsonValue& value, const std::string& pointer) {
    axes.push_back(ParseAxis(value, pointer, fields.complaint(), /*is_laid_over=*/false));
  });
  return axes;
}

std::vector<AxisCase> ParseLaidOver(FieldReader& fields, const char* name,
                                    const std::vector<AxisCase>& mesh) {
  std::vector<AxisCase> axes;
  ForEach(fields, name, [&](const JsonValue& value, const std::string& pointer) {
    AxisCase axis = ParseAxis(value, pointer, fields.complaint(), /*is_laid_over=*/true);
    if (!fields.ok()) return;
    const std::string fault = axis.over.empty()
                                  ? fmt::format("axis {} is laid over no axis", axis.name)
                                  : AxisFault(mesh, axis);
    if (!fault.empty()) fields.complaint().Say(pointer, fault);
    axes.push_back(std::move(axis));
  });
  return fields.ok() ? axes : std::vector<AxisCase>();
}

MeshRecord ParseMeshRecord(FieldReader& fields) {
  MeshRecord mesh;
  mesh.axes = ParseAxes(fields, "axes");
  fields.Required("coordinates", mesh.coordinates, 0, kRecordedRanksMax);
  if (fields.ok() && mesh.axes.size() != mesh.coordinates.size()) {
    fields.complaint().Say("/coordinates", fmt::format("expected one for each of {} axes, found {}",
                                                       mesh.axes.size(), mesh.coordinates.size()));
  }
  return mesh;
}

GroupsRecord ParseGroupsRecord(FieldReader& fields) {
  GroupsRecord groups;
  fields.Required("whole", groups.whole, 0, kRankMax);
  fields.Required("alike", groups.alike, 0, kRankMax);
  fields.Required("members", groups.members, 0, kRankMax);
  fields.Optional("stated", groups.stated);
  fields.Optional("named_once", groups.named_once);
  return groups;
}

void AddBlocks(JsonText& out, const BlockDigests& blocks) {
  if (blocks.blocks.empty()) return;
  std::string hex;
  hex.reserve(kDigestDigits * blocks.blocks.size());
  for (const Digest& block : blocks.blocks) hex += block.Hex();
  out.Add("block_bytes", blocks.block_bytes)
      .Add("first_block", blocks.first_block)
      .Add("blocks", hex);
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

void AddBytes(JsonText& out, const std::vector<ByteRange>& ranges) {
  if (ranges.empty()) return;
  out.Begin("bytes", '[');
  for (const ByteRange& range : ranges) {
    out.Begin('{').Add("start", range.start).Add("hex", HexOf(range.bytes)).End('}');
  }
  out.End(']');
}

void ParseBytes(FieldReader& fields, std::vector<ByteRange>& ranges) {
  if (!fields.Known("bytes")) return;
  ForEach(fields, "bytes", [&](const JsonValue& value, const std::string& pointer) {
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
    return fields.complaint().Expected(fields.PointerTo(name),
                                       fmt::format("{} hexadecimal digits", kDigestDigits), hex);
  }
  digest = *parsed;
}

std::string StateLine(const std::string& name, const TensorState& state, int64_t id) {
  JsonText line = Record("state");
  line.Add("name", name).Add("tensor", id).Add("device", state.device);
  line.Add("is_meta", state.is_meta).Add("content", ToString(state.content));
  line.Add("digest", state.digest.Hex()).Add("coverage", state.coverage.Hex());
  line.Add("nan", state.nan_count).Add("inf", state.inf_count);
  if (state.first_nonfinite) line.Add("first_nonfinite", *state.first_nonfinite);
  if (!state.unreadable.empty()) line.Add("unreadable", state.unreadable);
  AddBlocks(line, state.blocks);
  AddBytes(line, state.bytes);
  return line.End('}').text();
}

TensorState ParseState(FieldReader& fields) {
  TensorState state;
  fields.Required("tensor", state.descriptor, 0);
  fields.Required("device", state.device);
  if (state.device == "apart") state.device = "isolated";  // its former name
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

std::string CollectiveLine(const CollectiveRecord& r) {
  JsonText line = Record("collective");
  line.Add("sequence", r.sequence).Add("op", r.op);
  if (r.root != -1) line.Add("root", r.root);
  line.Add("dtype", r.dtype).Add("count", r.count).Add("tensors", r.tensors);
  if (!r.group.empty()) line.Add("group", r.group);
  return line.End('}').text();
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

std::string FaultLine(const FaultRecord& r) {
  JsonText line = Record("fault");
  line.Add("id", r.id).Add("where", r.where).Add("detail", r.detail).Add("model", r.model);
  if (!r.call.empty()) line.Add("call", r.call);
  if (!r.error.empty()) line.Add("error", r.error);
  if (!r.file.empty()) line.Add("file", r.file);
  if (r.byte) line.Add("byte", *r.byte);
  if (!r.tensors.empty()) line.Add("tensors", r.tensors);
  if (!r.rows.empty()) line.Add("rows", r.rows);
  if (r.step) line.Add("step", *r.step);
  if (r.absent) line.Add("absent", true);
  if (r.harmless) line.Add("harmless", true);
  return line.End('}').text();
}

FaultRecord ParseFaultRecord(FieldReader& fields) {
  FaultRecord r;
  fields.Required("id", r.id);
  fields.Optional("where", r.where);
  fields.Optional("detail", r.detail);
  fields.Optional("model", r.model);
  fields.Optional("call", r.call);
  fields.Optional("error", r.error);
  fields.Optional("file", r.file);
  fields.Optional("byte", r.byte);
  fields.Optional("tensors", r.tensors);
  fields.Optional("rows", r.rows, 0, kRecordedSizeMax);
  fields.Optional("step", r.step);
  fields.Optional("absent", r.absent);
  fields.Optional("harmless", r.harmless);
  return r;
}

std::string ErrorLine(const ErrorRecord& r) {
  JsonText line = Record("error");
  line.Add("code", r.code).Add("stage", r.stage).Add("message", r.message);
  if (!r.type.empty()) line.Add("type", r.type);
  return line.End('}').text();
}

ErrorRecord ParseErrorRecord(FieldReader& fields) {
  ErrorRecord r;
  fields.Required("code", r.code);
  fields.Required("stage", r.stage);
  fields.Required("message", r.message);
  fields.Optional("type", r.type);
  return r;
}

std::string KeysLine(const KeyReport& r) {
  return Record("keys").Add("missing", r.missing).Add("unexpected", r.unexpected).End('}').text();
}

KeyReport ParseKeys(FieldReader& fields) {
  KeyReport r;
  fields.Required("missing", r.missing);
  fields.Required("unexpected", r.unexpected);
  return r;
}

namespace {

std::vector<StoredPiece> ParsePieces(const JsonValue& value, const std::string& pointer,
                                     Complaint& complaint) {
  std::vector<StoredPiece> pieces;
  const auto read = [&](const JsonValue& element, const std::string& at) {
    StoredPiece& piece = pieces.emplace_back();
    FieldReader of_piece(element, at, complaint);
    of_piece.Required("key", piece.key);
    of_piece.Required("start", piece.start, 0, static_cast<uint64_t>(kRecordedSizeMax));
    of_piece.Required("count", piece.count, 1, static_cast<uint64_t>(kRecordedSizeMax));
    of_piece.Finish();
  };
  ForEachElement(value, pointer, complaint, read);
  return pieces;
}

}  // namespace

TwinRecord ParseTwin(FieldReader& fields) {
  TwinRecord r;
  fields.Required("made_by", r.made_by);
  ForEachMember(fields, "pieces",
                [&](const std::string& name, const JsonValue& value, const std::string& at) {
                  r.pieces[name] = ParsePieces(value, at, fields.complaint());
                });
  fields.Required("used_attributes", r.used_attributes);
  return r;
}

}  // namespace shardproof
