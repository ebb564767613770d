#include "verify/generate/features.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "verify/case/names.h"

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

int64_t RanksOf(const std::vector<AxisCase>& mesh) {
  Case sized;
  sized.mesh = mesh;
  return sized.WorldSize();
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

struct Feature {
  std::string name;
  std::function<bool(const Case&)> has;
};

Feature OfTensors(std::string name, std::function<bool(const TensorCase&)> has) {
  return {std::move(name), [has = std::move(has)](const Case& c) { return AnyTensor(c, has); }};
}

void AddNamed(std::vector<Feature>& features) {
  for (const std::string_view dtype : KnownDtypes()) {
    features.push_back(OfTensors("dtype." + std::string(dtype),
                                 [dtype](const TensorCase& t) { return t.dtype == dtype; }));
  }
  for (const std::string_view kind : KnownRopes()) {
    features.push_back(OfTensors("rope." + std::string(kind), [kind](const TensorCase& t) {
      return t.rope && t.rope->type == kind;
    }));
  }
  for (const std::string_view strategy : KnownStrategies()) {
    features.push_back({"strategy." + std::string(strategy),
                        [strategy](const Case& c) { return c.strategy == strategy; }});
  }
  for (const std::string_view axis : KnownAxes()) {
    if (axis == "pp") continue;  // which no subject is given: every rank has every layer
    features.push_back({"axis." + std::string(axis), [axis](const Case& c) {
                          return std::any_of(c.mesh.begin(), c.mesh.end(),
                                             [&](const AxisCase& a) { return a.name == axis; });
                        }});
  }
  for (const std::string_view device : KnownDevices()) {
    features.push_back(
        {"device." + std::string(device), [device](const Case& c) { return c.device == device; }});
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
  add("buffer.non-persistent", [](const TensorCase& t) { return !t.persistent; });
  add("buffer.expert_bias", [](const TensorCase& t) { return HasPart(t, "expert_bias"); });
  add("buffer.built on a real device", [](const TensorCase& t) { return t.built_real; });
  add("frozen", [](const TensorCase& t) { return t.kind == "parameter" && !t.requires_grad; });
  add("attributes", [](const TensorCase& t) { return !t.attributes.empty(); });
  add("tower", [](const TensorCase& t) { return HasPart(t, "visual.") || HasPart(t, "tower."); });
  add("adapter", [](const TensorCase& t) { return HasPart(t, ".lora_"); });
  add("stored under other keys", [](const TensorCase& t) { return !t.stored.empty(); });
  add("stored under keys of second choice", [](const TensorCase& t) { return t.stored_as > 0; });
  add("packed experts",
      [](const TensorCase& t) { return !t.stored.empty() && t.stored[0].size() > 1; });
  add("values.special", [](const TensorCase& t) { return t.values == "special"; });
  features.push_back({"shape.uneven over the ranks", [](const Case& c) {
                        return AnyTensor(c, [&](const TensorCase& t) { return IsUneven(c, t); });
                      }});
  features.push_back({"depth 4 or more", [](const Case& c) {
                        return AnyTensor(c, [](const TensorCase& t) {
                          return std::count(t.name.begin(), t.name.end(), '.') >= 4;
                        });
                      }});
  features.push_back({"ties", [](const Case& c) { return !c.model.ties.empty(); }});
  features.push_back({"missing keys", [](const Case& c) { return !c.model.missing.empty(); }});
  features.push_back(
      {"unexpected keys", [](const Case& c) { return !c.model.unexpected.empty(); }});
  features.push_back({"every tied name", [](const Case& c) { return c.model.every_tied_name; }});
  features.push_back({"many files", [](const Case& c) { return c.model.files > 1; }});
}

void AddJob(std::vector<Feature>& features) {
  const auto add = [&](std::string name, std::function<bool(const Case&)> has) {
    features.push_back({std::move(name), std::move(has)});
  };
  add("ranks.1", [](const Case& c) { return c.WorldSize() == 1; });
  add("ranks.2 to 4", [](const Case& c) { return c.WorldSize() > 1 && c.WorldSize() <= 4; });
  add("ranks.5 or more", [](const Case& c) { return c.WorldSize() > 4; });
  add("optimizer.before-sharding", [](const Case& c) { return c.optimizer == "before-sharding"; });
  add("trained", [](const Case& c) { return c.steps > 0; });
  add("trained, clipped by nothing",
      [](const Case& c) { return c.steps > 0 && c.training.clip_norm == 0; });
  add("trained with BF16 moments",
      [](const Case& c) { return c.steps > 0 && c.training.moments == "BF16"; });
  add("trained without masters", [](const Case& c) { return c.steps > 0 && !c.training.masters; });
  add("trained, saved more than once", [](const Case& c) { return c.SavedSteps().size() > 1; });
  add("trained, old saves removed",
      [](const Case& c) { return static_cast<int64_t>(c.SavedSteps().size()) > c.training.keep; });
  add("trained, the newest save damaged", [](const Case& c) {
    return c.steps > 0 && !c.faults.empty() && c.faults[0].id == "file/rot";
  });
  add("trained, unfrozen before the save", [](const Case& c) {
    return c.training.unfreeze_after > 0 && c.training.unfreeze_after < c.steps / 2;
  });
  add("trained, unfrozen after the save", [](const Case& c) {
    return c.training.unfreeze_after > 0 && c.training.unfreeze_after >= c.steps / 2;
  });
  add("trained, saved beside its steps",
      [](const Case& c) { return c.steps > 0 && c.training.async; });
  add("trained, saved as safetensors",
      [](const Case& c) { return c.steps > 0 && c.training.format == "safetensors"; });
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
  add("struck by a fault", [](const Case& c) { return c.as_stated; });
  add("struck by two", [](const Case& c) { return c.as_stated && c.faults.size() > 1; });
  add("struck while it trains", [](const Case& c) { return c.as_stated && c.steps > 0; });
  add("resumed", [](const Case& c) { return !c.resume_mesh.empty(); });
  add("resumed on another number of ranks", [](const Case& c) {
    return !c.resume_mesh.empty() && RanksOf(c.resume_mesh) != c.WorldSize();
  });
  add("bucket below 1 KiB", [](const Case& c) { return c.bucket_bytes < 1024; });
  add("saved over an earlier checkpoint", [](const Case& c) { return c.leftovers; });
  add("saved in limited files", [](const Case& c) { return c.max_file_bytes > 0; });
}

const std::vector<Feature>& Features() {
  static const std::vector<Feature> features = [] {
    std::vector<Feature> all;
    AddNamed(all);
    AddModel(all);
    AddJob(all);
    std::sort(all.begin(), all.end(),
              [](const Feature& a, const Feature& b) { return a.name < b.name; });
    return all;
  }();
  return features;
}

}  // namespace

std::vector<std::string> FeaturesOf(const Case& test_case) {
  std::vector<std::string> names;
  for (const Feature& feature : Features()) {
    if (feature.has(test_case)) names.push_back(feature.name);
  }
  return names;
}

std::vector<std::string> KnownFeatures() {
  std::vector<std::string> names;
  for (const Feature& feature : Features()) names.push_back(feature.name);
  return names;
}

}  // namespace shardproof
