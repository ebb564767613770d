#include "verify/maps/apply.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "verify/maps/coverage.h"
#include "verify/maps/evaluate.h"
#include "verify/oracle/quote.h"

namespace shardproof::maps {
namespace {

using Kind = Expression::Kind;
using oracle::Quote;

/// One rule with values for the captures that both sides have.
struct Instance {
  const Rule* rule;
  Captures captures;
};

bool IsGeneral(const Rule& rule) {
  bool general = false;
  for (const auto* side : {&rule.left, &rule.right}) {
    for (const Expression& expression : *side) {
      ForEachName(expression, [&](const NamePattern& name) { general |= name.IsGeneral(); });
    }
  }
  return general;
}

std::set<std::string> CapturesOf(const std::vector<Expression>& side) {
  std::set<std::string> captures;
  for (const Expression& expression : side) captures.merge(CapturesIn(expression));
  return captures;
}

/// What both sides have; of a rule that leaves out, all.
std::set<std::string> SharedCaptures(const Rule& rule) {
  const std::set<std::string> left = CapturesOf(rule.left);
  const std::set<std::string> right = CapturesOf(rule.right);
  if (rule.left.empty()) return right;
  if (rule.right.empty()) return left;
  std::set<std::string> shared;
  std::set_intersection(left.begin(), left.end(), right.begin(), right.end(),
                        std::inserter(shared, shared.end()));
  return shared;
}

/// The rule's left side, with the captures filled in.
std::string SourceText(const Rule& rule, const Captures& captures) {
  std::string text = rule.text.substr(0, rule.text.find("->"));
  const size_t begin = text.find_first_not_of(" \t?");
  const size_t end = text.find_last_not_of(" \t");
  text = begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
  for (const auto& [name, value] : captures) {
    for (const std::string& form : {"{" + name + "}", "{" + name + "*}"}) {
      for (size_t at = 0; (at = text.find(form, at)) != std::string::npos; at += value.size()) {
        text.replace(at, form.size(), value);
      }
    }
  }
  return text;
}

/// Whether a pad takes its size from the other side.
bool NeedsOther(const Expression& expression) {
  if (expression.function == "pad" && expression.options.count("size") == 0) return true;
  return std::any_of(expression.arguments.begin(), expression.arguments.end(), NeedsOther);
}

class Applier {
 public:
  Applier(const Map& map, const Side& a, const Side& b, const ConfigField& config)
      : map_(map),
        a_(a),
        b_(b),
        sizes_{{}, {}, config},
        of_a_(a, sizes_),
        of_b_(b, sizes_),
        covered_a_(a),
        covered_b_(b) {}

  Result<Applied> Run() {
    for (const Definition& definition : map_.definitions) SP_TRY(Define(definition));
    for (const bool general : {false, true}) {
      std::vector<Instance> instances;
      for (const Rule& rule : map_.rules) {
        if (IsGeneral(rule) != general) continue;
        if (const Status added = AddInstances(rule, instances); !added.ok()) {
          return At(rule, added.error());
        }
      }
      SP_TRY(ApplyAll(instances));
    }
    SP_TRY(AddRest());
    SP_TRY(covered_a_.CheckApart());
    SP_TRY(covered_b_.CheckApart());
    covered_a_.AddGaps(applied_.gaps);
    covered_b_.AddGaps(applied_.gaps);
    std::sort(applied_.only_in_a.begin(), applied_.only_in_a.end());
    std::sort(applied_.only_in_b.begin(), applied_.only_in_b.end());
    SortByPlace();
    return std::move(applied_);
  }

 private:
  Error At(const Rule& rule, const Error& error) const { return error.While(rule.where); }

  Status Define(const Definition& definition) {
    const auto value = sizes_.Value(definition.value, {});
    if (!value.ok()) return value.error().While(definition.where);
    if (sizes_.variables.emplace(definition.name, value.value()).second) return Ok();
    return BadInput(fmt::format("{}: expected {} to be defined once", definition.where,
                                Quote(definition.name)));
  }

  /// Names of a pattern that may be taken: of a general rule, those that no other rule names.
  std::vector<Captures> Matches(const NamePattern& pattern, const Side& side,
                                const std::set<std::string>& taken) const {
    std::vector<Captures> matches;
    for (const formats::StoredTensor& tensor : side.tensors) {
      if (pattern.IsGeneral() && taken.count(tensor.name) > 0) continue;
      if (auto captures = pattern.Match(tensor.name)) matches.push_back(std::move(*captures));
    }
    return matches;
  }

  static bool NamesValue(const NamePattern& pattern, const Side& side) {
    return side.values != nullptr &&
           std::any_of(side.values->begin(), side.values->end(),
                       [&](const auto& value) { return pattern.Match(value.name).has_value(); });
  }

