// Markdown for the page of a CI run. GitHub renders it, so text that others chose is written as
// characters that are no markup in it.
#include <fmt/format.h>

#include <algorithm>

#include "src/text/printable.h"
#include "verify/gate/gate.h"

namespace shardproof::gate {
namespace {

constexpr size_t kNewShown = 5;
constexpr size_t kKnownShown = 20;
constexpr size_t kMessageBytesMax = 2000;

/// Whether Markdown takes the character at `at` for no markup because of its neighbours: an
/// underscore within a word, a colon before a space.
bool IsPlainHere(std::string_view text, size_t at) {
  const auto is_letter = [&](size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  if (text[at] == '_') return at > 0 && is_letter(at - 1) && is_letter(at + 1);
  return text[at] == ':' && (at + 1 == text.size() || text[at + 1] == ' ');
}

/// Words in running text or in a cell of a table: what could be markup becomes a reference to the
/// character, which Markdown never takes for markup.
std::string Escaped(std::string_view text) {
  std::string out;
  const std::string printable = Printable(text.substr(0, kMessageBytesMax));
  for (size_t at = 0; at < printable.size(); ++at) {
    const char c = printable[at];
    const bool is_markup = std::string_view("&<>|`*_[]\\~#@!:$").find(c) != std::string_view::npos;
    if (is_markup && !IsPlainHere(printable, at)) {
      out += fmt::format("&#{};", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return text.size() > kMessageBytesMax ? out + "..." : out;
}

/// The same in the letters of code. Backticks could not hold a backtick, or a bar in a table.
std::string Code(std::string_view text) {
  return text.empty() ? "" : "<code>" + Escaped(text) + "</code>";
}

std::string ItemText(const Item& item, const char* word) {
  std::string text = fmt::format("- {}{}: {}<br>fingerprint {}", word, Code(item.property),
                                 Escaped(item.message), Code(item.fingerprint()));
  if (!item.kind.empty()) text += ", kind " + Code(item.kind);
  if (!item.stage.empty()) text += ", stage " + Code(item.stage);
  if (!item.tensor.empty()) text += ", tensor " + Code(item.tensor);
  if (item.known) {
    text += fmt::format("<br>{} {}: {}, {}{}", item.known->is_expired ? "expired" : "known until",
                        item.known->expires, Escaped(item.known->owner), Escaped(item.known->issue),
                        item.known->why.empty() ? "" : ": " + Escaped(item.known->why));
  }
  return text + "\n";
}

/// The findings that are new, or the known ones.
std::string Items(const Outcome& outcome, bool are_new) {
  std::string text;
  size_t shown = 0;
  size_t count = 0;
  for (const Item& item : outcome.items) {
    if (item.IsNew() != are_new) continue;
    ++count;
    if (item.message.empty() || shown == (are_new ? kNewShown : kKnownShown)) continue;
    ++shown;
    text += ItemText(item, are_new ? "**FAIL** " : "");
  }
  if (count == 0) return "";
  if (count > shown) text += fmt::format("- and {} more\n", count - shown);
  return fmt::format("#### {}\n\n{}\n", are_new ? "Findings" : "Known findings, which do not fail",
                     text);
}

const char* WordOf(const Row& row) {
  if (row.is_known) return "known";
  switch (row.verdict) {
    case Verdict::kFail:
      return "**fail**";
    case Verdict::kInconclusive:
      return "**inconclusive**";
    case Verdict::kPass:
      return "pass";
    case Verdict::kSkip:
      return "skip";
  }
  return "";
}

std::string Table(const std::vector<const Row*>& rows) {
  std::string text = "| property | verdict | comparisons | findings | |\n";
  text += "| --- | --- | ---: | ---: | --- |\n";
  for (const Row* row : rows) {
    text += fmt::format("| {} | {} | {} | {} | {} |\n", Code(row->id), WordOf(*row),
                        Grouped(row->comparisons), row->findings == 0 ? "" : Grouped(row->findings),
                        Escaped(row->reason));
  }
  return text;
}

std::string Tables(const Outcome& outcome) {
  std::vector<const Row*> judged, skipped;
  for (const Row& row : outcome.rows) {
    (row.verdict == Verdict::kSkip ? skipped : judged).push_back(&row);
  }
  std::stable_sort(judged.begin(), judged.end(),
                   [](const Row* a, const Row* b) { return a->verdict > b->verdict; });
  std::string text;
  if (!judged.empty()) text += "#### Properties\n\n" + Table(judged) + "\n";
  if (skipped.empty()) return text;
  return text + fmt::format("<details><summary>{} skipped</summary>\n\n{}\n</details>\n\n",
                            skipped.size() == 1 ? "1 property was"
                                                : fmt::format("{} properties were", skipped.size()),
                            Table(skipped));
}

}  // namespace

std::string Summary(const Outcome& outcome, const std::string& report_url) {
  std::string text = fmt::format("### Shardproof {}: {}\n\n", Escaped(outcome.command),
                                 Escaped(VerdictInWords(outcome)));
  if (!outcome.target.empty()) text += Code(outcome.target) + ": ";
  text += Plural(outcome.comparisons, "comparison");
  if (outcome.duration_ms > 0) text += fmt::format(" in {:.1f} s", outcome.duration_ms / 1000);
  text += fmt::format(", exit code {}", outcome.exit_code);
  if (!report_url.empty()) {
    text += fmt::format(". [The report]({})", report_url);
  } else if (!outcome.report.empty()) {
    text += ". The report is " + Code(outcome.report);
  }
  text += ".\n\n";
  if (!outcome.reason.empty() && outcome.notes.empty()) text += Escaped(outcome.reason) + "\n\n";
  for (const std::string& note : outcome.notes) text += "- " + Escaped(note) + "\n";
  if (!outcome.notes.empty()) text += "\n";
  return text + Items(outcome, true) + Items(outcome, false) + Tables(outcome);
}

}  // namespace shardproof::gate
