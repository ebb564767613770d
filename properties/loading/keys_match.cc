// loading.keys_match: the model has the tensors it declares, the checkpoint has the keys it needs,
// and the pipeline tells the truth about both.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "verify/verdict/expectation.h"
#include "verify/verdict/holders.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::loading::keys_match {
namespace {

using Names = std::set<std::string>;

std::vector<std::string> Without(const Names& names, const Names& others) {
  std::vector<std::string> left;
  std::set_difference(names.begin(), names.end(), others.begin(), others.end(),
                      std::back_inserter(left));
  return left;
}

/// Keys that files of older Llama models hold although nothing needs them.
bool IsLegacyKey(const std::string& name) { return name.ends_with(".rotary_emb.inv_freq"); }

/// Ties resolved: one name stands for its group.
std::string Canonical(const OracleRecord& oracle, const std::string& name) {
  return TieGroup(oracle, name).front();
}

/// Whether the plain path takes a key, or passes over it, without a word: a framework knows which
/// of its older keys nothing needs, and makes tensors of others.
bool IsSilent(const OracleRecord& oracle, const std::string& key) {
  if (!oracle.twin || oracle.twin->made_by.empty()) return false;
  const std::vector<std::string>& told = oracle.twin->keys.unexpected;
  return std::find(told.begin(), told.end(), key) == told.end();
}

struct Keys {
  Names missing = {};     ///< declared, canonical, that the source has under none of their names
  Names unexpected = {};  ///< in the source, declared under no name
  Names matched = {};
  Names added = {};  ///< canonical, that the subject says it adds: no checkpoint need have them
};

/// Whether the source has the tensor, under one of its names or as what the plain twin makes of its
/// keys.
bool IsInSource(const OracleRecord& oracle, const std::vector<std::string>& group) {
  return std::any_of(group.begin(), group.end(), [&](const std::string& name) {
    return oracle.source.tensors.contains(name) ||
           (oracle.twin && oracle.twin->values.contains(name));
  });
}

/// What a subject itself puts into the model, such as adapters of its own. Those of --adapter have
/// files, too.
Names AddedIn(const Evidence& evidence) {
  Names added;
  const PhaseEvidence* values = evidence.Phase(Phase::kValues);
  if (values == nullptr || !evidence.test_case.model.adapter.empty()) return added;
  for (const RankEvidence& rank : values->ranks) {
    const StageRecord* ready = rank.Stage(Stage::kReady);
    if (ready == nullptr) continue;
    for (const auto& [name, state] : ready->tensors) {
      if (rank.Descriptor(state).also) added.insert(Canonical(evidence.oracle, name));
    }
  }
  return added;
}

Keys KeysOf(const Evidence& evidence) {
  const OracleRecord& oracle = evidence.oracle;
  Keys keys{.added = AddedIn(evidence)};
  for (const auto& [name, tensor] : oracle.declared) {
    if (!IsPersistent(oracle, name)) continue;
    const std::string canonical = Canonical(oracle, name);
    if (IsInSource(oracle, TieGroup(oracle, name)))
      keys.matched.insert(canonical);
    else if (!keys.added.contains(canonical))
      keys.missing.insert(canonical);
  }
  for (const auto& [name, tensor] : oracle.source.tensors) {
    const bool is_needed = oracle.declared.contains(name) && IsPersistent(oracle, name);
    if (!is_needed && !IsLegacyKey(name) && !IsSilent(oracle, name)) keys.unexpected.insert(name);
  }
  return keys;
}

void CheckModel(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement) {
  const Stage stage = FirstWholeStage(phase);
  if (!StageToJudge(phase, stage, judgement)) return;
  Names declared;
  for (const auto& [name, tensor] : evidence.oracle.declared) declared.insert(name);
  FindingsByRank findings(phase, stage);
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(stage);
    if (record == nullptr || !record->complete) continue;
    Names present;
    for (const auto& [name, state] : record->tensors) {
      if (declared.contains(name) || !rank.Descriptor(state).also) present.insert(name);
    }
    judgement.Compared(declared.size() + present.size());
    std::vector<std::string> lacking = Without(declared, present);
    // A rank of another stage need not have what those that have it hold among themselves.
    std::erase_if(lacking, [&](const std::string& name) {
      return !HoldersOf(phase, stage, name).Expects(rank.rank);
    });
    const std::vector<std::string> extra = Without(present, declared);
    if (!lacking.empty()) {
      findings.Add("", "not-in-model",
                   fmt::format("the model lacks {} of the {} tensors that it declares: {}",
                               lacking.size(), declared.size(), ListSome(lacking)),
                   {rank.rank}, {.against = {Against::What::kDeclared}, .other = lacking[0]});
    }
    if (!extra.empty()) {
      findings.Add("", "not-declared",
                   fmt::format("the model has {} tensors that its definition does not: {}",
                               extra.size(), ListSome(extra)),
                   {rank.rank}, {.against = {Against::What::kDeclared}, .other = extra[0]});
    }
  }
  findings.Report(judgement);
}