  /// Adds what one side's names say the shared captures may be.
  Status AddFrom(const std::vector<Expression>& expressions, const Side& side,
                 const std::set<std::string>& taken, const std::set<std::string>& shared,
                 std::set<Captures>& found) const {
    Status outcome = Ok();
    for (const Expression& expression : expressions) {
      bool named = false;
      ForEachName(expression, [&](const NamePattern& pattern) {
        named = true;
        const std::vector<Captures> matches = Matches(pattern, side, taken);
        if (matches.empty() && outcome.ok() && !NamesValue(pattern, side)) {
          const Side& other = &side == &a_ ? b_ : a_;
          const std::string exchanged =
              Matches(pattern, other, {}).empty()
                  ? ""
                  : fmt::format("; {} has such a name: are A and B exchanged?", other.name);
          outcome = BadInput(pattern.Names().empty()
                                 ? fmt::format("expected the name of a tensor of {}, found {}{}",
                                               side.name, Quote(pattern.Text()), exchanged)
                                 : fmt::format("expected names of {} like {}, found none{}",
                                               side.name, Quote(pattern.Text()), exchanged));
        }
        const std::set<std::string> own = pattern.Names();
        if (!std::includes(own.begin(), own.end(), shared.begin(), shared.end())) return;
        for (const Captures& match : matches) {
          Captures kept;
          for (const std::string& name : shared) kept[name] = match.at(name);
          found.insert(std::move(kept));
        }
      });
      if (!named) return BadInput("expected the name of a tensor on each side, found none");
    }
    return outcome;
  }

  /// Of a rule that is left out, since A has none of one of its names: those that A has lack these.
  void NoteIncomplete(const Rule& rule) {
    for (const Expression& expression : rule.left) {
      ForEachName(expression, [&](const NamePattern& pattern) {
        for (const formats::StoredTensor& tensor : a_.tensors) {
          if (pattern.Match(tensor.name)) incomplete_a_.insert(tensor.name);
        }
      });
    }
  }

  Status AddInstances(const Rule& rule, std::vector<Instance>& instances) {
    const std::set<std::string> shared = SharedCaptures(rule);
    std::set<Captures> found;
    const bool general = IsGeneral(rule);
    // A general rule goes from A to B: what B has more is only in B.
    const Status left = AddFrom(rule.left, a_, named_a_, shared, found);
    std::set<Captures> of_b;
    const Status right = AddFrom(rule.right, b_, named_b_, shared, of_b);
    if (rule.optional && (!left.ok() || !right.ok())) {
      if (right.ok()) NoteIncomplete(rule);
      return Ok();
    }
    SP_TRY(left);
    if (!general || rule.left.empty()) {
      SP_TRY(right);
      found.merge(of_b);
    }
    if (found.empty() && !shared.empty()) {
      bool values = false;
      for (const Expression& expression : rule.left) {
        ForEachName(expression, [&](const NamePattern& name) { values |= NamesValue(name, a_); });
      }
      if (values) return Ok();
      return BadInput(
          fmt::format("expected a name that has all of {{{}}}, which stand on both "
                      "sides, found none",
                      fmt::join(shared, "}, {")));
    }
    for (const Captures& captures : found) instances.push_back({&rule, captures});
    if (found.empty()) instances.push_back({&rule, {}});
    return Ok();
  }

  /// Whether all tensors are there. Those of a pattern that the other side lacks are only in one.
  Result<bool> IsComplete(const Instance& instance) {
    bool complete = true;
    std::vector<std::string> there_a, there_b;
    const auto look = [&](Evaluator& evaluator, const std::vector<Expression>& side,
                          std::vector<std::string>& there, std::set<std::string>& named) -> Status {
      complete = true;
      std::string missing;
      for (const Expression& expression : side) {
        SP_ASSIGN(const Evaluator::Named names, evaluator.NamesIn(expression, instance.captures));
        complete = complete && names.missing.empty();
        if (missing.empty() && !names.missing.empty()) missing = names.missing[0];
        there.insert(there.end(), names.there.begin(), names.there.end());
        named.insert(names.there.begin(), names.there.end());
      }
      if (!missing.empty() && !there.empty())
        lacks_.push_back({there[0], missing, &evaluator == &of_a_});
      return Ok();
    };
    SP_TRY(look(of_a_, instance.rule->left, there_a, named_a_));
    const bool complete_a = complete;
    SP_TRY(look(of_b_, instance.rule->right, there_b, named_b_));
    if (complete_a && complete) return true;
    if (complete && !there_b.empty()) incomplete_a_.insert(there_a.begin(), there_a.end());
    unpaired_a_.insert(there_a.begin(), there_a.end());
    unpaired_b_.insert(there_b.begin(), there_b.end());
    return false;
  }

