#include "verify/dcp_forms/damage.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "verify/dcp_forms/damage_target.h"

namespace shardproof::dcp_forms {
namespace {

using Kind = Py::Kind;

/// What is done to a checkpoint: to one of what it is made of, from the first to the last.
struct Edit {
  const char* name;
  const char* in_words;
  void (*item)(const Target&) = nullptr;                         ///< before it is an archive
  void (*archive)(std::string& bytes, const Target&) = nullptr;  ///< before it is in a file
  void (*metadata)(Py& root, const Target&) = nullptr;
  void (*text)(std::string& bytes, const Target&) = nullptr;  ///< of .metadata
};

/// What begins a pickle, where its stack and its memo are empty: what takes from either.
void TakeFromNothing(std::string& bytes, const Target& target) {
  static const std::vector<std::string> kTaking = {"0",
                                                   "1",
                                                   "2",
                                                   "a",
                                                   "b",
                                                   "d",
                                                   "e",
                                                   "h\x07",
                                                   std::string("j\x07\0\0\0", 5),
                                                   "l",
                                                   std::string("q\0", 2),
                                                   "s",
                                                   "t",
                                                   "u",
                                                   "Q",
                                                   "R",
                                                   "\x81",
                                                   "\x85",
                                                   "\x86",
                                                   "\x87",
                                                   "\x92",
                                                   "\x93",
                                                   "\x94"};
  bytes.insert(2, kTaking[target.draws.Below(kTaking.size())]);
}

/// Of as many elements as were there, some are then there twice.
void OtherInItsPlace(Py& metadata, const Target& target) {
  const std::vector<Item>& items = target.entry.items;
  std::vector<Py>& chunks = ChunksIn(metadata, target);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i == target.number || items[i].sizes != target.item().sizes) continue;
    const Py other = chunks[i];
    chunks[target.number] = other;
    return;
  }
  const Py own = chunks[target.number];
  chunks.push_back(own);
}

