// Which dim each mesh axis cuts.
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "src/shard/shard.h"

namespace shardproof {
namespace {

/// Modules whose weight maps back into the residual stream: their input is what is cut.
constexpr std::array kRowWise = {"o_proj", "out_proj",   "down_proj",
                                 "w2",     "linear_fc2", "attn.proj"};

/// Without the wrappers that an adapter puts around the layers that it adapts.
std::string Unwrapped(std::string name) {
  constexpr std::string_view kWrapper = ".base_layer";
  for (size_t at; (at = name.find(kWrapper)) != std::string::npos;) name.erase(at, kWrapper.size());
  return name;
}

bool IsExpert(const std::string& name) { return name.find(".experts.") != std::string::npos; }

/// Whether `name` is `module`, or a tensor right below it: "x.o_proj.weight",
/// "x.experts.down_proj".
bool IsOf(std::string_view name, std::string_view module) {
  const size_t at = name.rfind(module);
  if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) return false;
  const std::string_view rest = name.substr(at + module.size());
  return rest.empty() || (rest[0] == '.' && rest.find('.', 1) == std::string_view::npos);
}

/// The dim that tensor parallelism cuts; none if it leaves the tensor whole.
std::optional<int64_t> TensorParallelDim(const Slot& slot) {
  const std::string name = Unwrapped(slot.spec.name);
  const auto dims = static_cast<int64_t>(slot.spec.shape.size());
  const bool row_wise = std::any_of(kRowWise.begin(), kRowWise.end(),
                                    [&](const char* module) { return IsOf(name, module); });
  if (dims == 1) {
    // A row-wise module adds its bias once, after the sum over ranks; a norm's weight is whole too.
    if (row_wise || !name.ends_with(".bias")) return std::nullopt;
    return name.find("norm") == std::string::npos ? std::optional<int64_t>(0) : std::nullopt;
  }
  const bool packed = IsExpert(name) && dims == 3;  // [experts, out, in]
  return (packed ? 1 : 0) + (row_wise ? 1 : 0);
}

/// An axis and the dim that it cuts.
struct AxisCut {
  size_t axis;
  int64_t dim;
};

/// In the order in which frameworks apply them.
std::vector<AxisCut> CutsOf(const Slot& slot, const Mesh& mesh) {
  const bool expert = IsExpert(slot.spec.name);
  std::vector<AxisCut> cuts;
  const auto add = [&](std::string_view name, std::optional<int64_t> dim) {
    for (size_t i = 0; dim && i < mesh.axes.size(); ++i) {
      if (mesh.axes[i].name == name) cuts.push_back({i, *dim});
    }
  };
  if (expert) add("ep", 0);
  add("tp", TensorParallelDim(slot));
  add("dp_shard", 0);
  if (!expert) add("ep", 0);
  return cuts;
}

}  // namespace

std::vector<Placement> PlaceOnMesh(const Slot& slot, const Mesh& mesh) {
  std::vector<Placement> placements(mesh.axes.size());
  if (slot.spec.kind != TensorKind::kParameter || slot.spec.shape.empty()) return placements;
  std::vector<AxisCut> done;
  for (const AxisCut& cut : CutsOf(slot, mesh)) {
    int64_t pieces = 1;
    for (const AxisCut& earlier : done) {
      if (earlier.dim == cut.dim && earlier.axis > cut.axis) pieces *= mesh.axes[earlier.axis].size;
    }
    placements[cut.axis] =
        pieces > 1 ? Placement::StridedShard(cut.dim, pieces) : Placement::Shard(cut.dim);
    done.push_back(cut);
  }
  return placements;
}

}  // namespace shardproof
