#include "verify/generate/features.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "verify/case/axes.h"
#include "verify/case/fields.h"
#include "verify/case/names.h"

// As in case_json.cc: GCC 12 takes the members of other structs, which no row has, for members
// beyond the end of one.
#pragma GCC diagnostic ignored "-Warray-bounds"

namespace shardproof {
namespace {

bool AnyTensor(const Case& c, const std::function<bool(const TensorCase&)>& has) {
  return std::any_of(c.model.tensors.begin(), c.model.tensors.end(), has);
}

int64_t Elements(const TensorCase& tensor) {
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= size;
  return elements;
}

bool IsUneven(const Case& c, const TensorCase& tensor) {
  return !tensor.shape.empty() && tensor.shape[0] % c.WorldSize() != 0;
}

bool HasPart(const TensorCase& tensor, const std::string& part) {
  return tensor.name.find(part) != std::string::npos;
}

/// Whether a later dim of more than one element steps further than an earlier one.
bool IsReordered(const TensorCase& tensor) {
  int64_t outer = 0;
  for (size_t dim = 0; dim < tensor.strides.size(); ++dim) {
    if (tensor.shape[dim] < 2) continue;
    if (outer != 0 && tensor.strides[dim] > outer) return true;
    outer = tensor.strides[dim];
  }
  return false;
}

bool HasGaps(const TensorCase& tensor) {
  int64_t last = 0;  // element that is reached
  for (size_t dim = 0; dim < tensor.strides.size(); ++dim) {
    last += std::max<int64_t>(tensor.shape[dim] - 1, 0) * tensor.strides[dim];
  }
  return Elements(tensor) > 0 && last >= Elements(tensor);
}

/// What the rows of a table count of a struct.
template <typename Struct>
void CountRows(const FieldTable<Struct>& table, const Struct& of, std::set<std::string>& found) {
  static const Struct usual;
  for (const Field<Struct>& field : table) {
    const FieldFeature& feature = field.row.feature;
    if (feature.name == nullptr) continue;
    const auto count = [&](auto member) {
      if constexpr (std::is_same_v<decltype(member), std::string Struct::*>) {
        if (feature.each_name) {
          found.insert(std::string(feature.name) + "." + of.*member);
          return;
        }
      }
      if (!(of.*member == usual.*member)) found.insert(feature.name);
    };
    std::visit(count, field.member);
  }
}

/// All that they may count.
template <typename Struct>
void AddKnown(const FieldTable<Struct>& table, std::set<std::string>& known) {
  for (const Field<Struct>& field : table) {
    const FieldFeature& feature = field.row.feature;
    if (feature.name == nullptr) continue;
    if (!feature.each_name) {
      known.insert(feature.name);
      continue;
    }
    for (const std::string_view name : field.row.names()) {
      known.insert(std::string(feature.name) + "." + std::string(name));
    }
  }
}

/// What takes more than a row to say.
struct Feature {
  std::string name;
  std::function<bool(const Case&)> has;
};

Feature OfTensors(std::string name, std::function<bool(const TensorCase&)> has) {
  return {std::move(name), [has = std::move(has)](const Case& c) { return AnyTensor(c, has); }};
}

void AddMesh(std::vector<Feature>& features) {
  for (const std::string_view axis : KnownAxes()) {
    if (axis == "pp") continue;  // which no subject is given: every rank has every layer
    features.push_back({"axis." + std::string(axis), [axis](const Case& c) {
                          return std::any_of(c.mesh.begin(), c.mesh.end(),
                                             [&](const AxisCase& a) { return a.name == axis; });
                        }});
  }
  for (size_t dims = 1; dims <= 3; ++dims) {
    features.push_back({"mesh." + std::to_string(dims) + "-D",
                        [dims](const Case& c) { return c.mesh.size() == dims; }});
  }
}

void AddModel(std::vector<Feature>& features) {
  const auto add = [&](std::string name, std::function<bool(const TensorCase&)> has) {
    features.push_back(OfTensors(std::move(name), std::move(has)));
  };
  add("shape.0-dim", [](const TensorCase& t) { return t.shape.empty(); });
  add("shape.1-element", [](const TensorCase& t) { return !t.shape.empty() && Elements(t) == 1; });
  add("shape.empty", [](const TensorCase& t) { return Elements(t) == 0; });
  add("shape.4-D or more", [](const TensorCase& t) { return t.shape.size() > 3; });
  add("strides.another order", [](const TensorCase& t) { return IsReordered(t); });
  add("strides.gaps", [](const TensorCase& t) { return HasGaps(t); });
  add("buffer.persistent", [](const TensorCase& t) { return t.kind == "buffer" && t.persistent; });
  add("buffer.expert_bias", [](const TensorCase& t) { return HasPart(t, "expert_bias"); });
  add("frozen", [](const TensorCase& t) { return t.kind == "parameter" && !t.requires_grad; });
  add("tower", [](const TensorCase& t) { return HasPart(t, "visual.") || HasPart(t, "tower."); });
  add("adapter", [](const TensorCase& t) { return HasPart(t, ".lora_"); });
  add("packed experts",
      [](const TensorCase& t) { return !t.stored.empty() && t.stored[0].size() > 1; });
  features.push_back({"shape.uneven over the ranks", [](const Case& c) {
                        return AnyTensor(c, [&](const TensorCase& t) { return IsUneven(c, t); });
                      }});
  features.push_back({"depth 4 or more", [](const Case& c) {
                        return AnyTensor(c, [](const TensorCase& t) {
                          return std::count(t.name.begin(), t.name.end(), '.') >= 4;
                        });
                      }});
}

bool IsOfSave(const FaultCase& fault) {
  return fault.id == "file/rot" || fault.id == "file/damage-save";
}

void AddJob(std::vector<Feature>& features) {
  const auto add = [&](std::string name, std::function<bool(const Case&)> has) {
    features.push_back({std::move(name), std::move(has)});
  };
  add("ranks.1", [](const Case& c) { return c.WorldSize() == 1; });
  add("ranks.2 to 4", [](const Case& c) { return c.WorldSize() > 1 && c.WorldSize() <= 4; });
  add("ranks.5 or more", [](const Case& c) { return c.WorldSize() > 4; });
  add("trained, clipped by nothing",
      [](const Case& c) { return c.steps > 0 && c.training.clip_norm == 0; });
  add("trained, saved more than once", [](const Case& c) { return c.SavedSteps().size() > 1; });
  add("trained, old saves removed",
      [](const Case& c) { return static_cast<int64_t>(c.SavedSteps().size()) > c.training.keep; });
  add("trained, a save damaged",
      [](const Case& c) { return c.steps > 0 && !c.faults.empty() && IsOfSave(c.faults[0]); });
  add("trained, two saves damaged, or latest and a save", [](const Case& c) {
    return c.faults.size() > 1 && IsOfSave(c.faults[0]) && IsOfSave(c.faults[1]);
  });
  add("a damaged save and none that is older", [](const Case& c) {
    return c.SavedSteps().size() < 2 && !c.faults.empty() && IsOfSave(c.faults[0]);
  });
  add("trained, unfrozen before the save", [](const Case& c) {
    return c.training.unfreeze_after > 0 && c.training.unfreeze_after < c.steps / 2;
  });
  add("trained, unfrozen after the save", [](const Case& c) {
    return c.training.unfreeze_after > 0 && c.training.unfreeze_after >= c.steps / 2;
  });
  add("trained, fused tensors saved in parts", [](const Case& c) {
    const auto is_fused = [](const TensorCase& tensor) {
      return std::any_of(tensor.stored.begin(), tensor.stored.end(),
                         [](const auto& way) { return way.size() > 1; });
    };
    return c.steps > 0 && (c.training.split_fused || c.training.format == "safetensors") &&
           std::any_of(c.model.tensors.begin(), c.model.tensors.end(), is_fused);
  });
  add("trained, all of it by the host",
      [](const Case& c) { return c.steps > 0 && c.training.offload == 1; });
  add("trained, some of it by the host", [](const Case& c) {
    return c.steps > 0 && c.training.offload > 0 && c.training.offload < 1;
  });
  add("trained by the host without overlap",
      [](const Case& c) { return c.steps > 0 && c.training.offload > 0 && !c.training.overlap; });
  add("trained by the host from isolated", [](const Case& c) {
    return c.steps > 0 && c.training.offload > 0 && c.device == "isolated";
  });
  add("trained and resumed on another mesh",
      [](const Case& c) { return c.steps > 0 && !c.resume_mesh.empty(); });
  add("a damaged source", [](const Case& c) {
    return !c.faults.empty() && c.faults[0].id.starts_with("file/damage") && !IsOfSave(c.faults[0]);
  });
  add("what is in the way of a save",
      [](const Case& c) { return !c.faults.empty() && c.faults[0].id == "file/occupied"; });
  add("struck by two", [](const Case& c) { return c.as_stated && c.faults.size() > 1; });
  add("struck while it trains", [](const Case& c) { return c.as_stated && c.steps > 0; });
  add("resumed on another number of ranks", [](const Case& c) {
    return !c.resume_mesh.empty() && RanksOf(c.resume_mesh) != c.WorldSize();
  });
  add("bucket below 1 KiB", [](const Case& c) { return c.bucket_bytes < 1024; });
}

const std::vector<Feature>& Features() {
  static const std::vector<Feature> features = [] {
    std::vector<Feature> all;
    AddMesh(all);
    AddModel(all);
    AddJob(all);
    return all;
  }();
  return features;
}

}  // namespace

std::vector<std::string> FeaturesOf(const Case& test_case) {
  std::set<std::string> found;
  CountRows(CaseFields(), test_case, found);
  if (test_case.steps > 0) CountRows(TrainingFields(), test_case.training, found);
  CountRows(ModelFields(), test_case.model, found);
  for (const TensorCase& tensor : test_case.model.tensors) {
    CountRows(TensorFields(), tensor, found);
    if (tensor.rope) CountRows(RopeFields(), *tensor.rope, found);
  }
  for (const Feature& feature : Features()) {
    if (feature.has(test_case)) found.insert(feature.name);
  }
  return {found.begin(), found.end()};
}

std::vector<std::string> KnownFeatures() {
  std::set<std::string> known;
  AddKnown(CaseFields(), known);
  AddKnown(TrainingFields(), known);
  AddKnown(ModelFields(), known);
  AddKnown(TensorFields(), known);
  AddKnown(RopeFields(), known);
  for (const Feature& feature : Features()) known.insert(feature.name);
  return {known.begin(), known.end()};
}

}  // namespace shardproof