const Edit kEdits[] = {
    {.name = "cut",
     .in_words = "is cut short",
     .text = [](std::string& bytes,
                const Target& t) { bytes.resize(t.draws.Below(bytes.size())); }},
    {.name = "opcode",
     .in_words = "holds an opcode that no pickle has",
     .text = [](std::string& bytes, const Target&) { bytes.insert(2, "\xff"); }},
    {.name = "protocol",
     .in_words = "is a pickle of a protocol that there is not",
     .text = [](std::string& bytes, const Target& t) { bytes[1] = t.draws.Flag() ? 9 : -1; }},
    {.name = "stack",
     .in_words = "takes what is not there from its stack or its memo",
     .text = TakeFromNothing},
    {.name = "class",
     .in_words = "is of another class",
     .metadata =
         [](Py& root, const Target&) {
           root.items[0] =
               Py::Name("torch.distributed.checkpoint.metadata", "ChunkStorageMetadata");
         }},
    {.name = "program",
     .in_words = "runs a program",
     .metadata =
         [](Py& root, const Target& t) {
           Py& size = State(EntryIn(root, t)).At("size");
           size = Py::Of(Kind::kCall,
                         {Py::Name(t.draws.Flag() ? "os" : "posix", "system"), Py::Text("true")});
         }},
    {.name = "entry-class",
     .in_words = "gives {} an entry that is none",
     .metadata =
         [](Py& root, const Target& t) {
           // Of a scalar, whose piece lies where a value would, it would be one.
           const bool may_be_value = !t.entry.shape.empty() && t.draws.Flag();
           EntryIn(root, t).items[0] =
               Py::Name("torch.distributed.checkpoint.metadata",
                        may_be_value ? "BytesStorageMetadata" : "TensorProperties");
         }},
    {.name = "field-gone",
     .in_words = "lacks a field about {}",
     .metadata = [](Py& root, const Target& t) { EraseField(AnyField(root, t)); }},
    {.name = "field-kind",
     .in_words = "has a field about {} of another kind",
     .metadata =
         [](Py& root, const Target& t) {
           const Field field = AnyField(root, t);
           Py& value = field.dict->At(field.name);
           const Py other[] = {Py::None(), Py::Bool(true), Py::Name("torch", "float32"),
                               value.kind == Kind::kText ? Py::Integer(1) : Py::Text("x")};
           value = other[t.draws.Below(std::size(other))];
         }},
    {.name = "negative",
     .in_words = "has a negative number about {}",
     .metadata =
         [](Py& root, const Target& t) {
           AnyNumber(root, t).integer = t.draws.Flag() ? -1 : std::numeric_limits<int64_t>::min();
         }},
    {.name = "huge",
     .in_words = "has a number about {} that is too large",
     .metadata =
         [](Py& root, const Target& t) {
           AnyNumber(root, t).integer =
               std::numeric_limits<int64_t>::max() - static_cast<int64_t>(t.draws.Below(2));
         }},
    {.name = "dtype",
     .in_words = "gives {} a dtype that its pieces have not",
     .metadata =
         [](Py& root, const Target& t) {
           Py& dtype = State(State(EntryIn(root, t)).At("properties")).items[0];
           const bool is_short = t.entry.dtype->bytes == 2;
           const char* other = t.draws.Flag() ? "float8_e4m3fnuz" : is_short ? "float32" : "int16";
           dtype = Py::Name("torch", other);
         }},
    {.name = "layout",
     .in_words = "says that {} is sparse",
     .metadata =
         [](Py& root, const Target& t) {
           State(State(EntryIn(root, t)).At("properties")).items[1].items[1] =
               Py::Text("torch.sparse_coo");
         }},
    {.name = "shape",
     .in_words = "gives {} a shape that its pieces do not fill",
     .metadata =
         [](Py& root, const Target& t) {
           std::vector<Py>& sizes = State(EntryIn(root, t)).At("size").items[1].items;
           if (sizes.empty() || t.draws.Below(4) == 0) return sizes.push_back(Py::Integer(2));
           sizes[t.draws.Below(sizes.size())].integer += t.draws.Flag() ? 1 : -1;
         }},
    {.name = "chunk-gone",
     .in_words = "lacks a piece of {}",
     .metadata =
         [](Py& root, const Target& t) {
           std::vector<Py>& chunks = ChunksIn(root, t);
           chunks.erase(chunks.begin() + static_cast<ptrdiff_t>(t.number));
         }},
    {.name = "chunk-twice",
     .in_words = "has a piece of {} twice",
     .metadata =
         [](Py& root, const Target& t) {
           const Py chunk = ChunksIn(root, t)[t.number];
           ChunksIn(root, t).push_back(chunk);
         }},
    {.name = "chunk-moved",
     .in_words = "has a piece of {} elsewhere in the tensor",
     .metadata =
         [](Py& root, const Target& t) {
           Py& offsets = State(ChunksIn(root, t)[t.number]).At("offsets");
           Shift(offsets, t, 1);
           Py& index = State(root).At("storage_data").items[IndexIn(root, t)];
           if (t.draws.Flag()) State(index).At("offset") = offsets;
         }},
    {.name = "chunk-sizes",
     .in_words = "gives a piece of {} other sizes",
     .metadata =
         [](Py& root, const Target& t) {
           Shift(State(ChunksIn(root, t)[t.number]).At("sizes"), t, t.draws.Flag() ? 1 : -1);
         }},
    {.name = "place-gone",
     .in_words = "does not say where a piece of {} is",
     .metadata =
         [](Py& root, const Target& t) {
           std::vector<Py>& places = State(root).At("storage_data").items;
           const auto at = places.begin() + static_cast<ptrdiff_t>(IndexIn(root, t));
           places.erase(at, at + 2);
         }},
    {.name = "place-offset",
     .in_words = "gives a piece of {} a wrong offset in its file",
     .metadata =
         [](Py& root, const Target& t) {
           State(PlaceIn(root, t)).At("offset").integer += t.draws.Flag() ? 1 : -1;
         }},
    {.name = "place-length",
     .in_words = "gives a piece of {} a wrong length",
     .metadata =
         [](Py& root, const Target& t) {
           Py& length = State(PlaceIn(root, t)).At("length");
           constexpr int64_t kBeyond = int64_t{1} << 32;
           length.integer +=
               t.draws.Flag() ? kBeyond : -1 - static_cast<int64_t>(t.draws.Below(22));
         }},
    {.name = "absent-file",
     .in_words = "says that a file which is not there holds a piece of {}",
     .metadata =
         [](Py& root, const Target& t) {
           State(PlaceIn(root, t)).At("relative_path") = Py::Text("__1024_0.distcp");
         }},
    {.name = "transform",
     .in_words = "says that a piece of {} is compressed",
     .metadata =
         [](Py& root, const Target& t) {
           Py& place = State(PlaceIn(root, t));
           EraseField({&place, "transform_descriptors"});
           place.items.push_back(Py::Text("transform_descriptors"));
           place.items.push_back(Py::Of(Kind::kList, {Py::Text("zstd")}));
         }},
    {.name = "item-dtype",
     .in_words = "holds a piece of {} of another dtype",
     .item =
         [](const Target& t) {
           Py& content = t.item().content;
           const bool is_half = std::string_view(t.entry.dtype->name) == "F16";
           if (content.items.size() > 7)  // of _rebuild_tensor_v3
             content.items[7] = Py::Name("torch", is_half ? "bfloat16" : "float16");
           else
             content.items[1].items[0].items[1] =
                 Py::Name("torch", is_half ? "BFloat16Storage" : "HalfStorage");
         }},
    {.name = "item-shape",
     .in_words = "holds a piece of {} of another shape",
     .item =
         [](const Target& t) {
           std::vector<Py>& sizes = t.item().content.items[3].items;
           std::vector<Py>& strides = t.item().content.items[4].items;
           if (sizes.empty() || t.draws.Flag()) {
             sizes.push_back(Py::Integer(1));
             return strides.push_back(Py::Integer(1));
           }
           sizes.pop_back();
           strides.pop_back();
         }},
    {.name = "item-begin",
     .in_words = "holds a piece of {} that goes on behind its bytes",
     .item =
         [](const Target& t) {
           const auto width = static_cast<int64_t>(t.entry.dtype->bytes);
           const auto held = static_cast<int64_t>(t.item().storage.size()) / width;
           t.item().content.items[2].integer = held - t.Elements() + 1;
         }},
    {.name = "item-class",
     .in_words = "holds what is no tensor in place of a piece of {}",
     .item =
         [](const Target& t) {
           Py& content = t.item().content;
           content = t.draws.Flag() ? Py::Of(Kind::kCall, {Py::Name("collections", "OrderedDict")})
                                    : content.items[1];
         }},
    {.name = "item-arguments",
     .in_words = "holds a piece of {} without all that makes a tensor",
     .item =
         [](const Target& t) {
           std::vector<Py>& items = t.item().content.items;
           items.resize(2 + t.draws.Below(3));
         }},
    {.name = "item-storage",
     .in_words = "holds a piece of {} without its bytes",
     .item = [](const Target& t) { t.item().content.items[1].items[0].items[2] = Py::Text("1"); }},
    {.name = "item-program",
     .in_words = "runs a program for a piece of {}",
     .item =
         [](const Target& t) {
           t.item().content = Py::Of(Kind::kCall, {Py::Name("builtins", "eval"), Py::Text("1")});
         }},
    {.name = "item-cut",
     .in_words = "holds a piece of {} that is cut short",
     .archive =
         [](std::string& bytes, const Target& t) {
           bytes.resize(bytes.size() - 1 - t.draws.Below(bytes.size()));
         }},
    {.name = "member-gone",
     .in_words = "holds a piece of {} whose archive lacks what it needs",
     .archive =
         [](std::string& bytes, const Target& t) {
           const std::string name = AnyMember(t);
           bytes[bytes.rfind("/" + name) + name.size()] = 'x';
         }},
    {.name = "compressed",
     .in_words = "holds a piece of {} that is said to be compressed",
     .archive = [](std::string& bytes,
                   const Target& t) { bytes[EntryOf(bytes, AnyMember(t)) + 10] = 8; }},
    {.name = "encrypted",
     .in_words = "holds a piece of {} that is said to be encrypted",
     .archive = [](std::string& bytes,
                   const Target& t) { bytes[EntryOf(bytes, AnyMember(t)) + 8] |= 1; }},
    {.name = "member-sizes",
     .in_words = "holds a piece of {} that is not as long as it says",
     .archive =
         [](std::string& bytes, const Target& t) {
           bytes[EntryOf(bytes, AnyMember(t)) + (t.draws.Flag() ? 20 : 24)] ^= 1;
         }},
    {.name = "member-offset",
     .in_words = "holds a piece of {} that is not where its archive says",
     .archive = [](std::string& bytes,
                   const Target& t) { bytes[EntryOf(bytes, AnyMember(t)) + 42] ^= 1; }},
    {.name = "mark",
     .in_words = "holds a piece of {} whose archive lacks a mark",
     .archive =
         [](std::string& bytes, const Target& t) {
           const size_t end = bytes.size() - 22;
           bytes[(t.draws.Flag() ? end : EntryOf(bytes, AnyMember(t))) + t.draws.Below(4)] ^= 1;
         }},
    {.name = "count",
     .in_words = "holds a piece of {} whose archive has fewer members than it says",
     .archive = [](std::string& bytes, const Target&) { bytes[EndOf(bytes).count] += 1; }},
    {.name = "directory",
     .in_words = "holds a piece of {} whose archive has its directory elsewhere",
     .archive =
         [](std::string& bytes, const Target& t) {
           const End end = EndOf(bytes);
           bytes[t.draws.Flag() ? end.bytes : end.offset] ^= 1;
         }},
    {.name = "chunk-other",
     .in_words = "has a piece of {} twice, and another not at all",
     .metadata = OtherInItsPlace},
    {.name = "local-header",
     .in_words = "holds a piece of {} whose archive has a member that goes on behind its end",
     .archive =
         [](std::string& bytes, const Target& t) {
           const size_t member = bytes.find("/" + AnyMember(t));
           const size_t header = bytes.rfind("PK\x03\x04", member);
           // Of an archive of more than that, the next member's mark is none.
           if (bytes.size() < UINT16_MAX)
             bytes.replace(header + 28, 2, "\xff\xff");
           else
             bytes[header] ^= 1;
         }},
    {.name = "extra-field",
     .in_words = "holds a piece of {} whose archive has a field that is longer than there is room",
     .archive =
         [](std::string& bytes, const Target& t) {
           const size_t entry = EntryOf(bytes, AnyMember(t));
           const auto at = [&](size_t place) { return static_cast<unsigned char>(bytes[place]); };
           const size_t extra = entry + 46 + at(entry + 28);  // the names are short
           const bool has_extra = at(entry + 30) > 0;
           if (has_extra)
             bytes.replace(extra + 2, 2, "\xff\xff");
           else
             bytes[entry] ^= 1;
         }},
};

