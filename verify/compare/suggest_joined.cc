#include "verify/compare/suggest_joined.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "verify/compare/name_template.h"
#include "verify/compare/streams.h"

namespace shardproof::compare {
namespace {

using maps::ViewPtr;

// What has nothing in common must not cost a comparison of every combination.
constexpr int kTriesMax = 20'000;
constexpr int64_t kJoinedMax = 256;

/// One tensor, or those that differ in a number alone, stacked.
struct Part {
  std::string name;  ///< with {e} for the number
  std::vector<std::string> names;
  ViewPtr view;
};

bool IsNumber(const std::string& text) {
  return !text.empty() && text.size() < 7 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

/// Whether two names have all components but one in common.
bool DifferInOne(const std::string& x, const std::string& y) {
  const auto [x_at, y_at] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
  const std::string x_rest(std::find(x_at, x.end(), '.'), x.end());
  const std::string y_rest(std::find(y_at, y.end(), '.'), y.end());
  return x_rest == y_rest;
}

/// Name with the component at [begin, end) replaced.
std::string With(const std::string& name, size_t begin, size_t end, const std::string& text) {
  return name.substr(0, begin) + text + name.substr(end);
}

class Searcher {
 public:
  Searcher(const Inputs& inputs, bool parts_of_a, std::set<std::string>& parts,
           std::set<std::string>& wholes)
      : inputs_(inputs),
        parts_side_(parts_of_a ? inputs.a : inputs.b),
        wholes_side_(parts_of_a ? inputs.b : inputs.a),
        parts_of_a_(parts_of_a),
        names_(parts),
        wholes_(wholes) {}

  Status Run(std::vector<JoinedSuggestion>& found) {
    const std::vector<Part> stacks = Stacks();
    const std::vector<Part> singles = Singles();
    const ByNumbers stacks_of = Index(stacks);
    const ByNumbers singles_of = Index(singles);
    const std::set<std::string> wholes = wholes_;
    for (const std::string& whole : wholes) {
      const std::vector<std::string> numbers = TemplateOf(whole).numbers;
      if (const auto near = stacks_of.find(numbers); near != stacks_of.end()) {
        SP_TRY(Look(whole, near->second, true, found));
      }
      const auto near = singles_of.find(numbers);
      if (wholes_.count(whole) == 0 || near == singles_of.end()) continue;
      SP_TRY(Look(whole, near->second, false, found));
    }
    return Ok();
  }

 private:
  /// By the numbers in the name: those of the whole must be the same, for a rule to have captures.
  using ByNumbers = std::map<std::vector<std::string>, std::vector<const Part*>>;

  static ByNumbers Index(const std::vector<Part>& parts) {
    ByNumbers index;
    for (const Part& part : parts) index[TemplateOf(part.name).numbers].push_back(&part);
    return index;
  }

  ViewPtr ViewOf(const std::string& name) const { return maps::Stored(*parts_side_.Find(name)); }

  std::vector<Part> Singles() const {
    std::vector<Part> parts;
    for (const std::string& name : names_) parts.push_back({name, {name}, ViewOf(name)});
    return parts;
  }

  /// Names that are alike but for one number, which counts from 0.
  std::vector<Part> Stacks() const {
    std::map<std::string, std::map<int, std::string>> groups;
    for (const std::string& name : names_) {
      for (size_t begin = 0; begin <= name.size();) {
        const size_t end = std::min(name.find('.', begin), name.size());
        const std::string part = name.substr(begin, end - begin);
        if (IsNumber(part)) groups[With(name, begin, end, "{e}")][std::stoi(part)] = name;
        begin = end + 1;
      }
    }
    std::vector<Part> stacks;
    for (const auto& [pattern, members] : groups) {
      if (members.size() < 2 || members.rbegin()->first + 1 != static_cast<int>(members.size())) {
        continue;
      }
      Part stack{pattern, {}, nullptr};
      std::vector<ViewPtr> views;
      for (const auto& [number, name] : members) {
        stack.names.push_back(name);
        views.push_back(ViewOf(name));
      }
      const auto view = maps::Stack(views, 0);
      if (!view.ok()) continue;
      stack.view = view.value();
      stacks.push_back(std::move(stack));
    }
    return stacks;
  }

  Result<bool> Equal(const Result<ViewPtr>& view, const maps::View& whole) {
    if (!view.ok() || view.value()->shape != whole.shape || ++tries_ > kTriesMax) return false;
    return AreEqual(*inputs_.Open(*view.value()), *inputs_.Open(whole));
  }

  /// Looks for one part that is the whole, or for two or three below one module that are.
  Status Look(const std::string& name, const std::vector<const Part*>& parts, bool stacked,
              std::vector<JoinedSuggestion>& found) {
    const ViewPtr whole = maps::Stored(*wholes_side_.Find(name));
    if (whole->shape.empty() || whole->Elements() < 2) return Ok();
    for (const Part* one : parts) {
      const Part& first = *one;
      if (first.view->dtype != whole->dtype || !AreFree(first)) continue;
      if (stacked) {
        SP_ASSIGN(const bool same, Equal(first.view, *whole));
        if (same) return Take({&first}, name, "stack({})", found);
      }
      const std::vector<const Part*> near = Near(first, parts, *whole);
      for (const Part* second : near) {
        SP_ASSIGN(bool taken, TryJoined({&first, second}, name, *whole, stacked, found));
        for (const Part* third : near) {
          if (taken || stacked || third == second) continue;
          SP_ASSIGN(taken, TryJoined({&first, second, third}, name, *whole, stacked, found));
        }
        if (taken) return Ok();
      }
    }
    return Ok();
  }

  bool AreFree(const Part& part) const {
    return std::all_of(part.names.begin(), part.names.end(),
                       [&](const std::string& name) { return names_.count(name) > 0; });
  }

  /// Other parts that could stand beside it.
  std::vector<const Part*> Near(const Part& part, const std::vector<const Part*>& parts,
                                const maps::View& whole) const {
    std::vector<const Part*> near;
    for (const Part* other : parts) {
      if (other != &part && other->view->dtype == part.view->dtype && AreFree(*other) &&
          other->view->shape.size() == whole.shape.size() && DifferInOne(part.name, other->name)) {
        near.push_back(other);
      }
    }
    return near;
  }

  Result<bool> TryJoined(const std::vector<const Part*>& parts, const std::string& name,
                         const maps::View& whole, bool stacked,
                         std::vector<JoinedSuggestion>& found) {
    const size_t dim = stacked ? 1 : 0;
    std::vector<ViewPtr> views;
    int64_t rows = 0;
    for (const Part* part : parts) {
      if (dim >= part->view->shape.size() || part->view->shape.size() != whole.shape.size()) {
        return false;
      }
      rows += part->view->shape[dim];
      views.push_back(part->view);
    }
    if (rows != whole.shape[dim]) return false;
    SP_ASSIGN(const bool joined, Equal(maps::Join(views, dim), whole));
    if (joined) {
      SP_TRY(Take(parts, name, stacked ? "stack(cat({}))" : "cat({})", found));
      return true;
    }
    for (int64_t groups = 2; !stacked && groups <= kJoinedMax; ++groups) {
      SP_ASSIGN(const bool grouped, Equal(maps::Interleave(views, dim, groups), whole));
      if (!grouped) continue;
      SP_TRY(Take(parts, name, fmt::format("interleave({{}}, groups={})", groups), found));
      return true;
    }
    return false;
  }

  Status Take(const std::vector<const Part*>& parts, const std::string& whole,
              const std::string& form, std::vector<JoinedSuggestion>& found) {
    JoinedSuggestion suggestion{{}, whole, form, parts_of_a_};
    for (const Part* part : parts) {
      suggestion.parts.push_back(part->name);
      for (const std::string& name : part->names) names_.erase(name);
    }
    wholes_.erase(whole);
    found.push_back(std::move(suggestion));
    return Ok();
  }

  const Inputs& inputs_;
  const Checkpoint& parts_side_;
  const Checkpoint& wholes_side_;
  bool parts_of_a_;
  std::set<std::string>& names_;
  std::set<std::string>& wholes_;
  int tries_ = 0;
};

}  // namespace

Result<std::vector<JoinedSuggestion>> SuggestJoined(const Inputs& inputs,
                                                    std::set<std::string>& names_a,
                                                    std::set<std::string>& names_b) {
  std::vector<JoinedSuggestion> found;
  SP_TRY(Searcher(inputs, true, names_a, names_b).Run(found));
  SP_TRY(Searcher(inputs, false, names_b, names_a).Run(found));
  return found;
}

}  // namespace shardproof::compare
