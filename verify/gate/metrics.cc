// The text format of Prometheus.
#include <fmt/format.h>

#include "src/text/printable.h"
#include "verify/gate/gate.h"

namespace shardproof::gate {
namespace {

/// A label's value: a backslash, a quote and a newline are escaped; what is no text is not in it.
std::string Label(const std::string& value) {
  std::string out;
  for (const char c : Printable(value)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

class Text {
 public:
  explicit Text(const Outcome& outcome)
      : labels_(fmt::format("command=\"{}\",target=\"{}\"", Label(outcome.command),
                            Label(outcome.target))) {}

  void Family(const char* name, const char* help) {
    name_ = name;
    out_ += fmt::format("# HELP shardproof_{0} {1}\n# TYPE shardproof_{0} gauge\n", name, help);
  }
  template <typename Number>
  void Sample(Number value, const std::string& more = "") {
    out_ += fmt::format("shardproof_{}{{{}{}}} {}\n", name_, labels_, more, value);
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string labels_;
  std::string name_;
  std::string out_;
};

}  // namespace

std::string Metrics(const Outcome& outcome, int64_t now) {
  Text text(outcome);
  text.Family("verdict", "1 for the verdict of the last run, 0 for the others.");
  for (const Verdict each :
       {Verdict::kPass, Verdict::kFail, Verdict::kInconclusive, Verdict::kSkip}) {
    text.Sample(each == outcome.verdict ? 1 : 0, ",verdict=\"" + ToString(each) + "\"");
  }
  text.Family("exit_code", "Exit code of the last run; 0 is a pass.");
  text.Sample(outcome.exit_code);
  text.Family("findings", "Findings of the last run; new ones and expired ones fail it.");
  text.Sample(outcome.NewCount() - outcome.ExpiredCount(), ",state=\"new\"");
  text.Sample(outcome.KnownCount(), ",state=\"known\"");
  text.Sample(outcome.ExpiredCount(), ",state=\"expired\"");
  text.Family("comparisons", "Comparisons that the last run made.");
  text.Sample(outcome.comparisons);
  if (!outcome.rows.empty()) {
    text.Family("property_comparisons", "Comparisons that the last run made, by property.");
    for (const Row& row : outcome.rows) {
      text.Sample(row.comparisons, ",property=\"" + Label(row.id) + "\"");
    }
    text.Family("property_findings", "Findings of the last run, by property.");
    for (const Row& row : outcome.rows) {
      text.Sample(row.findings, ",property=\"" + Label(row.id) + "\"");
    }
  }
  if (outcome.duration_ms > 0) {
    text.Family("duration_seconds", "How long the last run took.");
    text.Sample(outcome.duration_ms / 1000);
  }
  text.Family("last_run_timestamp_seconds", "When the last run ended, in seconds since 1970.");
  text.Sample(now);
  return text.Take();
}

}  // namespace shardproof::gate