  Status ApplyAll(const std::vector<Instance>& instances) {
    std::vector<Instance> complete;
    for (const Instance& instance : instances) {
      const auto whole = IsComplete(instance);
      if (!whole.ok()) return At(*instance.rule, whole.error());
      if (whole.value()) complete.push_back(instance);
    }
    for (const Instance& instance : complete) {
      if (const Status found = FindSizes(instance); !found.ok()) {
        return At(*instance.rule, found.error());
      }
    }
    for (const Instance& instance : complete) {
      if (const Status held = Hold(instance); !held.ok()) return At(*instance.rule, held.error());
    }
    return Ok();
  }

  /// A size that nothing defines follows from the other side: w[:f] is as long as what becomes it.
  Status FindSizes(const Instance& instance) {
    const Rule& rule = *instance.rule;
    if (rule.left.size() != 1 || rule.right.size() != 1) return Ok();
    SP_TRY(FindSizes(rule.right[0], b_, rule.left[0], of_a_, instance.captures));
    return FindSizes(rule.left[0], a_, rule.right[0], of_b_, instance.captures);
  }

  bool IsUnknown(const std::optional<Size>& size) const {
    return size && size->kind == Size::Kind::kVariable && sizes_.variables.count(size->name) == 0;
  }

  Status FindSizes(const Expression& cut, const Side& side, const Expression& other,
                   Evaluator& evaluator, const Captures& captures) {
    if (cut.kind != Kind::kSlice || cut.arguments[0].kind != Kind::kName) return Ok();
    const bool unknown = std::any_of(cut.slices.begin(), cut.slices.end(), [&](const Slice& slice) {
      return slice.range && IsUnknown(slice.low) != IsUnknown(slice.high);
    });
    if (!unknown) return Ok();
    const std::string tensor = cut.arguments[0].name.Fill(captures);
    const std::vector<int64_t>& shape = side.Find(tensor)->shape;
    const auto view = evaluator.View(other, captures, nullptr);
    // It says why when it is held.
    if (!view.ok() || cut.slices.size() > shape.size()) return Ok();
    size_t dim = 0;
    for (size_t i = 0; i < cut.slices.size(); ++i) {
      const Slice& slice = cut.slices[i];
      if (!slice.range) continue;
      const size_t at = dim++;
      if (at >= view.value()->shape.size() || IsUnknown(slice.low) == IsUnknown(slice.high)) {
        continue;
      }
      const int64_t length = view.value()->shape[at];
      if (IsUnknown(slice.high)) {
        const auto low = slice.low ? sizes_.Value(*slice.low, captures, tensor) : int64_t{0};
        if (low.ok()) SP_TRY(Found(tensor, slice.high->name, low.value() + length));
      } else {
        const auto high = slice.high ? sizes_.Value(*slice.high, captures, tensor) : shape[i];
        if (high.ok()) SP_TRY(Found(tensor, slice.low->name, high.value() - length));
      }
    }
    return Ok();
  }

  Status Found(const std::string& tensor, const std::string& variable, int64_t value) {
    const auto [entry, is_new] = sizes_.found.try_emplace({tensor, variable}, value);
    if (is_new || entry->second == value) return Ok();
    return BadInput(fmt::format("expected one {} in {}, found {} and {}", Quote(variable),
                                Quote(tensor), entry->second, value));
  }

  Status Hold(const Instance& instance) {
    const Rule& rule = *instance.rule;
    if (rule.left.empty()) return LeaveOut(of_b_, rule.right, instance, false);
    if (rule.right.empty()) return LeaveOut(of_a_, rule.left, instance, true);
    const size_t count = std::max(rule.left.size(), rule.right.size());
    for (size_t i = 0; i < count; ++i) {
      const Expression& left = rule.left[std::min(i, rule.left.size() - 1)];
      const Expression& right = rule.right[std::min(i, rule.right.size() - 1)];
      ViewPtr a;
      ViewPtr b;
      if (NeedsOther(left)) {
        SP_ASSIGN(b, of_b_.View(right, instance.captures, nullptr));
        SP_ASSIGN(a, of_a_.View(left, instance.captures, b));
      } else {
        SP_ASSIGN(a, of_a_.View(left, instance.captures, nullptr));
        SP_ASSIGN(b, of_b_.View(right, instance.captures, a));
      }
      if (i < rule.left.size()) covered_a_.Add(*a, rule);
      if (i < rule.right.size()) covered_b_.Add(*b, rule);
      std::string source = SourceText(rule, instance.captures);
      if (rule.left.size() > 1 && a->stored != nullptr) source = a->stored->name;
      applied_.held.push_back({a, b, std::move(source), i >= rule.left.size()});
    }
    return Ok();
  }

