// What a Case must satisfy beyond the type of each field.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "verify/case/axes.h"
#include "verify/case/case_json.h"

namespace shardproof {
namespace {

constexpr uint64_t kModelBytesMax = uint64_t{1} << 40;
constexpr size_t kNameBytesMax = 1024;
constexpr size_t kDimsMax = 16;

using TensorsByName = std::unordered_map<std::string, const TensorCase*>;

std::string At(const char* list, size_t index) { return fmt::format("{}/{}", list, index); }

// What is wrong with a fully qualified name, or "".
std::string NameFault(const std::string& name) {
  if (name.empty()) return "expected a name, found an empty one";
  if (name.size() > kNameBytesMax) {
    return fmt::format("expected a name of at most {} bytes, found {}", kNameBytesMax, name.size());
  }
  if (name == "__metadata__") return "this name is reserved by safetensors";
  if (name.front() == '.' || name.back() == '.' || name.find("..") != std::string::npos) {
    return fmt::format("expected names joined by single dots, found \"{}\"", name);
  }
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) return "expected no control character in a name";
  }
  return "";
}

void CheckLaidOver(const std::vector<AxisCase>& mesh, const AxisCase& axis,
                   const std::string& pointer, bool is_subject, Complaint& complaint) {
  const std::string fault = AxisFault(mesh, axis);
  if (!fault.empty()) {
    complaint.Say(pointer, fault);
  } else if (!is_subject) {
    complaint.Say(pointer, fmt::format("axis {} is laid over {}, which only subjects can have: "
                                       "each axis of the reference multiplies the world",
                                       axis.name, fmt::join(axis.over, " and ")));
  }
}

/// \param is_subject  its axes may have any names, and be laid over others
void CheckMesh(const std::vector<AxisCase>& mesh, const std::string& pointer, bool is_subject,
               Complaint& complaint) {
  const NameTable& known = KnownAxes();
  int64_t ranks = 1;
  std::set<std::string> names;
  for (size_t i = 0; i < mesh.size(); ++i) {
    const std::string at = fmt::format("{}/{}", pointer, i);
    const std::string& name = mesh[i].name;
    if (is_subject && name.empty()) complaint.Expected(at + "/name", "a name", name);
    if (!is_subject && std::find(known.begin(), known.end(), name) == known.end()) {
      complaint.Expected(at + "/name", "one of " + ListNames(known), name);
    }
    if (!names.insert(name).second) {
      complaint.Say(at + "/name", fmt::format("axis \"{}\" is given twice", name));
    }
    if (!mesh[i].over.empty()) {
      CheckLaidOver(mesh, mesh[i], at + "/over", is_subject, complaint);
      continue;
    }
    if (__builtin_mul_overflow(ranks, mesh[i].size, &ranks) || ranks > kRanksMax) {
      complaint.Say(pointer, fmt::format("expected a product of sizes of at most {} ranks, found "
                                         "more at axis {}",
                                         kRanksMax, name));
      return;
    }
  }
}

void CheckKindOfRope(const RopeCase& rope, const std::string& at, Complaint& complaint) {
  const bool has_origin = rope.type == "yarn" || rope.type == "llama3";
  if (has_origin && rope.original_max_position_embeddings == 0) {
    complaint.Say(at + "/original_max_position_embeddings",
                  fmt::format("expected an integer above 0 for {}, found 0", rope.type));
  }
  if (rope.type == "llama3" && rope.low_freq_factor == rope.high_freq_factor) {
    complaint.Say(at, "expected low_freq_factor and high_freq_factor to differ");
  }
}

