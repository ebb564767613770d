// Which box lies where in which file, and the pickle that says so.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/checkpoint/dcp.h"
#include "src/format/torch_names.h"
#include "src/pickle/pickle_writer.h"

namespace shardproof {
namespace {

using pickle::PickleWriter;

constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";

uint64_t AlignedUp(uint64_t offset) {
  return (offset + kItemAlignment - 1) / kItemAlignment * kItemAlignment;
}

/// What a rank writes of a tensor.
std::vector<Box> BoxesOn(const StateTensor& tensor, const Job& job, const Stages& stages,
                         int64_t rank) {
  if (!tensor.IsWrittenBy(rank, job.mesh)) return {};
  const Slot& slot = *tensor.slot;
  const Shard shard = tensor.only_rank >= 0 ? ShardOf(slot.spec.shape, {}, {}, {})
                                            : stages.chunk(slot, slot.placements, job.mesh,
                                                           job.mesh.CoordinatesOf(rank));
  if (!tensor.part) return BoxesOf(slot.spec.shape, shard);
  const uint64_t elements = tensor.bytes() / slot.ElementBytes();
  uint64_t local_start = 0;
  std::vector<Box> boxes =
      BoxesOf(tensor.shape(), PartOfShard(shard, tensor.part->start, elements, local_start));
  for (Box& box : boxes) box.local_start += local_start;
  return boxes;
}

bool IsEmpty(const std::vector<int64_t>& shape) {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

void BeginObject(PickleWriter& out, const char* module, const char* name) {
  out.Name(module, name);
  out.EmptyTuple();
  out.NewObject();
}

void PutProperties(PickleWriter& out, at::ScalarType dtype) {
  BeginObject(out, kMetadataModule, "TensorProperties");
  out.Mark();
  out.Name("torch", TorchDtypeName(dtype));
  out.Name("torch.serialization", "_get_layout");
  out.Mark();
  out.Text("torch.strided");
  out.Tuple();
  out.Reduce();
  out.Bool(false);  // requires no gradient
  out.Name("builtins", "getattr");
  out.Mark();
  out.Name(kMetadataModule, "_MEM_FORMAT_ENCODING");
  out.Text("TORCH_CONTIGUOUS_FORMAT");
  out.Tuple();
  out.Reduce();
  out.Bool(false);  // not pinned
  out.Tuple();
  out.Build();
}

void PutTensorEntry(PickleWriter& out, const StateTensor& tensor,
                    const std::vector<const DcpItem*>& items) {
  BeginObject(out, kMetadataModule, "TensorStorageMetadata");
  out.EmptyDict();
  out.Mark();
  out.Text("properties");
  PutProperties(out, tensor.slot->spec.dtype);
  out.Text("size");
  out.Size(tensor.shape());
  out.Text("chunks");
  out.EmptyList();
  out.Mark();
  for (const DcpItem* item : items) {
    BeginObject(out, kMetadataModule, "ChunkStorageMetadata");
    out.EmptyDict();
    out.Mark();
    out.Text("offsets");
    out.Size(item->box.offsets);
    out.Text("sizes");
    out.Size(item->box.sizes);
    out.SetItems();
    out.Build();
  }
  out.Appends();
  out.SetItems();
  out.Build();
}

void PutPlace(PickleWriter& out, const std::string& key, const DcpItem& item, int64_t index,
              const std::string& file) {
  BeginObject(out, kMetadataModule, "MetadataIndex");
  out.EmptyDict();
  out.Mark();
  out.Text("fqn");
  out.Text(key);
  out.Text("index");
  if (item.is_tensor)
    out.Integer(index);
  else
    out.None();
  out.Text("offset");
  if (item.is_tensor)
    out.Size(item.box.offsets);
  else
    out.None();
  out.SetItems();
  out.Build();
  BeginObject(out, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
  out.EmptyDict();
  out.Mark();
  out.Text("relative_path");
  out.Text(file);
  out.Text("offset");
  out.Integer(static_cast<int64_t>(item.offset));
  out.Text("length");
  out.Integer(static_cast<int64_t>(item.item.bytes()));
  out.SetItems();
  out.Build();
}

void PutPath(PickleWriter& out, const StatePath& path) {
  out.Mark();
  for (const auto& key : path) {
    if (const auto* name = std::get_if<std::string>(&key))
      out.Text(*name);
    else
      out.Integer(std::get<int64_t>(key));
  }
  out.Tuple();
}

/// Where the pieces of every entry lie: with the name of their file.
struct Placed {
  const DcpItem* item;
  const std::string* file;
};

}  // namespace

std::string DcpFileName(int64_t rank) { return fmt::format("__{}_0.distcp", rank); }

DcpFile PlanDcpFile(const StateDict& state, const Job& job, const Stages& stages, int64_t rank) {
  DcpFile file{.name = DcpFileName(rank)};
  const auto add = [&](DcpItem item) {
    item.offset = AlignedUp(file.size);
    file.size = item.offset + item.item.bytes();
    file.items.push_back(std::move(item));
  };
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    const StateTensor& tensor = state.tensors[i];
    const at::ScalarType dtype = tensor.slot->spec.dtype;
    const auto entry = static_cast<int64_t>(i);
    // One without elements has one piece, as DCP has it, so that it is found at all.
    if (IsEmpty(tensor.shape())) {
      if (rank != 0) continue;
      Box box{std::vector<int64_t>(tensor.shape().size()), tensor.shape()};
      add({entry, true, std::move(box), TorchItem::OfTensor(dtype, tensor.shape())});
      continue;
    }
    for (Box& box : BoxesOn(tensor, job, stages, rank)) {
      TorchItem item = TorchItem::OfTensor(dtype, box.sizes);
      add({entry, true, std::move(box), std::move(item)});
    }
  }
  if (rank != 0) return file;
  for (size_t i = 0; i < state.values.size(); ++i) {
    add({static_cast<int64_t>(i), false, {}, TorchItem::OfValue(state.values[i].pickle)});
  }
  return file;
}

std::string DcpMetadata(const StateDict& state, const std::vector<DcpFile>& files) {
  std::vector<std::vector<Placed>> of_tensor(state.tensors.size());
  std::vector<Placed> of_value(state.values.size());
  for (const DcpFile& file : files) {
    for (const DcpItem& item : file.items) {
      if (item.is_tensor)
        of_tensor[item.entry].push_back({&item, &file.name});
      else
        of_value[item.entry] = {&item, &file.name};
    }
  }
  PickleWriter out;
  BeginObject(out, kMetadataModule, "Metadata");
  out.EmptyDict();
  out.Mark();
  out.Text("state_dict_metadata");
  out.EmptyDict();
  out.Mark();
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    std::vector<const DcpItem*> items;
    for (const Placed& placed : of_tensor[i]) items.push_back(placed.item);
    for (const StatePath& path : state.tensors[i].paths) {
      out.Text(FlatKey(path));
      PutTensorEntry(out, state.tensors[i], items);
    }
  }
  for (const StateValue& value : state.values) {
    out.Text(FlatKey(value.path));
    BeginObject(out, kMetadataModule, "BytesStorageMetadata");
  }
  out.SetItems();
  out.Text("planner_data");
  out.EmptyDict();
  out.Mark();
  const auto put_path = [&](const StatePath& path) {
    out.Text(FlatKey(path));
    PutPath(out, path);
  };
  for (const StateTensor& tensor : state.tensors) {
    for (const StatePath& path : tensor.paths) put_path(path);
  }
  for (const StateValue& value : state.values) put_path(value.path);
  out.SetItems();
  out.Text("storage_data");
  out.EmptyDict();
  out.Mark();
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    for (const StatePath& path : state.tensors[i].paths) {
      int64_t index = 0;
      for (const Placed& placed : of_tensor[i]) {
        PutPlace(out, FlatKey(path), *placed.item, index++, *placed.file);
      }
    }
  }
  for (size_t i = 0; i < state.values.size(); ++i) {
    PutPlace(out, FlatKey(state.values[i].path), *of_value[i].item, 0, *of_value[i].file);
  }
  out.SetItems();
  out.Text("storage_meta");
  out.None();
  out.Text("version");
  out.Text("1.0.0");
  out.SetItems();
  out.Build();
  return out.Finish();
}

}  // namespace shardproof
