#include "verify/compare/pairing.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "verify/oracle/quote.h"

namespace shardproof::compare {
namespace {

using oracle::Quote;

/// Builds the pairs rule by rule; each tensor of either side is taken at most once.
class Pairer {
 public:
  Pairer(const Checkpoint& a, const Checkpoint& b, const NameMap& map) : a_(a), b_(b), map_(map) {}

  Result<Pairing> Run() {
    for (const auto& [from, to] : map_.rename) {
      SP_TRY(TakeA("rename", from));
      SP_TRY(TakeB("rename", to));
      Add(to, {from});
    }
    for (const FuseRule& rule : map_.fuse) SP_TRY(Fuse(rule));
    for (const SplitRule& rule : map_.split) SP_TRY(Split(rule));
    SP_TRY(TakeRest());
    SP_TRY(ApplyTransposes());
    for (const formats::StoredTensor& tensor : b_.tensors()) {
      const std::string& name = tensor.name;
      if (!taken_b_.count(name)) pairing_.only_in_b.push_back(name);
    }
    std::sort(pairing_.only_in_a.begin(), pairing_.only_in_a.end());
    SortByPlace();
    return std::move(pairing_);
  }

 private:
  Error Wrong(const std::string& rule, const std::string& expected, const std::string& name) const {
    return BadInput(
        fmt::format("{}: {}: expected {}, found {}", map_.where, rule, expected, Quote(name)));
  }

  Status TakeA(const std::string& rule, const std::string& name) {
    if (a_.Find(name) == nullptr) return Wrong(rule, "the name of a tensor of A", name);
    if (!taken_a_.insert(name).second) return Wrong(rule, "every tensor of A in one rule", name);
    return Ok();
  }

  Status TakeB(const std::string& rule, const std::string& name) {
    if (b_.Find(name) == nullptr) return Wrong(rule, "the name of a tensor of B", name);
    if (!taken_b_.insert(name).second) return Wrong(rule, "every tensor of B once", name);
    return Ok();
  }

  TensorPair& Add(const std::string& b_name, std::vector<std::string> parts) {
    TensorPair pair;
    pair.b_name = b_name;
    pair.parts = std::move(parts);
    pair.map_file = map_.where;
    pairing_.pairs.push_back(std::move(pair));
    return pairing_.pairs.back();
  }

  Status Fuse(const FuseRule& rule) {
    for (const std::string& name : rule.from) SP_TRY(TakeA("fuse", name));
    SP_TRY(TakeB("fuse", rule.to));
    Add(rule.to, rule.from).fuse_dim = rule.dim;
    return Ok();
  }

  Status Split(const SplitRule& rule) {
    SP_TRY(TakeA("split", rule.from));
    const std::vector<int64_t>& shape = a_.Find(rule.from)->shape;
    if (rule.dim >= shape.size()) {
      return Wrong("split", fmt::format("a tensor with a dim {}", rule.dim), rule.from);
    }
    int64_t start = 0;
    for (const std::string& name : rule.to) {
      SP_TRY(TakeB("split", name));
      const std::vector<int64_t>& part = b_.Find(name)->shape;
      const int64_t length = part.size() == shape.size() ? part[rule.dim] : -1;
      if (length < 0 || length > shape[rule.dim] - start) {
        return Wrong("split",
                     fmt::format("parts that fit the {} of dim {} of {}", shape[rule.dim], rule.dim,
                                 Quote(rule.from)),
                     name);
      }
      TensorPair& pair = Add(name, {rule.from});
      pair.is_split = true;
      pair.split_dim = rule.dim;
      pair.split_start = start;
      pair.split_length = length;
      start += length;
    }
    if (start == shape[rule.dim]) return Ok();
    return Wrong("split",
                 fmt::format("parts whose sizes along dim {} add up to {} (they give {})", rule.dim,
                             shape[rule.dim], start),
                 rule.from);
  }

  /// Tensors that no rule named keep their name, but for the prefixes.
  Status TakeRest() {
    bool stripped = map_.strip_prefix.empty();
    bool added = map_.add_prefix.empty();
    for (const formats::StoredTensor& tensor : a_.tensors()) {
      const std::string& name = tensor.name;
      if (taken_a_.count(name)) continue;
      const bool has_prefix = name.rfind(map_.strip_prefix, 0) == 0;
      stripped = stripped || has_prefix;
      added = true;
      const std::string to =
          map_.add_prefix + (has_prefix ? name.substr(map_.strip_prefix.size()) : name);
      if (b_.Find(to) == nullptr) {
        pairing_.only_in_a.push_back(name);
        continue;
      }
      SP_TRY(TakeB("prefix", to));
      Add(to, {name});
    }
    if (!stripped) return Wrong("strip_prefix", "a prefix of some tensor of A", map_.strip_prefix);
    if (!added) return Wrong("add_prefix", "some tensor to add it to", map_.add_prefix);
    return Ok();
  }

  Status ApplyTransposes() {
    for (const TransposeRule& rule : map_.transpose) {
      const auto pair = std::find_if(pairing_.pairs.begin(), pairing_.pairs.end(),
                                     [&](const TensorPair& p) { return p.b_name == rule.name; });
      if (pair == pairing_.pairs.end() || pair->is_transposed) {
        return Wrong("transpose", "the name of a tensor of B that has a partner, once", rule.name);
      }
      pair->is_transposed = true;
      pair->dim_a = rule.dim_a;
      pair->dim_b = rule.dim_b;
    }
    return Ok();
  }

  /// In the order of A's bytes, so that a disk reads forwards.
  void SortByPlace() {
    const auto place = [this](const TensorPair& pair) {
      const auto& chunks = a_.Find(pair.parts.front())->chunks;
      const bool none = chunks.empty();
      return std::tuple(none ? 0 : chunks[0].file, none ? 0 : chunks[0].file_offset, pair.b_name);
    };
    std::sort(pairing_.pairs.begin(), pairing_.pairs.end(),
              [&](const TensorPair& x, const TensorPair& y) { return place(x) < place(y); });
  }

  const Checkpoint& a_;
  const Checkpoint& b_;
  const NameMap& map_;
  Pairing pairing_;
  std::set<std::string> taken_a_;
  std::set<std::string> taken_b_;
};

}  // namespace

Result<Pairing> Pair(const Checkpoint& a, const Checkpoint& b, const NameMap* map) {
  const NameMap none;
  return Pairer(a, b, map == nullptr ? none : *map).Run();
}

}  // namespace shardproof::compare