  Status LeaveOut(Evaluator& evaluator, const std::vector<Expression>& side,
                  const Instance& instance, bool of_a) {
    for (const Expression& expression : side) {
      SP_ASSIGN(const ViewPtr view, evaluator.View(expression, instance.captures, nullptr));
      (of_a ? covered_a_ : covered_b_).Add(*view, *instance.rule);
      (of_a ? applied_.left_out_a : applied_.left_out_b) += view->Elements();
    }
    return Ok();
  }

  /// Tensors that no rule names keep their names.
  Status AddRest() {
    for (const formats::StoredTensor& tensor : a_.tensors) {
      if (named_a_.count(tensor.name) > 0) continue;
      const formats::StoredTensor* partner = b_.Find(tensor.name);
      if (partner == nullptr || named_b_.count(tensor.name) > 0) {
        unpaired_a_.insert(tensor.name);
        continue;
      }
      named_b_.insert(tensor.name);
      ViewPtr view = Stored(tensor);
      if (a_.view) {
        SP_ASSIGN(view, a_.view(tensor));
      }
      applied_.held.push_back({view, Stored(*partner), ""});
    }
    for (const formats::StoredTensor& tensor : b_.tensors) {
      if (named_b_.count(tensor.name) == 0) unpaired_b_.insert(tensor.name);
    }
    applied_.only_in_a.assign(unpaired_a_.begin(), unpaired_a_.end());
    applied_.only_in_b.assign(unpaired_b_.begin(), unpaired_b_.end());
    for (const auto& [there, missing, is_of_a] : lacks_) {
      if ((is_of_a ? unpaired_a_ : unpaired_b_).count(there) == 0) continue;
      applied_.lacking.push_back(fmt::format("{} lacks {}, which the map joins with {}",
                                             is_of_a ? "A" : "B", Quote(missing), Quote(there)));
    }
    // Of the names of a rule that was left out, others may have paired some.
    std::set_intersection(incomplete_a_.begin(), incomplete_a_.end(), unpaired_a_.begin(),
                          unpaired_a_.end(), std::back_inserter(applied_.incomplete_a));
    return Ok();
  }

  /// In the order of A's bytes, so that a disk reads forwards.
  void SortByPlace() {
    const auto place = [](const Held& held) {
      const formats::StoredTensor* first = nullptr;
      ForEachStored(*held.a, [&](const View& box) { first = first ? first : box.stored; });
      const bool none = first == nullptr || first->chunks.empty();
      return std::tuple(none ? 0 : first->chunks[0].file, none ? 0 : first->chunks[0].file_offset);
    };
    std::vector<std::pair<decltype(place(applied_.held[0])), size_t>> order;
    for (size_t i = 0; i < applied_.held.size(); ++i) {
      order.emplace_back(place(applied_.held[i]), i);
    }
    std::sort(order.begin(), order.end());
    std::vector<Held> sorted;
    for (const auto& [where, index] : order) sorted.push_back(std::move(applied_.held[index]));
    applied_.held = std::move(sorted);
  }

  const Map& map_;
  const Side& a_;
  const Side& b_;
  Sizes sizes_;
  Evaluator of_a_;
  Evaluator of_b_;
  Coverage covered_a_;
  Coverage covered_b_;
  Applied applied_;
  std::set<std::string> named_a_;  ///< by rules so far
  std::set<std::string> named_b_;
  std::set<std::string> unpaired_a_;
  std::set<std::string> unpaired_b_;
  std::set<std::string> incomplete_a_;
  struct Lack {
    std::string there;
    std::string missing;
    bool is_of_a;
  };
  std::vector<Lack> lacks_;
};

}  // namespace

const formats::StoredTensor* Side::Find(const std::string& tensor) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), tensor,
      [](const formats::StoredTensor& t, const std::string& wanted) { return t.name < wanted; });
  return found == tensors.end() || found->name != tensor ? nullptr : &*found;
}

Result<Applied> Apply(const Map& map, const Side& a, const Side& b, const ConfigField& config) {
  return Applier(map, a, b, config).Run();
}

std::string RenamedValue(const Map& map, const std::string& name) {
  for (const bool general : {false, true}) {
    for (const Rule& rule : map.rules) {
      const bool renames = rule.left.size() == 1 && rule.right.size() == 1 &&
                           rule.left[0].kind == Kind::kName && rule.right[0].kind == Kind::kName;
      if (!renames || IsGeneral(rule) != general) continue;
      const auto captures = rule.left[0].name.Match(name);
      if (captures && SharedCaptures(rule) == CapturesOf(rule.right)) {
        return rule.right[0].name.Fill(*captures);
      }
    }
  }
  return name;
}

}  // namespace shardproof::maps
