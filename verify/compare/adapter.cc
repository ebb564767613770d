#include "verify/compare/adapter.h"

#include <fmt/format.h>

#include <cmath>

#include "verify/oracle/input_file.h"
#include "verify/oracle/json.h"
#include "verify/oracle/quote.h"

namespace shardproof::compare {
namespace {

using maps::ViewPtr;
using oracle::JsonElement;
using oracle::Quote;

constexpr uint64_t kAdapterBytesMax = 16u << 20;
constexpr std::string_view kPrefix = "base_model.model.";

Result<double> Positive(const std::string& where, const std::string& field,
                        const JsonElement& value) {
  double number = 0;
  if (!value.get(number) && number > 0 && std::isfinite(number)) return number;
  return BadInput(fmt::format("{}: {}: expected a number above 0, found {}", where, field,
                              oracle::Describe(value)));
}

/// Takes `end` off a name that ends so.
bool TakeEnd(std::string& name, std::string_view end) {
  if (!name.ends_with(end)) return false;
  name.erase(name.size() - end.size());
  return true;
}

bool IsTrue(const JsonElement& value) { return value.is_bool() && bool(value); }

}  // namespace

Status Adapter::ReadConfig(const std::string& path) {
  SP_ASSIGN(const std::string text, oracle::ReadWholeFile(path, kAdapterBytesMax));
  simdjson::dom::parser parser;
  SP_ASSIGN(const simdjson::dom::object root, oracle::ParseObject(parser, path, text));
  where_ = oracle::Printable(path);
  SP_ASSIGN(const std::vector<oracle::JsonMember> members, oracle::Members(where_, root));
  bool is_lora = false;
  for (const oracle::JsonMember& member : members) {
    if (member.key == "peft_type") {
      SP_ASSIGN(const std::string_view type, oracle::AsString(where_, "peft_type", member.value));
      is_lora = type == "LORA";
    } else if (member.key == "lora_alpha") {
      SP_ASSIGN(alphas_[""], Positive(where_, "lora_alpha", member.value));
    } else if (member.key == "alpha_pattern") {
      simdjson::dom::object patterns;
      if (member.value.get_object().get(patterns)) continue;
      for (const auto& [module, alpha] : patterns) {
        const std::string end(module);
        if (end.find_first_of("\\^$*+?()[]{}|") != std::string::npos) {
          return Unsupported(
              fmt::format("{}: alpha_pattern: expected ends of names, found the "
                          "regular expression {}",
                          where_, Quote(end)));
        }
        SP_ASSIGN(alphas_[end], Positive(where_, "alpha_pattern", alpha));
      }
    } else if (member.key == "use_dora" && IsTrue(member.value)) {
      return Unsupported(where_ + ": use_dora: merging a DoRA adapter is not known here");
    }
    by_root_ = by_root_ || (member.key == "use_rslora" && IsTrue(member.value));
    turned_ = turned_ || (member.key == "fan_in_fan_out" && IsTrue(member.value));
  }
  if (!is_lora) return BadInput(where_ + ": peft_type: expected LORA");
  if (alphas_.count("") > 0) return Ok();
  return BadInput(where_ + ": lora_alpha: expected a number above 0, found none");
}

Status Adapter::Add(const formats::StoredTensor& tensor, const Checkpoint& base) {
  std::string name = tensor.name;
  if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  TakeEnd(name, ".weight");
  TakeEnd(name, ".default");
  const bool embeds_a = TakeEnd(name, ".lora_embedding_A");
  const bool embeds_b = !embeds_a && TakeEnd(name, ".lora_embedding_B");
  const bool is_a = embeds_a || TakeEnd(name, ".lora_A");
  const bool is_b = !is_a && (embeds_b || TakeEnd(name, ".lora_B"));
  if (is_a || is_b) {
    name += ".weight";
    Part& part = parts_[name];
    part.embeds = embeds_a || embeds_b;
    (is_a ? part.a : part.b) = &tensor;
  } else if (TakeEnd(name, ".base_layer")) {  // of an embedding, which is saved with its adapter
    name += ".weight";
    parts_[name].base = &tensor;
  } else {
    name = tensor.name.starts_with(kPrefix) ? tensor.name.substr(kPrefix.size()) : tensor.name;
    parts_[name].whole = &tensor;
  }
  if (base.Find(name) != nullptr) return Ok();
  return BadInput(
      fmt::format("{}: expected tensors for those of A, found {}, which would be for "
                  "{}",
                  where_, Quote(tensor.name), Quote(name)));
}

Result<Adapter> Adapter::Of(const std::string& directory, const Checkpoint& files,
                            const Checkpoint& a) {
  Adapter adapter;
  SP_TRY(adapter.ReadConfig(directory + "/adapter_config.json"));
  for (const formats::StoredTensor& tensor : files.tensors()) SP_TRY(adapter.Add(tensor, a));
  for (const auto& [name, part] : adapter.parts_) {
    if (part.whole != nullptr || (part.a == nullptr) == (part.b == nullptr)) continue;
    return BadInput(fmt::format("{}: expected lora_A and lora_B for {}, found only {}",
                                adapter.where_, Quote(name),
                                Quote(part.a != nullptr ? part.a->name : part.b->name)));
  }
  return adapter;
}

double Adapter::FactorOf(const std::string& name, int64_t rank) const {
  std::string module = name;
  TakeEnd(module, ".weight");
  double alpha = alphas_.at("");
  for (const auto& [end, own] : alphas_) {
    if (!end.empty() && (module == end || module.ends_with("." + end))) alpha = own;
  }
  const auto r = static_cast<double>(rank);
  return alpha / (by_root_ ? std::sqrt(r) : r);
}

Result<ViewPtr> Adapter::View(const formats::StoredTensor& tensor) const {
  const auto found = parts_.find(tensor.name);
  if (found == parts_.end()) return maps::Stored(tensor);
  const Part& part = found->second;
  if (part.whole != nullptr) return maps::Stored(*part.whole);
  const formats::StoredTensor& base = part.base != nullptr ? *part.base : tensor;
  if (part.a == nullptr) return maps::Stored(base);
  ViewPtr a = maps::Stored(*part.a);
  ViewPtr b = maps::Stored(*part.b);
  if (a->shape.size() != 2 || b->shape.size() != 2) {
    return Unsupported(fmt::format("{}: merging into {}: expected matrices, found {} and {}",
                                   where_, Quote(tensor.name), maps::ShapeText(a->shape),
                                   maps::ShapeText(b->shape)));
  }
  const double factor = FactorOf(tensor.name, a->shape[0]);
  if (part.embeds || turned_) {
    // The delta is turned: (B A)^T = A^T B^T.
    SP_ASSIGN(const ViewPtr a_turned, maps::Permute(a, {1, 0}));
    SP_ASSIGN(a, maps::Permute(b, {1, 0}));
    b = a_turned;
  }
  auto merged = maps::Merged(maps::Stored(base), a, b, factor);
  if (!merged.ok()) return merged.error().While(where_ + ": " + Quote(tensor.name));
  return merged;
}

}  // namespace shardproof::compare