const Edit* Find(const std::string& name) {
  const auto* found = std::find_if(std::begin(kEdits), std::end(kEdits),
                                   [&](const Edit& edit) { return edit.name == name; });
  return found == std::end(kEdits) ? nullptr : found;
}

}  // namespace

std::vector<std::string> DamageNames() {
  std::vector<std::string> names;
  for (const Edit& edit : kEdits) names.emplace_back(edit.name);
  return names;
}

std::string DamageInWords(const std::string& name) {
  const Edit* edit = Find(name);
  return edit == nullptr ? "" : edit->in_words;
}

Result<Damaged> Damage(const Case& test_case, const std::string& name, uint64_t n) {
  const Edit* edit = Find(name);
  if (edit == nullptr) return BadInput(fmt::format("'{}' is nothing that can be done", name));
  SP_ASSIGN(Dcp dcp, TakeApart(test_case));
  std::vector<Entry*> with_bytes;
  for (Entry& entry : dcp.entries) {
    const bool has_bytes =
        entry.dtype != nullptr && entry.path.empty() &&
        std::find(entry.shape.begin(), entry.shape.end(), 0) == entry.shape.end();
    if (has_bytes) with_bytes.push_back(&entry);
  }
  if (with_bytes.empty()) return BadInput("the checkpoint has no tensor with a byte");
  std::sort(with_bytes.begin(), with_bytes.end(),
            [](const Entry* a, const Entry* b) { return a->key < b->key; });
  Draws draws(n);
  Entry& entry = *with_bytes[n % with_bytes.size()];
  const Target target{entry, draws.Below(entry.items.size()), draws};
  if (edit->item != nullptr) edit->item(target);
  Build(dcp);
  if (edit->archive != nullptr) edit->archive(target.item().archive, target);
  LayOut(dcp);
  Py metadata = MetadataOf(dcp);
  if (edit->metadata != nullptr) edit->metadata(metadata, target);
  std::string text = MetadataText(dcp, metadata);
  if (edit->text != nullptr) edit->text(text, target);
  const bool is_of_item = edit->item != nullptr || edit->archive != nullptr;
  Damaged damaged{.files = dcp.files,
                  .file = is_of_item ? target.item().file : kMetadataName,
                  .key = entry.key};
  damaged.files[kMetadataName] = std::move(text);
  return damaged;
}

}  // namespace shardproof::dcp_forms
