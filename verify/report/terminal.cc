// The report for people: short when all is well, about eight lines when one thing is not.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/text/printable.h"
#include "verify/case/axes.h"
#include "verify/case/names.h"
#include "verify/report/memory_text.h"
#include "verify/report/report.h"

namespace shardproof {
namespace {

constexpr size_t kFindingsShown = 2;  // in full; what follows from them is counted
constexpr size_t kNamedMax = 5;       // properties that one reason holds for, if for all
constexpr int kIndent = 2;

class Terminal {
 public:
  Terminal(const RunResult& result, const TerminalStyle& style) : result_(result), style_(style) {}

  std::string Report() {
    Header();
    Findings();
    Notes();
    Reasons(Verdict::kInconclusive);
    for (const std::string& fault : result_.faults) Line(Printable("fault   " + fault), 8);
    Groups();
    Held();
    Skipped();
    if (const std::string text = LoadingText(result_.loading_memory); !text.empty())
      Line("memory  " + text, 8);
    out_ += MemoryText(result_.memory, style_.width);
    Footer();
    return std::move(out_);
  }

 private:
  void Header();
  void Groups();
  void Held();
  void Skipped();
  void Reasons(Verdict verdict);
  void Findings();
  void OneFinding(const Finding& finding);
  void Notes();
  void Footer();

  void Line(const std::string& text, int indent = kIndent) {
    out_ += Wrapped(text, style_.width, indent) + "\n";
  }

  std::string Paint(const char* code, const std::string& text) const {
    return style_.color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  }

  static const char* ColorOf(Verdict verdict) {
    switch (verdict) {
      case Verdict::kFail:
        return "1;31";
      case Verdict::kInconclusive:
        return "1;33";
      case Verdict::kPass:
        return "1;32";
      case Verdict::kSkip:
        return "2";
    }
    return "0";
  }

