#include "verify/generate/shrink.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "verify/case/axes.h"
#include "verify/case/case_json.h"
#include "verify/case/fields.h"
#include "verify/case/names.h"

namespace shardproof {
namespace {

constexpr uint64_t kSeedsTried = 3;

using Change = std::function<void(Case&)>;

/// Collects what becomes of a case by one change after the other, if it is valid and another.
class Simplifier {
 public:
  explicit Simplifier(const Case& from) : from_(from), json_(CaseToJson(from)) {}

  void Try(const Change& change) {
    Case changed = from_;
    change(changed);
    nlohmann::json json = CaseToJson(changed);
    if (json == json_) return;
    if (ParseCase(json).ok()) simpler_.push_back(std::move(changed));
  }

  std::vector<Case> Take() { return std::move(simpler_); }
  const Case& from() const { return from_; }

 private:
  const Case& from_;
  nlohmann::json json_;
  std::vector<Case> simpler_;
};

void Forget(const std::set<std::string>& names, ModelCase& model) {
  std::erase_if(model.tensors, [&](const TensorCase& t) { return names.contains(t.name); });
  std::erase_if(model.missing, [&](const std::string& name) { return names.contains(name); });
  for (auto& tie : model.ties) {
    std::erase_if(tie, [&](const std::string& name) { return names.contains(name); });
  }
  std::erase_if(model.ties, [](const auto& tie) { return tie.size() < 2; });
}

/// Without halves of the tensors, quarters, ... and each alone.
void DropTensors(Simplifier& to) {
  const auto& tensors = to.from().model.tensors;
  for (size_t length = (tensors.size() + 1) / 2; length > 0 && tensors.size() > 1; length /= 2) {
    for (size_t begin = 0; begin < tensors.size(); begin += length) {
      std::set<std::string> names;
      for (size_t i = begin; i < std::min(begin + length, tensors.size()); ++i) {
        names.insert(tensors[i].name);
      }
      to.Try([&](Case& c) { Forget(names, c.model); });
    }
  }
}

/// The mesh without an axis, and without those that are laid over it.
std::vector<AxisCase> Without(std::vector<AxisCase> mesh, const std::string& name) {
  std::erase_if(mesh, [&](const AxisCase& axis) {
    return axis.name == name ||
           std::find(axis.over.begin(), axis.over.end(), name) != axis.over.end();
  });
  return mesh;
}

/// Fewer axes and smaller ones.
std::vector<std::vector<AxisCase>> SimplerMeshes(const std::vector<AxisCase>& mesh) {
  std::vector<std::vector<AxisCase>> simpler;
  const int64_t ranks = RanksOf(mesh);
  for (const int64_t size : {1, 2, 3}) {
    const bool is_it = mesh.size() == 1 && mesh[0].name == "dp_shard";
    if (size < ranks || (size == ranks && !is_it)) simpler.push_back({{"dp_shard", size}});
  }
  for (size_t i = 0; i < mesh.size(); ++i) {
    const auto without = Without(mesh, mesh[i].name);
    if (!without.empty()) simpler.push_back(without);
    for (const int64_t size : {int64_t{1}, int64_t{2}, mesh[i].size / 2, mesh[i].size - 1}) {
      if (size < 1 || size >= mesh[i].size) continue;
      auto smaller = mesh;
      smaller[i].size = size;
      const bool fits = std::all_of(smaller.begin(), smaller.end(), [&](const AxisCase& axis) {
        return AxisFault(smaller, axis).empty();
      });
      if (fits) simpler.push_back(smaller);
    }
  }
  return simpler;
}

/// A WHERE of a fault as far as ranks and calls go: "2:1" and "2", "1@ready", "1@#12",
/// "call=2,rank=1".
struct Place {
  std::smatch parts;
  bool Matches(const std::string& where, const std::regex& pattern) {
    return std::regex_search(where, parts, pattern);
  }
  /// The place with another number in place of the first group's.
  std::string With(int64_t number) const {
    return parts.prefix().str() + parts[0].str().substr(0, parts.position(1) - parts.position(0)) +
           std::to_string(number) +
           parts[0].str().substr(parts.position(1) - parts.position(0) + parts.length(1)) +
           parts.suffix().str();
  }
  int64_t Number() const { return std::strtoll(parts[1].str().c_str(), nullptr, 10); }
};

const std::regex kOfRank[] = {std::regex(R"(^\d+:(\d+)$)"), std::regex(R"(^(\d+)@)"),
                              std::regex(R"(\brank=(\d+))")};
const std::regex kOfCall[] = {std::regex(R"(^(\d+)(?::\d+)?$)"), std::regex(R"(@#(\d+)$)"),
                              std::regex(R"(\bcall=(\d+))")};
const std::regex kOfStep(R"(^(\d+@[a-z]+)@\d+$)");

/// Strikes ranks that are still there: of those that are not, the last.
void StrikeWithin(Case& c) {
  for (FaultCase& fault : c.faults) {
    for (const std::regex& pattern : kOfRank) {
      Place place;
      const std::string where = fault.where;
      if (!place.Matches(where, pattern) || place.Number() < c.WorldSize()) continue;
      fault.where = place.With(c.WorldSize() - 1);
      break;
    }
  }
}

/// The same on rank 0, at the first call, at a call half as late, at the one before; at whichever
/// step comes first.
std::vector<std::string> SimplerPlaces(const std::string& where) {
  std::vector<std::string> simpler;
  for (const std::regex& pattern : kOfRank) {
    Place place;
    if (place.Matches(where, pattern) && place.Number() > 0) simpler.push_back(place.With(0));
  }
  for (const std::regex& pattern : kOfCall) {
    Place place;
    if (!place.Matches(where, pattern)) continue;
    const int64_t number = place.Number();
    for (const int64_t earlier : {int64_t{0}, number / 2, number - 1}) {
      if (earlier >= 0 && earlier < number) simpler.push_back(place.With(earlier));
    }
  }
  const std::string of_step = std::regex_replace(where, kOfStep, "$1");
  if (of_step != where) simpler.push_back(of_step);
  return simpler;
}

// ---- Fields that take more than their default, by their path ------------------------------------

void SimplifyMesh(Simplifier& to) {
  for (const auto& mesh : SimplerMeshes(to.from().mesh)) {
    to.Try([&](Case& c) {
      c.mesh = mesh;
      StrikeWithin(c);
    });
    if (to.from().transport != "sim") continue;
    // Fewer ranks take other turns: what was seen may want another order to show.
    for (uint64_t seed = 1; seed <= kSeedsTried; ++seed) {
      to.Try([&](Case& c) {
        c.mesh = mesh;
        c.seed = seed;
        StrikeWithin(c);
      });
    }
  }
}

void SimplifyResumeMesh(Simplifier& to) {
  to.Try([](Case& c) { c.resume_mesh.clear(); });
  if (to.from().resume_mesh.empty()) return;
  for (const auto& mesh : SimplerMeshes(to.from().resume_mesh)) {
    to.Try([&](Case& c) { c.resume_mesh = mesh; });
  }
}

void SimplifySteps(Simplifier& to) {
  to.Try([](Case& c) { c.steps = c.steps > 2 ? 2 : 0; });
}

void SimplifyOffload(Simplifier& to) {
  to.Try([](Case& c) { c.training.offload = 0; });
  const double offload = to.from().training.offload;
  if (offload > 0 && offload < 1) to.Try([](Case& c) { c.training.offload = 1; });
}

/// And what is judged of them.
void SimplifyFaults(Simplifier& to) {
  to.Try([](Case& c) {
    c.faults.clear();
    c.as_stated = false;
  });
  for (size_t i = 0; i < to.from().faults.size(); ++i) {
    to.Try([&](Case& c) { c.faults.erase(c.faults.begin() + static_cast<std::ptrdiff_t>(i)); });
    // The first call of the last rank, which is where most can be seen.
    to.Try([&](Case& c) { c.faults[i].where = "0"; });
    for (const std::string& where : SimplerPlaces(to.from().faults[i].where)) {
      to.Try([&](Case& c) { c.faults[i].where = where; });
    }
  }
}

void SimplifyMissing(Simplifier& to) {
  to.Try([](Case& c) { c.model.missing.clear(); });
  for (const std::string& name : to.from().model.missing) {
    to.Try([&](Case& c) { std::erase(c.model.missing, name); });
  }
}

using Simplify = void (*)(Simplifier&);

/// For each row that says kByHand.
const std::map<std::string, Simplify>& SimplifiedByHand() {
  static const std::map<std::string, Simplify> functions = {
      {"mesh", SimplifyMesh},     {"resume_mesh", SimplifyResumeMesh},
      {"steps", SimplifySteps},   {"training/offload", SimplifyOffload},
      {"faults", SimplifyFaults}, {"model/missing", SimplifyMissing}};
  return functions;
}

/// Those of the job, then those of the model.
void SimplifyFields(Simplifier& to, bool of_model) {
  Case from = to.from();
  for (const FieldOfCase& field : FieldsOf(from)) {
    if (field.path.starts_with("model/") != of_model) continue;
    if (field.row->shrink == FieldShrink::kByHand) SimplifiedByHand().at(field.path)(to);
    if (field.row->shrink != FieldShrink::kToDefault) continue;
    to.Try([&](Case& c) { SetToDefault(FieldAt(c, field.path)); });
  }
}

/// Changes a tensor to a shape of one dim fewer or smaller, its dims in the order that its strides
/// gave them, without gaps.
std::vector<std::function<void(TensorCase&)>> SimplerShapes(const std::vector<int64_t>& shape) {
  std::vector<std::function<void(TensorCase&)>> simpler;
  const auto laid_out_anew = [](TensorCase& t) {
    if (!t.strides.empty()) t.strides = StridesInOrder(t.shape, OrderInMemory(t.strides));
  };
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    simpler.push_back([=](TensorCase& t) {
      const auto at = static_cast<std::ptrdiff_t>(dim);
      t.shape.erase(t.shape.begin() + at);
      if (!t.strides.empty()) t.strides.erase(t.strides.begin() + at);
      laid_out_anew(t);
    });
  }
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    for (const int64_t size :
         {int64_t{1}, int64_t{2}, int64_t{3}, shape[dim] / 2, shape[dim] - 1}) {
      if (size < 1 || size >= shape[dim]) continue;
      simpler.push_back([=](TensorCase& t) {
        t.shape[dim] = size;
        laid_out_anew(t);
      });
    }
  }
  return simpler;
}