void CheckRope(const TensorCase& tensor, const std::string& pointer, Complaint& complaint) {
  if (!tensor.rope) return;
  const RopeCase& rope = *tensor.rope;
  const std::string at = pointer + "/rope";
  if (tensor.kind != "buffer" || tensor.persistent || tensor.dtype != "F32" ||
      tensor.shape.size() != 1) {
    return complaint.Say(at, fmt::format("expected it on a non-persistent F32 buffer of one dim "
                                         "only, found a {} {} {} of {} dims",
                                         tensor.persistent ? "persistent" : "non-persistent",
                                         tensor.dtype, tensor.kind, tensor.shape.size()));
  }
  CheckKindOfRope(rope, at, complaint);
  const int64_t count = tensor.shape[0];
  if (rope.dim != 0 && (rope.dim + 1) / 2 != count) {
    complaint.Say(
        at + "/dim",
        fmt::format("expected 0, or a value that gives {} frequencies, found {}", count, rope.dim));
  }
  if (rope.type == "longrope" && static_cast<int64_t>(rope.short_factor.size()) != count) {
    complaint.Say(at + "/short_factor",
                  fmt::format("expected {} factors, one a frequency, found {}", count,
                              rope.short_factor.size()));
  }
  if (rope.rotated > count) {
    complaint.Say(at + "/rotated",
                  fmt::format("expected at most {} frequencies, found {}", count, rope.rotated));
  }
}

// Keys are one name space with the tensors' own names: `keys` collects them over the whole model.
void CheckStored(const TensorCase& tensor, const std::string& pointer, std::set<std::string>& keys,
                 Complaint& complaint) {
  if (!tensor.stored.empty() && !tensor.persistent) {
    complaint.Say(pointer + "/stored",
                  "expected none: no checkpoint keeps a non-persistent buffer");
  }
  for (size_t i = 0; i < tensor.stored.size(); ++i) {
    const std::string at = fmt::format("{}/stored/{}", pointer, i);
    uint64_t bytes = 0;
    for (const StoredCase& part : tensor.stored[i]) {
      if (const std::string fault = NameFault(part.key); !fault.empty()) complaint.Say(at, fault);
      if (!keys.insert(part.key).second) {
        complaint.Say(at, fmt::format("key \"{}\" is given twice", part.key));
      }
      const std::optional<uint64_t> own = TensorBytes(tensor.dtype, part.shape);
      if (!own || *own > kModelBytesMax || (bytes += *own) > kModelBytesMax) {
        return complaint.Say(at, fmt::format("expected at most {} bytes, found more at key \"{}\"",
                                             kModelBytesMax, part.key));
      }
    }
    if (tensor.stored[i].empty() || bytes != TensorBytes(tensor.dtype, tensor.shape)) {
      complaint.Say(at, fmt::format("expected keys of {} bytes in all, as the tensor has, found {} "
                                    "keys of {}",
                                    TensorBytes(tensor.dtype, tensor.shape).value_or(0),
                                    tensor.stored[i].size(), bytes));
    }
  }
}

// One a dim, and memory for every element: from the dim of the least stride on, each steps over all
// that the ones before it reach.
void CheckStrides(const TensorCase& tensor, const std::string& at, Complaint& complaint) {
  if (tensor.strides.empty()) return;
  if (tensor.strides.size() != tensor.shape.size()) {
    return complaint.Say(at + "/strides", fmt::format("expected one a dim, {}, found {}",
                                                      tensor.shape.size(), tensor.strides.size()));
  }
  std::vector<std::pair<int64_t, int64_t>>
      dims;  // stride and size, of those that have elements to reach
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] > 1) dims.emplace_back(tensor.strides[i], tensor.shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  uint64_t reached = 1;
  for (const auto& [stride, size] : dims) {
    if (static_cast<uint64_t>(stride) < reached) {
      return complaint.Say(
          at + "/strides",
          fmt::format("expected a stride of at least {} for {} elements, found {}: "
                      "elements would share memory",
                      reached, size, stride));
    }
    if (__builtin_mul_overflow(static_cast<uint64_t>(stride), static_cast<uint64_t>(size),
                               &reached) ||
        reached > kModelBytesMax) {
      return complaint.Say(at + "/strides",
                           fmt::format("expected them to reach over at most {} elements, "
                                       "found more",
                                       kModelBytesMax));
    }
  }
}

