// shardproof clean: what earlier runs left, and what of it may go.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>

#include "src/text/amounts.h"
#include "src/text/printable.h"
#include "verify/cli/common/app.h"
#include "verify/cli/files/files.h"
#include "verify/retention/leftovers.h"

namespace shardproof {
namespace {

constexpr int64_t kMinute = 60;
constexpr int64_t kHour = 60 * kMinute;
constexpr int64_t kDay = 24 * kHour;

struct CleanArguments {
  std::string root = ".";
  std::string older;
  CleanOptions options;
  bool is_confirmed = false;
  bool is_dry = false;  ///< says what is so without --yes
};

std::string AgeText(int64_t seconds) {
  if (seconds >= 2 * kDay) return Plural(static_cast<uint64_t>(seconds / kDay), "day");
  if (seconds >= 2 * kHour) return Plural(static_cast<uint64_t>(seconds / kHour), "hour");
  return Plural(static_cast<uint64_t>(std::max<int64_t>(seconds, 0) / kMinute), "minute");
}

const char* WordOf(Leftover::Kind kind) {
  switch (kind) {
    case Leftover::Kind::kReport:
      return "report";
    case Leftover::Kind::kEvidence:
      return "evidence";
    case Leftover::Kind::kScratch:
      return "scratch";
  }
  return "";
}

std::string LineOf(const Leftover& leftover, const char* verb, int64_t now_s) {
  std::string line = fmt::format("{:<6}  {:<8}  {:>10}  {:>10}  {}", verb, WordOf(leftover.kind),
                                 Bytes(leftover.bytes), AgeText(now_s - leftover.changed_s),
                                 Printable(leftover.path));
  if (!leftover.why_kept.empty()) return line + " (" + leftover.why_kept + ")\n";
  if (!leftover.others.empty()) {
    line += fmt::format(" (without {}, which no run wrote)",
                        Printable(fmt::format("{}", fmt::join(leftover.others, ", "))));
  }
  return line + "\n";
}

Result<int> Clean(CleanArguments& arguments) {
  if (!arguments.older.empty()) {
    SP_ASSIGN(arguments.options.older_s, ParseAge(arguments.older));
  }
  const int64_t now_s = std::time(nullptr);
  SP_ASSIGN(const auto found,
            FindLeftovers(arguments.root, arguments.options, ScratchPlaces(), now_s));
  uint64_t bytes = 0;
  uint64_t count = 0;
  Status first_error = Ok();
  for (const Leftover& leftover : found) {
    const bool goes = leftover.why_kept.empty();
    const char* verb = !goes ? "keep" : arguments.is_confirmed ? "remove" : "would";
    fmt::print("{}", LineOf(leftover, verb, now_s));
    if (!goes) continue;
    if (arguments.is_confirmed) {
      const Status removed = Remove(leftover);
      if (!removed.ok() && first_error.ok()) first_error = removed;
      if (!removed.ok()) continue;
    }
    bytes += leftover.bytes;
    ++count;
  }
  fmt::print("{}: {} {}, {}{}\n", Printable(arguments.root),
             arguments.is_confirmed ? "removed" : "would remove",
             fmt::format("{} {}", Grouped(count), count == 1 ? "directory" : "directories"),
             Bytes(bytes), arguments.is_confirmed || count == 0 ? "" : "; --yes removes them");
  SP_TRY(Status(first_error));
  return 0;
}

}  // namespace

void AddClean(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<CleanArguments>();
  CLI::App* command = AddFileCommand(app, "clean");
  command
      ->add_option("DIR", arguments->root,
                   "Look here and below for reports and evidence (default: here)")
      ->check(NotEmpty);
  command
      ->add_option("--older", arguments->older,
                   "Only what has not changed for this long: 14d, 12h, 30m, 2w (default: an hour)")
      ->check(NotEmpty)
      ->type_name("AGE");
  command->add_option("--keep", arguments->options.keep, "Keep the newest N reports")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1'000'000'000}))
      ->type_name("N");
  command->add_flag(
      "--no-scratch{false}", arguments->options.with_scratch,
      "Do not remove the scratch directories of killed runs (in TMPDIR and /dev/shm)");
  auto* yes = command->add_flag("--yes", arguments->is_confirmed,
                                "Remove it; without this option, it is only listed");
  command->add_flag("--dry-run", arguments->is_dry, "Only list it, as without --yes")
      ->excludes(yes);
  command->footer(
      "Examples:\n"
      "  shardproof clean reports/ --older 14d --keep 5\n"
      "  shardproof clean reports/ --older 14d --keep 5 --yes\n"
      "Only what a run wrote is removed, recognised by its content. Links are not followed.\n"
      "Exit codes: 0 done, 2 bad input, or something could not be removed.");
  command->callback([arguments, exit_code] {
    const auto code = Clean(*arguments);
    *exit_code = code.ok() ? code.value() : Refuse(code.error());
  });
}

}  // namespace shardproof