/// \param what "missing" or "unexpected"
void CheckReported(const OracleRecord& oracle, const RankEvidence& rank, const std::string& what,
                   const std::vector<std::string>& reported, const Keys& keys,
                   FindingsByRank& findings, Judgement& judgement) {
  const Names& truth = what == "missing" ? keys.missing : keys.unexpected;
  Names said;
  for (const std::string& name : reported) {
    if (IsLegacyKey(name)) continue;
    // A tied name that the file lacks is no lie, although its tensor has a value by the other name.
    const bool tied_away = what == "missing" && oracle.declared.contains(name) &&
                           !oracle.source.tensors.contains(name) &&
                           !truth.contains(Canonical(oracle, name));
    if (tied_away || (what == "missing" && keys.added.contains(Canonical(oracle, name)))) continue;
    said.insert(what == "missing" ? Canonical(oracle, name) : name);
  }
  judgement.Compared(1 + said.size() + truth.size());
  const std::vector<std::string> concealed = Without(truth, said);
  const std::vector<std::string> invented = Without(said, truth);
  if (!concealed.empty()) {
    findings.Add(concealed[0], "concealed",
                 fmt::format("{} keys are {} but the pipeline does not say so: {}",
                             concealed.size(), what, ListSome(concealed)),
                 {rank.rank}, {.keys = what});
  }
  if (!invented.empty()) {
    findings.Add(invented[0], "invented",
                 fmt::format("the pipeline says that {} keys are {}, but they are not: {}",
                             invented.size(), what, ListSome(invented)),
                 {rank.rank}, {.keys = what});
  }
}

void CheckReports(const Evidence& evidence, const PhaseEvidence& phase, const Keys& keys,
                  Judgement& judgement) {
  if (const std::string* why = evidence.WhyCannot("keys")) {
    judgement.Skipped("the subject does not say which keys were missing: " + *why);
    return;
  }
  bool any = false;
  FindingsByRank findings(phase, Stage::kLoaded);
  for (const RankEvidence& rank : phase.ranks) {
    if (!rank.keys) continue;
    any = true;
    CheckReported(evidence.oracle, rank, "missing", rank.keys->missing, keys, findings, judgement);
    CheckReported(evidence.oracle, rank, "unexpected", rank.keys->unexpected, keys, findings,
                  judgement);
  }
  findings.Report(judgement);
  // What a resume loads is its own checkpoint, whose keys are judged by checkpoint.round_trip.
  if (any) return;
  judgement.Compared();
  if (keys.missing.empty() && keys.unexpected.empty() && !IsReference(evidence)) return;
  const char* what = "no rank reported both its missing and its unexpected keys";
  if (IsReference(evidence) && AllEndedWell(phase)) {  // a subject may say what it cannot
    judgement.Found(FindingAt(phase, Stage::kLoaded, "", "unreported", {}, what));
  } else {
    judgement.Inconclusive(fmt::format("phase {}: {}", phase.name(), what));
  }
}

Finding InputFinding(const PhaseEvidence& phase, const std::string& kind, const std::string& tensor,
                     const std::string& message, const Facts& facts = {}) {
  Finding finding;
  finding.facts = facts;
  finding.kind = kind;
  finding.failure_class = "input";
  finding.phase = phase.phase;
  finding.tensor = tensor;
  finding.message = message;
  return finding;
}

/// A prefix that, put before or taken off the model's names, makes them the checkpoint's.
std::string PrefixHint(const Keys& keys) {
  for (const std::string& key : keys.unexpected) {
    for (const std::string& name : keys.missing) {
      if (key.size() > name.size() && key.ends_with("." + name)) {
        return fmt::format("; the checkpoint's keys seem to have the extra prefix \"{}\"",
                           key.substr(0, key.size() - name.size()));
      }
      if (name.size() > key.size() && name.ends_with("." + key)) {
        return fmt::format("; the checkpoint's keys seem to lack the prefix \"{}\"",
                           name.substr(0, name.size() - key.size()));
      }
    }
  }
  return "";
}

/// How a subject says that no checkpoint need have a tensor, such as a new head.
const char* NewTensorsHint(const Evidence& evidence) {
  if (IsReference(evidence)) return "";
  return "; a subject names tensors that it adds by `also=` at each stage";
}

