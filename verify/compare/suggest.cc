#include "verify/compare/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "src/text/amounts.h"
#include "verify/compare/name_template.h"
#include "verify/compare/streams.h"
#include "verify/compare/suggest_joined.h"
#include "verify/oracle/quote.h"

namespace shardproof::compare {
namespace {

using Names = std::set<std::string>;

/// What is suggested, before it is written as rules.
struct Found {
  std::string strip_prefix;
  std::string add_prefix;
  std::map<std::string, std::string> rename;
};

// Wrappers leave their attribute's name in the path, at any depth.
constexpr const char* kWrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.",
                                     "_checkpoint_wrapped_module.", "module."};

/// Prefixes that `longer` has and `shorter` lacks, with how many names each pairs.
std::map<std::string, size_t> PrefixVotes(const std::vector<std::string>& longer,
                                          const Names& shorter) {
  std::map<std::string, size_t> votes;
  for (const std::string& name : longer) {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      if (shorter.count(name.substr(dot + 1))) ++votes[name.substr(0, dot + 1)];
    }
  }
  return votes;
}

/// The leading whole components that all names share, with the dot.
std::string CommonPrefix(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  // Sorted: what the first and the last share, all share.
  const std::string& first = names.front();
  const std::string& last = names.back();
  const auto end = std::mismatch(first.begin(), first.end(), last.begin(), last.end()).first;
  const size_t dot = first.substr(0, static_cast<size_t>(end - first.begin())).rfind('.');
  return dot == std::string::npos ? "" : first.substr(0, dot + 1);
}

struct Candidate {
  std::string strip;
  std::string add;
  size_t paired = 0;
};

size_t CountPaired(const maps::Applied& pairing, const Names& b, const Candidate& c) {
  size_t paired = 0;
  for (const std::string& name : pairing.only_in_a) {
    if (name.rfind(c.strip, 0) != 0) continue;
    paired += b.count(c.add + name.substr(c.strip.size()));
  }
  return paired;
}

Candidate BestPrefix(const maps::Applied& pairing, const Names& a, const Names& b) {
  std::vector<Candidate> candidates;
  for (const auto& [prefix, n] : PrefixVotes(pairing.only_in_a, b)) {
    candidates.push_back({prefix, "", n});
  }
  for (const auto& [prefix, n] : PrefixVotes(pairing.only_in_b, a)) {
    candidates.push_back({"", prefix, n});
  }
  Candidate both{CommonPrefix(pairing.only_in_a), CommonPrefix(pairing.only_in_b), 0};
  both.paired = CountPaired(pairing, b, both);
  candidates.push_back(both);
  Candidate best;
  for (const Candidate& candidate : candidates) {
    if (candidate.paired > best.paired) best = candidate;
  }
  // A prefix is a rule about the checkpoint, not about a few names of many.
  const size_t fewer = std::min(pairing.only_in_a.size(), pairing.only_in_b.size());
  return best.paired * 2 >= fewer ? best : Candidate{};
}

std::string WithoutWrappers(std::string name) {
  for (const std::string wrapper : kWrappers) {
    for (size_t at = name.find(wrapper); at != std::string::npos; at = name.find(wrapper, at)) {
      // Only as a whole component: "submodule." is none.
      if (at == 0 || name[at - 1] == '.') {
        name.erase(at, wrapper.size());
      } else {
        ++at;
      }
    }
  }
  return name;
}

/// Pairs names that are the same once wrappers are left out.
void RenameWrapped(Names& a, Names& b, Found& map) {
  std::map<std::string, std::string> bare;
  for (const std::string& name : b) bare.emplace(WithoutWrappers(name), name);
  for (auto name = a.begin(); name != a.end();) {
    const auto partner = bare.find(WithoutWrappers(*name));
    if (partner == bare.end() || !b.count(partner->second)) {
      ++name;
      continue;
    }
    map.rename.emplace(*name, partner->second);
    b.erase(partner->second);
    name = a.erase(name);
  }
}

/// Whether the tensor's beginning is one element over and over: it then equals others by chance.
Result<bool> IsUniform(TensorReader& reader) {
  std::string head(std::min<uint64_t>(reader.elements(), 512) * reader.width(), '\0');
  SP_TRY(reader.Read(0, head.size() / reader.width(), head.data()));
  return head.substr(reader.width() * !head.empty()) ==
         head.substr(0, head.size() - (head.empty() ? 0 : reader.width()));
}

// Two large checkpoints with nothing in common must not cost a comparison of every pair.
constexpr int kValuePairsMax = 20'000;

/// Pairs tensors with the same dtype, shape and values, where just one of B's has them.
Status RenameByValue(const Checkpoint& a, const Checkpoint& b, Names& names_a, Names& names_b,
                     Found& map) {
  int pairs = 0;
  for (auto name = names_a.begin(); name != names_a.end();) {
    const formats::StoredTensor& in_a = *a.Find(*name);
    std::vector<std::string> equal;
    for (const std::string& other : names_b) {
      const formats::StoredTensor& in_b = *b.Find(other);
      if (in_a.dtype != in_b.dtype || in_a.shape != in_b.shape || in_a.Elements() == 0) continue;
      if (++pairs > kValuePairsMax) return Ok();
      const Reader x = a.Read(in_a);
      const Reader y = b.Read(in_b);
      SP_ASSIGN(const bool uniform, IsUniform(*x));
      if (uniform) break;
      SP_ASSIGN(const bool same, AreEqual(*x, *y));
      if (same) equal.push_back(other);
    }
    if (equal.size() != 1) {
      ++name;
      continue;
    }
    map.rename.emplace(*name, equal.front());
    names_b.erase(equal.front());
    name = names_a.erase(name);
  }
  return Ok();
}

