#include "verify/gate/gate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/text/printable.h"
#include "verify/evidence/line_file.h"

namespace shardproof::gate {
namespace {

constexpr size_t kNamedMax = 5;

/// A URL that is fit for a link: one word, without what would end it in Markdown.
Status CheckUrl(const std::string& url) {
  const bool is_web = url.starts_with("https://") || url.starts_with("http://");
  const bool is_plain = std::all_of(url.begin(), url.end(), [](unsigned char c) {
    return c > ' ' && c < 0x7f &&
           std::string_view("<>()[]\\\"`|").find(static_cast<char>(c)) == std::string_view::npos;
  });
  if (url.empty() || (is_web && is_plain)) return Ok();
  return BadInput(fmt::format(
      "--report-url: expected a URL that begins with https:// or http:// and has no spaces, "
      "brackets or quotes, found {}",
      Printable(url)));
}

/// What is to be written is found out before anything is run.
/// \param made  a directory that the run makes
Status CheckCanBeWritten(const char* option, const std::string& path, const std::string& made) {
  namespace fs = std::filesystem;
  if (path.empty()) return Ok();
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return BadInput(
        fmt::format("{} {}: expected a file to write, found a directory", option, path));
  }
  const fs::path folder = fs::absolute(path).lexically_normal().parent_path();
  const bool is_made =
      !made.empty() && folder == (fs::absolute(made) / "").lexically_normal().parent_path();
  if (is_made || fs::is_directory(folder, error)) return Ok();
  return BadInput(fmt::format("{} {}: cannot be written: there is no directory {}", option, path,
                              folder.string()));
}

/// A rank that hangs, or a verifier that is broken, says nothing of what it did not come to.
bool IsNeverKnown(const Item& item) {
  return item.kind == "hang" || item.failure_class == "verifier";
}

bool Names(const KnownFailure& entry, const Item& item) {
  if (!entry.fingerprint.empty()) return entry.fingerprint == item.fingerprint();
  return entry.property == item.property && entry.kind == item.kind &&
         (item.tensor.empty() ? entry.tensor.empty() : MatchesPattern(item.tensor, entry.tensor));
}

std::string Of(const KnownAs& as) {
  return fmt::format("{}, {}, until {}", Printable(as.owner), Printable(as.issue), as.expires);
}

/// "a, b and 3 more"
std::string Listed(const std::vector<std::string>& all) {
  if (all.size() <= kNamedMax) return fmt::format("{}", fmt::join(all, "; "));
  return fmt::format("{}; and {} more", fmt::join(all.begin(), all.begin() + kNamedMax, "; "),
                     all.size() - kNamedMax);
}

size_t CountIf(const Outcome& outcome, bool (*counts)(const Item&)) {
  return static_cast<size_t>(std::count_if(outcome.items.begin(), outcome.items.end(), counts));
}

/// The verdict of a row whose findings are all known: what else was compared held, if anything was.
Verdict WithoutKnown(const Row& row) {
  if (row.verdict != Verdict::kFail) return row.verdict;
  return row.comparisons > 0 && row.reason.empty() ? Verdict::kPass : Verdict::kInconclusive;
}

}  // namespace

std::string Item::fingerprint() const {
  Finding finding;
  finding.property = property;
  finding.kind = kind;
  finding.stage = stage;
  finding.tensor = tensor;
  return finding.Fingerprint();
}

size_t Outcome::KnownCount() const {
  return CountIf(*this, [](const Item& item) { return !item.IsNew(); });
}
size_t Outcome::ExpiredCount() const {
  return CountIf(*this, [](const Item& item) { return item.known && item.known->is_expired; });
}
size_t Outcome::NewCount() const {
  return CountIf(*this, [](const Item& item) { return item.IsNew(); });
}

Result<Gate> Gate::Open(const Options& options, const std::string& today) {
  Gate gate;
  gate.options_ = options;
  SP_TRY(CheckUrl(options.report_url));
  SP_TRY(CheckCanBeWritten("--summary", options.summary, options.made));
  SP_TRY(CheckCanBeWritten("--prom", options.prometheus, options.made));
  if (!options.known.empty()) {
    SP_ASSIGN(gate.known_, ReadKnown(options.known, today));
  }
  if (!options.baseline.empty()) {
    SP_ASSIGN(gate.baseline_, ReadBaseline(options.baseline));
  }
  return gate;
}

void Gate::ApplyKnown(Outcome& outcome) const {
  std::vector<bool> occurs(known_.size(), false);
  std::set<std::string> refused;
  for (Item& item : outcome.items) {
    for (size_t i = 0; i < known_.size(); ++i) {
      if (!Names(known_[i], item)) continue;
      occurs[i] = true;
      if (IsNeverKnown(item)) {
        refused.insert(known_[i].Name());
      } else if (!item.known || item.known->is_expired) {
        item.known = known_[i].as;
      }
    }
  }
  std::vector<std::string> gone;
  for (size_t i = 0; i < known_.size(); ++i) {
    const KnownFailure& entry = known_[i];
    if (!occurs[i]) gone.push_back(fmt::format("{} ({})", entry.Name(), Of(entry.as)));
    if (occurs[i] && entry.as.is_expired) {
      outcome.notes.push_back(fmt::format("the known failure {} has expired, so it fails ({})",
                                          entry.Name(), Of(entry.as)));
    }
  }
  for (const std::string& name : refused) {
    outcome.notes.push_back(fmt::format(
        "{} is on the list of known failures, but a hang or a broken verifier always fails", name));
  }
  if (!gone.empty()) {
    outcome.notes.push_back(fmt::format("{} did not occur in this run: {}",
                                        Plural(gone.size(), "known failure"), Listed(gone)));
  }
}