void CheckInput(const Evidence& evidence, const PhaseEvidence& phase, const Keys& keys,
                Judgement& judgement) {
  const OracleRecord& oracle = evidence.oracle;
  Names missing_allowed;
  for (const std::string& name : oracle.missing_allowed) {
    missing_allowed.insert(Canonical(oracle, name));
  }
  const Names unexpected_allowed(oracle.unexpected_allowed.begin(),
                                 oracle.unexpected_allowed.end());
  const std::vector<std::string> missing = Without(keys.missing, missing_allowed);
  const std::vector<std::string> unexpected = Without(keys.unexpected, unexpected_allowed);
  const size_t needed = keys.missing.size() + keys.matched.size();
  judgement.Compared(needed + oracle.source.tensors.size());
  if (keys.matched.empty() && !missing.empty() && !unexpected.empty()) {
    judgement.Found(InputFinding(
        phase, "disjoint", "",
        fmt::format("the checkpoint and the model share no key: the model needs {} ({}), the "
                    "checkpoint has {} ({}){}",
                    needed, ListSome(missing, 2), oracle.source.tensors.size(),
                    ListSome(unexpected, 2), PrefixHint(keys))));
    return;
  }
  if (!missing.empty()) {
    judgement.Found(InputFinding(
        phase, "missing", missing[0],
        fmt::format(
            "the checkpoint lacks {} of the {} keys that the model needs, and the case does "
            "not allow that: {}{}{}",
            missing.size(), needed, ListSome(missing), PrefixHint(keys),
            NewTensorsHint(evidence))));
  }
  if (!unexpected.empty()) {
    judgement.Found(InputFinding(
        phase, "unexpected", unexpected[0],
        fmt::format(
            "the checkpoint has {} keys that the model does not know, and the case does not "
            "allow that: {}{}",
            unexpected.size(), ListSome(unexpected), PrefixHint(keys))));
  }
}

/// One tensor of the model has one value. A file that has two leaves open which, and whoever ties
/// them loses one without a word.
void CheckTiedValues(const OracleRecord& oracle, const PhaseEvidence& phase, Judgement& judgement) {
  for (const std::vector<std::string>& group : oracle.ties) {
    const FileTensor* first = nullptr;
    for (const std::string& name : group) {
      const auto found = oracle.source.tensors.find(name);
      if (found == oracle.source.tensors.end()) continue;
      const FileTensor& tensor = found->second;
      if (first == nullptr) {
        first = &tensor;
        continue;
      }
      judgement.Compared();
      if (tensor.dtype == first->dtype && tensor.digest == first->digest) continue;
      judgement.Found(
          InputFinding(phase, "tied-differ", name,
                       fmt::format("{} is tied to {}, but the checkpoint has another value for it: "
                                   "a model that ties them cannot hold both",
                                   name, first->name),
                       {.against = {Against::What::kCheckpoint}, .other = first->name}));
    }
  }
}

/// The model's tensors are those it declares; the keys that the pipeline reports as missing and
/// unexpected are those that are (a subject that reports none conceals none, where none is); none
/// is that the case does not allow; tied names have one value in the checkpoint.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!evidence.oracle.source.error.empty()) {
    judgement.Inconclusive("the source cannot be read: " + evidence.oracle.source.error);
    return;
  }
  if (evidence.oracle.declared.empty()) {
    judgement.Inconclusive("nothing says which tensors the model should have");
    return;
  }
  const Keys keys = KeysOf(evidence);
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    if (phase->phase == Phase::kValues) {
      CheckInput(evidence, *phase, keys, judgement);
      CheckTiedValues(evidence.oracle, *phase, judgement);
    }
    CheckModel(evidence, *phase, judgement);
    if (!phase->facts().resumes) CheckReports(evidence, *phase, keys, judgement);
  }
}

const PropertyRegistration kRegistration{{
    .id = "loading.keys_match",
    .claim = "The model has the tensors it declares, and every missing or unexpected key is "
             "allowed and reported.",
    .reads = {{LoadingPhases(),
               {Stage::kReady, Stage::kRestored},
               "key reports, the source checkpoint"}},
    .tolerance = "none: sets; *.rotary_emb.inv_freq in old Llama files is allowed",
    .source = "huggingface/transformers#48744, torchgeo/torchgeo#4036, deepspeedai/DeepSpeed#7848",
    .killed_by = {"loading.missing_not_reported", "loading.prefix_never_matches",
                  "subject.unexpected_keys_untold"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::keys_match