  const RunResult& result_;
  const TerminalStyle style_;
  std::string out_;
};

/// "fsdp2" for .../fsdp2.py
std::string SubjectName(const std::string& subject) {
  const size_t slash = subject.rfind('/');
  const std::string file = slash == std::string::npos ? subject : subject.substr(slash + 1);
  return file.ends_with(".py") ? file.substr(0, file.size() - 3) : file;
}

/// What was loaded, and how; of a job that was only observed neither may be known.
std::string ModelText(const RunResult& result) {
  const Case& c = result.test_case;
  std::string text;
  if (!c.model.checkpoint.empty()) text += ", " + c.model.checkpoint;
  if (result.tensor_count > 0) text += ", " + Plural(result.tensor_count, "tensor");
  if (c.subject == kReference) text += ", " + c.strategy;  // other subjects load as they do
  return text;
}

/// Whether values were to be held against the checkpoint, and none was.
bool NothingOfSource(const RunResult& result) {
  if (result.test_case.model.checkpoint == kNoCheckpoint) return false;
  return std::any_of(result.properties.begin(), result.properties.end(), [](const auto& property) {
    const Judgement& judgement = property.judgement;
    return property.id == "loading.equals_source" && judgement.comparisons() == 0 &&
           judgement.verdict() == Verdict::kInconclusive;
  });
}

void Terminal::Header() {
  const Case& c = result_.test_case;
  const size_t findings = result_.FindingCount();
  const std::string verdict = ToString(result_.verdict);
  const size_t known = result_.gate.known_count;
  std::string found = findings == 0 ? "" : ", " + Plural(findings, "finding");
  if (known > 0) {
    found = known == findings ? ", " + Plural(known, "known finding")
                              : found + fmt::format(", {} of them known", known);
  }
  std::string line = fmt::format(
      "{}{}{}: {} on {} ({}){}, seed {}", verdict, found,
      NothingOfSource(result_) ? ", nothing was compared with the checkpoint" : "",
      SubjectName(c.subject), Plural(static_cast<uint64_t>(result_.compared.ranks), "rank"),
      MeshText(c.mesh), ModelText(result_), c.seed);
  if (c.device != "cpu") line += ", device " + c.device;
  if (c.optimizer != "none") line += ", optimizer " + c.optimizer;
  if (!c.bug.empty()) line += ", planted bug " + c.bug;
  for (const FaultCase& fault : c.faults) line += ", fault " + fault.id;
  const auto torch = result_.versions.find("torch");
  if (torch != result_.versions.end()) line += ", torch " + torch->second;
  const std::string wrapped = Wrapped("shardproof: " + Printable(line), style_.width, kIndent);
  const size_t prefix = std::string("shardproof: ").size();
  out_ += "shardproof: " + Paint(ColorOf(result_.verdict), verdict) +
          wrapped.substr(prefix + verdict.size()) + "\n";
}

// "passed  loading 11 of 12, sharding 6": how many of each group passed, of those that were judged.
void Terminal::Groups() {
  struct Count {
    size_t passed = 0;
    size_t judged = 0;
  };
  std::map<std::string, Count> groups;
  for (const PropertyResult& property : result_.properties) {
    const Verdict verdict = property.judgement.verdict();
    if (verdict == Verdict::kSkip) continue;
    Count& count = groups[property.id.substr(0, property.id.find('.'))];
    ++count.judged;
    count.passed += verdict == Verdict::kPass ? 1 : 0;
  }
  std::string line;
  for (const auto& [name, count] : groups) {
    line += fmt::format("{}{} {}", line.empty() ? "passed  " : ", ", name, count.passed);
    if (count.passed != count.judged) line += fmt::format(" of {}", count.judged);
  }
  Line(line.empty() ? "no property was judged" : Printable(line), 8);
  for (const PropertyResult& property : result_.properties) {
    const Judgement& judgement = property.judgement;
    if (judgement.verdict() == Verdict::kPass && !judgement.reason().empty())
      Line(Printable(fmt::format("but for {}: {}", property.id, judgement.reason())), 8);
  }
}

// "held    24 tensors on dp_shard 4, 3 whole on each of 4 ranks": in which groups they were judged.
void Terminal::Held() {
  std::string line;
  for (const HeldCount& count : result_.compared.held) {
    const std::string tensors =
        line.empty() ? Plural(count.tensors, "tensor") : std::to_string(count.tensors);
    line += fmt::format("{}{} {}", line.empty() ? "held    " : ", ", tensors, count.how);
  }
  if (!line.empty()) Line(Printable(line), 8);
}

// An ordinary run skips many, and their number is enough.
void Terminal::Skipped() {
  if (style_.explain) return Reasons(Verdict::kSkip);
  const auto count = std::count_if(
      result_.properties.begin(), result_.properties.end(),
      [](const auto& property) { return property.judgement.verdict() == Verdict::kSkip; });
  if (count == 0) return;
  Line(fmt::format("skipped {} {} (--explain shows why)", count,
                   count == 1 ? "property" : "properties"));
}

// Properties that share a reason share a line: a phase that did not run skips many.
void Terminal::Reasons(Verdict verdict) {
  std::vector<std::pair<std::string, std::string>> reasons;
  for (const PropertyResult& property : result_.properties) {
    if (property.judgement.verdict() != verdict) continue;
    const std::string reason = property.judgement.reason();
    const auto known = std::find_if(reasons.begin(), reasons.end(),
                                    [&](const auto& entry) { return entry.first == reason; });
    if (known == reasons.end()) {
      reasons.emplace_back(reason, property.id);
    } else {
      known->second += ", " + property.id;
    }
  }
  const std::string label = verdict == Verdict::kSkip ? "skipped" : "inconclusive";
  const bool is_of_all =
      reasons.size() == 1 && verdict == result_.verdict && result_.properties.size() > kNamedMax &&
      std::all_of(
          result_.properties.begin(), result_.properties.end(),
          [&](const PropertyResult& property) { return property.judgement.verdict() == verdict; });
  if (is_of_all) reasons[0].second = "all properties";
  for (const auto& [reason, ids] : reasons) {
    std::string line = Wrapped(label + " " + Printable(ids + ": " + reason), style_.width, kIndent);
    out_ += Paint(ColorOf(verdict), label) + line.substr(label.size()) + "\n";
  }
}

std::string RanksText(const Finding& finding) {
  if (finding.ranks.empty()) return "";
  if (finding.ranks.size() == 1) {
    return fmt::format("rank {} of {}", finding.ranks[0], finding.world_size);
  }
  return fmt::format("{} of {} ranks", finding.ranks.size(), finding.world_size);
}

std::string Where(const Finding& finding, bool names_hosts) {
  std::string text = RanksText(finding);
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (names_hosts && !finding.hosts.empty())
    add("host " + fmt::format("{}", fmt::join(finding.hosts, " ")));
  if (!finding.stage.empty()) add("stage " + finding.stage);
  if (finding.phase) add(std::string("phase ") + NameOf(*finding.phase));
  if (finding.differing) {
    add(Plural(*finding.differing, "element") + (*finding.differing == 1 ? " differs" : " differ"));
  }
  if (finding.failure_class != "code") add("class " + finding.failure_class);
  return text;
}

// What the first line says when a property gave no message of its own.
std::string Subject(const Finding& finding) {
  std::string text = finding.tensor;
  if (!finding.coordinates.empty()) {
    text += fmt::format("[{}]", fmt::join(finding.coordinates, ","));
  }
  if (const std::string ranks = RanksText(finding); !ranks.empty()) text += " on " + ranks;
  if (!finding.seen.empty()) text += " is " + finding.seen;
  if (!finding.expected.empty()) text += ", expected " + finding.expected;
  return text.empty() ? finding.kind : text;
}

void Terminal::OneFinding(const Finding& finding) {
  const bool has_message = !finding.message.empty();
  const std::string message = has_message ? finding.message : Subject(finding);
  out_ += (result_.IsKnown(finding) ? Paint(ColorOf(Verdict::kInconclusive), "KNOWN")
                                    : Paint(ColorOf(Verdict::kFail), "FAIL")) +
          " " + Printable(finding.property + ": " + message) + "\n";
  // Only what the first line does not say already.
  const auto add = [&](const char* label, const std::string& value, bool is_said) {
    if (!value.empty() && !is_said) Line(Printable(std::string(label) + value), 12);
  };
  add("  expected  ", finding.expected, finding.in_message.expected);
  add("  seen      ", finding.seen, finding.in_message.seen);
  add("  likely    ", finding.explanation, has_message && finding.in_message.explanation);
  if (const std::string where = Where(finding, result_.compared.hosts > 1); !where.empty()) {
    Line(Printable("  where     " + where), 12);
  }
  if (finding.held) Line(Printable("  held by   " + HeldInText(*finding.held)), 12);
  const std::string fingerprint = finding.Fingerprint();
  if (style_.explain || result_.gate.is_used) {
    out_ += fmt::format("  fingerprint {}, kind {} (for --known)\n", fingerprint,
                        Printable(finding.kind));
  }
  const auto known = result_.gate.known.find(fingerprint);
  if (known == result_.gate.known.end()) return;
  const KnownAs& as = known->second;
  Line(Printable(fmt::format("  {}   {}, {}, until {}", as.is_expired ? "expired" : "known  ",
                             as.owner, as.issue, as.expires)),
       12);
}

// What the gate has to say of known failures, and of how much was compared.
void Terminal::Notes() {
  for (const std::string& note : result_.gate.notes) Line(Printable("gate    " + note), 8);
}

void Terminal::Findings() {
  std::vector<const Finding*> findings = result_.Findings();
  if (findings.size() > 2) {  // the second is of another kind than the first, if there is one
    const Finding& first = *findings[0];
    const auto other = std::find_if(findings.begin() + 1, findings.end(), [&](const Finding* each) {
      return each->property != first.property || each->explanation != first.explanation;
    });
    if (other != findings.end()) std::rotate(findings.begin() + 1, other, other + 1);
  }
  const size_t shown = std::min(findings.size(), kFindingsShown);
  for (size_t i = 0; i < shown; ++i) OneFinding(*findings[i]);
  if (shown < result_.FindingCount()) {
    std::map<std::string, size_t> rest;
    for (const PropertyResult& property : result_.properties) {
      if (const size_t count = property.judgement.FindingCount()) rest[property.id] = count;
    }
    for (size_t i = 0; i < shown; ++i) {
      if (--rest[findings[i]->property] == 0) rest.erase(findings[i]->property);
    }
    std::string line =
        fmt::format("and {}:", Plural(result_.FindingCount() - shown, "more finding"));
    const char* separator = "";
    for (const auto& [id, count] : rest) {
      line += fmt::format("{} {} {}", separator, id, count);
      separator = ",";
    }
    Line(Printable(line));
  }
  if (!findings.empty() && !result_.next_command.empty()) {
    out_ += "  next      " + Printable(result_.next_command) + "\n";
  }
}

void Terminal::Footer() {
  const Compared& compared = result_.compared;
  const std::string verdict = ToString(result_.verdict);
  std::string phases;
  for (const Phase phase : compared.phases) {
    phases += (phases.empty() ? "" : ", ") + std::string(NameOf(phase));
  }
  std::string line = fmt::format("{}: {}, {}, {}, phases {}; {:.1f} s", verdict,
                                 Plural(compared.comparisons, "comparison"),
                                 Plural(static_cast<uint64_t>(compared.ranks), "rank"),
                                 Plural(compared.stages.size(), "stage"),
                                 phases.empty() ? "none" : phases, result_.duration_ms / 1000);
  for (size_t i = 0; i < compared.skipped.size(); ++i) {
    line += fmt::format("{} {} ({})", i == 0 ? "; not run:" : ",",
                        NameOf(compared.skipped[i].phase), compared.skipped[i].reason);
  }
  if (!result_.report_path.empty()) line += "; report " + result_.report_path;
  const std::string wrapped = Wrapped(Printable(line), style_.width, kIndent);
  out_ += Paint(ColorOf(result_.verdict), verdict) + wrapped.substr(verdict.size()) + "\n";
}

}  // namespace

std::string TerminalReport(const RunResult& result, const TerminalStyle& style) {
  return Terminal(result, style).Report();
}

}  // namespace shardproof