/// Whether the prefixes as a rule would disturb names that pair already.
bool DisturbsOthers(const Checkpoint& a, const maps::Applied& pairing, const Candidate& prefix) {
  const Names unpaired(pairing.only_in_a.begin(), pairing.only_in_a.end());
  for (const formats::StoredTensor& tensor : a.tensors()) {
    const std::string& name = tensor.name;
    if (unpaired.count(name)) continue;
    if (!prefix.add.empty() || name.rfind(prefix.strip, 0) == 0) return true;
  }
  return false;
}

void ApplyPrefix(const Checkpoint& a, const maps::Applied& pairing, const Candidate& prefix,
                 Names& names_a, Names& names_b, Found& map) {
  const bool as_renames = DisturbsOthers(a, pairing, prefix);
  for (const std::string& name : pairing.only_in_a) {
    if (name.rfind(prefix.strip, 0) != 0) continue;
    const std::string to = prefix.add + name.substr(prefix.strip.size());
    if (names_b.erase(to) == 0) continue;
    names_a.erase(name);
    if (as_renames) map.rename.emplace(name, to);
  }
  if (as_renames) return;
  map.strip_prefix = prefix.strip;
  map.add_prefix = prefix.add;
}

/// Renames as rules: one with captures where all names of A that it would match are renamed so.
std::string RenameRules(const Checkpoint& a, const std::map<std::string, std::string>& rename) {
  std::map<std::pair<std::string, std::string>, size_t> groups;
  std::map<std::string, size_t> of_a;
  for (const formats::StoredTensor& tensor : a.tensors()) ++of_a[TemplateOf(tensor.name).text];
  const auto rule_of = [](const std::string& from, const std::string& to) {
    const Template left = TemplateOf(from);
    const Template right = TemplateOf(to);
    // NameText keeps a name as it is unless it needs quotes, and then it can have no captures.
    const bool plain = maps::NameText(from) == from && maps::NameText(to) == to;
    const bool alike = plain && !left.numbers.empty() && left.numbers == right.numbers;
    return alike ? std::pair(left.text, right.text)
                 : std::pair(maps::NameText(from), maps::NameText(to));
  };
  for (const auto& [from, to] : rename) ++groups[rule_of(from, to)];
  std::string text;
  std::set<std::pair<std::string, std::string>> written;
  for (const auto& [from, to] : rename) {
    auto rule = rule_of(from, to);
    const bool all = groups[rule] == of_a[TemplateOf(from).text] && groups[rule] > 1;
    if (!all) rule = {maps::NameText(from), maps::NameText(to)};
    if (written.insert(rule).second) text += rule.first + " -> " + rule.second + "\n";
  }
  return text;
}

std::string RulesText(const Checkpoint& a, const Found& found) {
  std::string text = RenameRules(a, found.rename);
  if (!found.strip_prefix.empty() || !found.add_prefix.empty()) {
    text += fmt::format("{}{{rest*}} -> {}{{rest*}}\n", found.strip_prefix, found.add_prefix);
  }
  return text;
}

/// Each rule once: the layers are captures.
std::string JoinedRules(const std::vector<JoinedSuggestion>& joined) {
  std::set<std::string> written;
  std::string text;
  for (const JoinedSuggestion& one : joined) {
    std::string parts;
    for (const std::string& part : one.parts) {
      parts += (parts.empty() ? "" : ", ") + TemplateOf(part).text;
    }
    const std::string several = fmt::format(fmt::runtime(one.form), parts);
    const std::string whole = TemplateOf(one.whole).text;
    const std::string rule = one.parts_of_a ? several + " -> " + whole : whole + " -> " + several;
    if (written.insert(rule).second) text += rule + "\n";
  }
  return text;
}

}  // namespace

Result<Suggestion> Suggest(const Inputs& inputs, const maps::Applied& pairing) {
  const Checkpoint& a = inputs.a;
  const Checkpoint& b = inputs.b;
  Suggestion suggestion;
  Found found;
  Names names_a(pairing.only_in_a.begin(), pairing.only_in_a.end());
  Names names_b(pairing.only_in_b.begin(), pairing.only_in_b.end());
  if (names_a.empty() || names_b.empty()) return suggestion;
  std::vector<std::string> reasons;
  const Candidate prefix = BestPrefix(pairing, names_a, names_b);
  if (prefix.paired > 0) {
    ApplyPrefix(a, pairing, prefix, names_a, names_b, found);
    reasons.push_back(fmt::format("{} names agree when A's prefix {} becomes {}", prefix.paired,
                                  oracle::Quote(prefix.strip), oracle::Quote(prefix.add)));
  }
  const size_t by_prefix = found.rename.size();
  RenameWrapped(names_a, names_b, found);
  const size_t unwrapped = found.rename.size() - by_prefix;
  if (unwrapped > 0) {
    reasons.push_back(fmt::format("{} agree once the names of wrappers are removed", unwrapped));
  }
  SP_TRY(RenameByValue(a, b, names_a, names_b, found));
  const size_t by_value = found.rename.size() - by_prefix - unwrapped;
  if (by_value > 0) reasons.push_back(fmt::format("{} by equal values", Count(by_value, "name")));
  SP_ASSIGN(const auto joined, SuggestJoined(inputs, names_a, names_b));
  if (!joined.empty()) {
    reasons.push_back(fmt::format("{} {} several of the other side", Count(joined.size(), "tensor"),
                                  joined.size() == 1 ? "is" : "are"));
  }
  for (const std::string& reason : reasons) {
    suggestion.reason += (suggestion.reason.empty() ? "" : "; ") + reason;
  }
  if (!suggestion.reason.empty()) suggestion.map = JoinedRules(joined) + RulesText(a, found);
  return suggestion;
}

}  // namespace shardproof::compare
