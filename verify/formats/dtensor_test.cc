// DTensors of hostile files: their placements and meshes are such that reading them plainly would
// take minutes.
#include "verify/formats/dtensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/formats/stored.h"
#include "verify/oracle/fixture_files.h"
#include "verify/process/program.h"

namespace shardproof::formats {
namespace {

using ::testing::HasSubstr;

/// Writes files as torch.save does, without torch, whose names it makes up: several names of one
/// DTensor of bytes.
constexpr char kMake[] = R"(
import io, pickle, sys, types, zipfile
def made(kind, name):
    module, _, last = name.rpartition(".")
    sys.modules.setdefault(module, types.ModuleType(module))
    one = type(last, (), {}) if kind == "class" else lambda *_: None
    one.__module__, one.__qualname__, one.__name__ = module, last, last
    setattr(sys.modules[module], last, one)
    return one
for parent in ("torch", "torch.distributed"):
    sys.modules[parent] = types.ModuleType(parent)
view, wrap, from_type = (made("function", "torch." + name) for name in (
    "_utils._rebuild_tensor_v2", "_utils._rebuild_wrapper_subclass",
    "_tensor._rebuild_from_type_v2"))
DTensor, Spec, Strided, Mesh, Bytes, Longs = (made("class", "torch." + name) for name in (
    "distributed.tensor.DTensor", "distributed.tensor._dtensor_spec.DTensorSpec",
    "distributed.tensor.placement_types._StridedShard", "distributed.device_mesh.DeviceMesh",
    "ByteStorage", "LongStorage"))
class Call:
    def __init__(self, *parts): self.parts = parts
    def __reduce__(self): return self.parts[0], self.parts[1:]
class Storage(tuple): pass
class Pickler(pickle.Pickler):
    def persistent_id(self, one): return ("storage", *one) if isinstance(one, Storage) else None
def having(kind, **attributes):
    one = kind()
    one.__dict__.update(attributes)
    return one
def tensor(kind, key, shape):
    strides, count = [], 1
    for size in reversed(shape):
        strides.insert(0, count)
        count *= size
    return Call(view, Storage((kind, key, "cpu", count)), 0, tuple(shape), tuple(strides), False,
                {})
def write(path, shape, placements, names=1, more=0):
    mesh = having(Mesh, **{f"more{i}": i for i in range(more)},
                  mesh=tensor(Longs, "1", [1] * len(placements)),
                  _coordinate_on_dim=[0] * len(placements))
    spec = having(Spec, mesh=mesh, placements=tuple(
        having(Strided, dim=dim, split_factor=split) for dim, split in placements))
    one = Call(from_type, wrap, DTensor, (DTensor, "uint8", tuple(shape), (1,) * len(shape)),
               {"_local_tensor": tensor(Bytes, "0", shape), "_spec": spec})
    data = io.BytesIO()
    Pickler(data, 2).dump({f"w{i}": one for i in range(names)})
    count = 1
    for size in shape:
        count *= size
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (("data.pkl", data.getvalue()), ("byteorder", "little"),
                              ("version", "3\n"), ("data/0", bytes(count)), ("data/1", bytes(8))):
            archive.writestr("archive/" + name, content)
)";

Result<StoredCheckpoint> OpenMade(const std::string& arguments) {
  const oracle::TemporaryDirectory scratch;
  const std::string path = scratch / "one.pt";
  const auto ended =
      RunProgram({"python3", "-c", std::string(kMake) + "write('" + path + "', " + arguments + ")"},
                 std::chrono::seconds(20));
  EXPECT_TRUE(ended.ok() && ended.value().ok()) << ended.value().error_tail;
  return OpenStored(path);
}

TEST(DTensor, PiecesThatTouchAreOne) {
  const auto read = OpenMade("[8], [(0, 2)]");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read.value().tensors.size(), 1u);
  EXPECT_EQ(read.value().tensors[0].chunks.size(), 1u);
  const auto often = OpenMade("[65536], [(0, 65536)] * 5");
  ASSERT_TRUE(often.ok()) << often.error().message;
  EXPECT_EQ(often.value().tensors[0].chunks.size(), 1u);
}

TEST(DTensor, AMeshOfCountlessAttributesIsRefused) {
  const auto sound = OpenMade("[8], [(0, 1)], names=3, more=200");
  ASSERT_TRUE(sound.ok()) << sound.error().message;
  const auto read = OpenMade("[8], [(0, 1)], names=3, more=300");
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("expected a DeviceMesh with its ranks"));
}

}  // namespace
}  // namespace shardproof::formats