void CheckTensor(const TensorCase& tensor, const std::string& at, uint64_t& model_bytes,
                 Complaint& complaint) {
  if (const std::string fault = NameFault(tensor.name); !fault.empty()) {
    complaint.Say(at + "/name", fault);
  }
  if (tensor.shape.size() > kDimsMax) {
    complaint.Say(at + "/shape",
                  fmt::format("expected at most {} dims, found {}", kDimsMax, tensor.shape.size()));
  }
  const std::optional<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!bytes || *bytes > kModelBytesMax || (model_bytes += *bytes) > kModelBytesMax) {
    complaint.Say(at + "/shape",
                  fmt::format("expected at most {} bytes in all tensors up to here, "
                              "found {}",
                              kModelBytesMax, bytes ? "more" : "a product that overflows"));
  }
  if (tensor.kind == "parameter" && !tensor.persistent) {
    complaint.Say(at + "/persistent", "expected true for a parameter, found false");
  }
  CheckStrides(tensor, at, complaint);
  CheckRope(tensor, at, complaint);
}

// "a" and "a.b" cannot both be: "a" would be a tensor and the module that holds one.
void CheckModules(const TensorsByName& tensors, const std::vector<TensorCase>& listed,
                  Complaint& complaint) {
  for (size_t i = 0; i < listed.size(); ++i) {
    const std::string& name = listed[i].name;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      if (tensors.count(name.substr(0, dot)) != 0) {
        return complaint.Say(At("/model/tensors", i) + "/name",
                             fmt::format("\"{}\" makes \"{}\" a module, but it is a tensor too",
                                         name, name.substr(0, dot)));
      }
    }
  }
}

void CheckTie(const std::vector<std::string>& group, const std::string& at,
              const TensorsByName& tensors, std::set<std::string>& tied, Complaint& complaint) {
  if (group.size() < 2) {
    complaint.Say(at, fmt::format("expected two names or more, found {}", group.size()));
  }
  const TensorCase* first = nullptr;
  for (size_t i = 0; i < group.size(); ++i) {
    const auto found = tensors.find(group[i]);
    const std::string here = fmt::format("{}/{}", at, i);
    if (found == tensors.end()) {
      return complaint.Say(here, fmt::format("expected the name of a tensor in /model/tensors, "
                                             "found \"{}\"",
                                             group[i]));
    }
    if (!tied.insert(group[i]).second) {
      return complaint.Say(here, fmt::format("\"{}\" is tied twice", group[i]));
    }
    if (first == nullptr) first = found->second;
    if (found->second->shape != first->shape || found->second->dtype != first->dtype) {
      return complaint.Say(
          here, fmt::format("tied tensors share storage; expected \"{}\" to have the dtype {} and "
                            "shape [{}] of \"{}\", found {} and [{}]",
                            group[i], first->dtype, fmt::join(first->shape, ", "), first->name,
                            found->second->dtype, fmt::join(found->second->shape, ", ")));
    }
    const auto& [one, other] = std::tie(*first, *found->second);
    if (std::tie(one.kind, one.persistent, one.requires_grad, one.init) !=
        std::tie(other.kind, other.persistent, other.requires_grad, other.init)) {
      return complaint.Say(
          here, fmt::format("tied tensors are one; expected \"{}\" to have the kind, persistent, "
                            "requires_grad and init of \"{}\"",
                            group[i], first->name));
    }
  }
}

void CheckKeys(const ModelCase& model, const TensorsByName& tensors, Complaint& complaint) {
  std::set<std::string> seen;
  for (size_t i = 0; i < model.missing.size(); ++i) {
    const std::string at = At("/model/missing", i);
    if (model.checkpoint.empty() && tensors.count(model.missing[i]) == 0) {
      complaint.Say(at, fmt::format("expected the name of a tensor in /model/tensors, found \"{}\"",
                                    model.missing[i]));
    }
    if (!seen.insert(model.missing[i]).second) {
      complaint.Say(at, fmt::format("\"{}\" is given twice", model.missing[i]));
    }
  }
  seen.clear();
  for (size_t i = 0; i < model.unexpected.size(); ++i) {
    const std::string at = At("/model/unexpected", i);
    const std::string fault = NameFault(model.unexpected[i]);
    if (!fault.empty()) complaint.Say(at, fault);
    const auto tensor = tensors.find(model.unexpected[i]);
    if (tensor != tensors.end() && tensor->second->persistent) {
      complaint.Say(
          at, fmt::format("expected a name that no tensor of the state dict has, found \"{}\"",
                          model.unexpected[i]));
    }
    if (!seen.insert(model.unexpected[i]).second) {
      complaint.Say(at, fmt::format("\"{}\" is given twice", model.unexpected[i]));
    }
  }
}