/// The first half of what a packed tensor is made of.
void HalvePacked(TensorCase& tensor) {
  if (tensor.stored.empty() || tensor.shape.empty() || tensor.shape[0] < 2) return;
  auto& parts = tensor.stored[0];
  const auto experts = static_cast<size_t>(tensor.shape[0]);
  if (parts.size() % experts != 0) return;
  tensor.shape[0] /= 2;
  tensor.strides.clear();
  parts.resize(parts.size() / experts * static_cast<size_t>(tensor.shape[0]));
}

void SimplifyTensor(Simplifier& to, size_t index) {
  const TensorCase plain;
  const TensorCase& tensor = to.from().model.tensors[index];
  std::set<std::string> tied = {tensor.name};
  for (const auto& tie : to.from().model.ties) {
    if (std::find(tie.begin(), tie.end(), tensor.name) != tie.end())
      tied.insert(tie.begin(), tie.end());
  }
  // What is tied is one tensor.
  const auto change = [&](const std::function<void(TensorCase&)>& how) {
    to.Try([&](Case& c) {
      for (TensorCase& other : c.model.tensors) {
        if (tied.contains(other.name)) how(other);
      }
    });
  };
  change([&](TensorCase& t) {
    t.stored.clear();
    t.stored_as = plain.stored_as;
  });
  change([](TensorCase& t) {
    if (t.stored.size() > 1) t.stored.resize(1);
  });
  change(HalvePacked);
  change([](TensorCase& t) {
    if (t.rope && t.rope->type != "default") t.rope = RopeCase();
  });
  change([&](TensorCase& t) {
    t.kind = plain.kind;
    t.persistent = true;
    t.rope.reset();
  });
  change([](TensorCase& t) { t.requires_grad = t.kind == "parameter"; });
  for (const Field<TensorCase>& field : TensorFields()) {
    if (field.row.shrink != FieldShrink::kToDefault) continue;
    const auto set = [&](auto member) {
      change([&, member](TensorCase& t) { t.*member = plain.*member; });
    };
    std::visit(set, field.member);
  }
  if (!tensor.stored.empty()) return;
  for (const auto& shape : SimplerShapes(tensor.shape)) change(shape);
}

/// The tensor without its outer modules, in all that names it.
void ShortenName(Simplifier& to, const std::string& name) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return;
  for (const std::string& shorter :
       {name.substr(name.rfind('.', name.rfind('.') - 1) + 1), name.substr(dot + 1)}) {
    to.Try([&](Case& c) {
      const auto rename = [&](std::string& text) { text = text == name ? shorter : text; };
      for (TensorCase& tensor : c.model.tensors) rename(tensor.name);
      for (std::string& missing : c.model.missing) rename(missing);
      for (auto& tie : c.model.ties) {
        for (std::string& tied : tie) rename(tied);
      }
    });
  }
}

}  // namespace

std::vector<Case> SimplerCases(const Case& test_case) {
  Simplifier to(test_case);
  DropTensors(to);
  SimplifyFields(to, false);
  SimplifyFields(to, true);
  for (size_t i = 0; i < test_case.model.tensors.size(); ++i) SimplifyTensor(to, i);
  for (const TensorCase& tensor : test_case.model.tensors) ShortenName(to, tensor.name);
  to.Try([](Case& c) { c.seed = 0; });
  return to.Take();
}

}  // namespace shardproof