std::vector<std::string> Gate::WhyTooFew(const Outcome& outcome) const {
  std::vector<std::string> why;
  const uint64_t now = outcome.comparisons;
  if (options_.min_comparisons && now < *options_.min_comparisons) {
    why.push_back(fmt::format("{} made, and --min-comparisons asks for {}",
                              Plural(now, "comparison"), Grouped(*options_.min_comparisons)));
  }
  if (!baseline_) return why;
  std::vector<std::string> none;
  std::vector<std::string> fewer;
  for (const auto& [id, then] : baseline_->properties) {
    if (then == 0) continue;
    const auto row = std::find_if(outcome.rows.begin(), outcome.rows.end(),
                                  [&](const Row& each) { return each.id == id; });
    const uint64_t count = row == outcome.rows.end() ? 0 : row->comparisons;
    if (count == 0) {
      none.push_back(Printable(id));
    } else if (!outcome.is_drawn &&
               static_cast<double>(count) < kEnoughOfBaseline * static_cast<double>(then)) {
      fewer.push_back(
          fmt::format("{} {} instead of {}", Printable(id), Grouped(count), Grouped(then)));
    }
  }
  if (!none.empty()) {
    why.push_back(fmt::format("compared in the baseline, but not now: {}", Listed(none)));
  }
  if (!fewer.empty()) {
    why.push_back(fmt::format("fewer than 90 % of the baseline's comparisons: {}", Listed(fewer)));
  }
  if (static_cast<double>(now) < kEnoughOfBaseline * static_cast<double>(baseline_->comparisons)) {
    why.push_back(fmt::format("{} in all, and {} in the baseline", Plural(now, "comparison"),
                              Grouped(baseline_->comparisons)));
  }
  return why;
}

void Gate::Judge(Outcome& outcome) const {
  outcome.is_gated = options_.Decides();
  ApplyKnown(outcome);
  for (Row& row : outcome.rows) {
    const auto is_its = [&](const Item& item) { return item.property == row.id; };
    const auto its = std::count_if(outcome.items.begin(), outcome.items.end(), is_its);
    row.is_known = row.findings > 0 && row.findings == static_cast<uint64_t>(its) &&
                   std::none_of(outcome.items.begin(), outcome.items.end(),
                                [&](const Item& item) { return is_its(item) && item.IsNew(); });
  }
  const bool all_known =
      outcome.verdict == Verdict::kFail && outcome.KnownCount() > 0 && outcome.NewCount() == 0 &&
      std::all_of(outcome.rows.begin(), outcome.rows.end(),
                  [](const Row& row) { return row.verdict != Verdict::kFail || row.is_known; });
  if (all_known) {
    outcome.verdict = Verdict::kSkip;
    for (const Row& row : outcome.rows) {
      outcome.verdict = Worse(outcome.verdict, WithoutKnown(row));
      if (WithoutKnown(row) == Verdict::kInconclusive && outcome.reason.empty()) {
        outcome.reason =
            row.id + ": " + (row.reason.empty() ? "nothing else was compared" : row.reason);
      }
    }
    outcome.exit_code = ExitCodeOf(outcome.verdict);
  }
  const std::vector<std::string> too_few = WhyTooFew(outcome);
  for (const std::string& why : too_few) {
    outcome.notes.push_back("compared less than it should: " + why);
  }
  if (too_few.empty() || outcome.verdict == Verdict::kFail) return;
  outcome.verdict = Verdict::kInconclusive;
  outcome.exit_code = ExitCodeOf(Verdict::kInconclusive);
  outcome.reason = outcome.notes[outcome.notes.size() - too_few.size()];
}

Status Gate::Write(const Outcome& outcome) const {
  if (!options_.summary.empty()) {
    const std::string text = Summary(outcome, options_.report_url);
    const char* page = std::getenv("GITHUB_STEP_SUMMARY");
    if (page != nullptr && options_.summary == page) {
      // What other commands of the step have said stays.
      std::ofstream file(page, std::ios::binary | std::ios::app);
      if (!(file << text << std::flush)) {
        return BadInput(fmt::format("--summary {}: cannot be written", page));
      }
    } else {
      SP_TRY(WriteFileAtomically(options_.summary, text));
    }
  }
  if (options_.prometheus.empty()) return Ok();
  return WriteFileAtomically(options_.prometheus, Metrics(outcome, std::time(nullptr)));
}

nlohmann::json KnownToJson(const KnownAs& as) {
  nlohmann::json json = {{"owner", as.owner},
                         {"issue", as.issue},
                         {"expires", as.expires},
                         {"is_expired", as.is_expired}};
  if (!as.why.empty()) json["why"] = as.why;
  return json;
}

nlohmann::json GateToJson(const Outcome& outcome) {
  return {{"new", outcome.NewCount() - outcome.ExpiredCount()},
          {"known", outcome.KnownCount()},
          {"expired", outcome.ExpiredCount()},
          {"notes", outcome.notes}};
}

std::string VerdictInWords(const Outcome& outcome) {
  const size_t known = outcome.KnownCount();
  const size_t findings = outcome.items.size();
  if (outcome.is_refused) return "no verdict";
  std::string text = ToString(outcome.verdict);
  if (findings == 0) return text;
  if (known == findings) return fmt::format("{}, {}", text, Plural(known, "known finding"));
  text += ", " + Plural(findings, "finding");
  return known == 0 ? text : fmt::format("{}, {} of them known", text, known);
}

}  // namespace shardproof::gate