void CheckAdapter(const ModelCase& model, Complaint& complaint) {
  if (!model.adapter.empty() && model.lora) {
    complaint.Say("/model", "expected at most one of \"adapter\" and \"lora\", found both");
  }
  if (!model.lora) return;
  const auto& targets = model.lora->targets;
  const bool unnamed = std::any_of(targets.begin(), targets.end(),
                                   [](const auto& target) { return target.empty(); });
  if (!targets.empty() && !unnamed) return;
  complaint.Say("/model/lora/targets", targets.empty()
                                           ? "expected names of modules, found none"
                                           : "expected names of modules, found an empty one");
}

void CheckModel(const ModelCase& model, Complaint& complaint) {
  CheckAdapter(model, complaint);
  TensorsByName tensors;
  std::set<std::string> keys;
  uint64_t model_bytes = 0;
  for (size_t i = 0; i < model.tensors.size() && complaint.ok(); ++i) {
    const std::string at = At("/model/tensors", i);
    CheckTensor(model.tensors[i], at, model_bytes, complaint);
    CheckStored(model.tensors[i], at, keys, complaint);
    if (!tensors.emplace(model.tensors[i].name, &model.tensors[i]).second) {
      complaint.Say(at + "/name",
                    fmt::format("tensor \"{}\" is given twice", model.tensors[i].name));
    }
  }
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    if (keys.count(model.tensors[i].name) == 0) continue;
    complaint.Say(At("/model/tensors", i) + "/name",
                  fmt::format("\"{}\" is also a key that another tensor is stored under",
                              model.tensors[i].name));
  }
  CheckModules(tensors, model.tensors, complaint);
  std::set<std::string> tied;
  for (size_t i = 0; i < model.ties.size() && complaint.ok(); ++i) {
    CheckTie(model.ties[i], At("/model/ties", i), tensors, tied, complaint);
  }
  CheckKeys(model, tensors, complaint);
}

}  // namespace

void CheckCase(const Case& test_case, Complaint& complaint) {
  const bool is_subject = test_case.subject != "reference";
  if (is_subject && !test_case.subject.ends_with(".py")) {
    complaint.Say("/subject", "expected \"reference\" or the path of a Python file, found \"" +
                                  test_case.subject + "\"");
  }
  if (test_case.mesh.empty()) complaint.Say("/mesh", "expected at least one axis, found none");
  CheckMesh(test_case.mesh, "/mesh", is_subject, complaint);
  CheckMesh(test_case.resume_mesh, "/resume_mesh", is_subject, complaint);
  CheckModel(test_case.model, complaint);
  for (size_t i = 0; i < test_case.faults.size(); ++i) {
    if (!test_case.faults[i].id.empty()) continue;
    complaint.Expected(At("/faults", i) + "/id", "the id of a fault, as `list faults` shows it",
                       "");
  }
  if (test_case.steps == 1) {
    complaint.Say("/steps",
                  "expected 0, or at least 2, one before the save and one after, found 1");
  }
}

std::vector<int64_t> Case::SavedSteps() const {
  std::vector<int64_t> saved;
  // One that asks for more steps than it takes saves as usual.
  if (training.save_every == 0 || training.save_every >= steps) {
    if (steps > 1) saved.push_back(steps / 2);
    return saved;
  }
  for (int64_t step = training.save_every; step < steps; step += training.save_every) {
    saved.push_back(step);
  }
  return saved;
}

std::string ReadFrom(const ModelCase& model, const std::string& source) {
  return model.tensors.empty() || model.format == "safetensors" ? source
                                                                : source + "/" + model.format;
}

int64_t Case::WorldSize() const { return RanksOf(mesh); }

}  // namespace shardproof
