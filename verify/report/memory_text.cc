#include "verify/report/memory_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/text/printable.h"

namespace shardproof {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGiB = 1 << 30;
constexpr size_t kStagesShown = 6;
constexpr size_t kRanksShown = 4;
constexpr size_t kFramesShown = 3;
constexpr size_t kWhoShown = 3;
constexpr size_t kNameMax = 12;
constexpr int kColumnWidth = 8;
constexpr int kNoteIndent = 12;

/// Without what does not fit; the end of a name tells more.
std::string Shortened(const std::string& name) {
  const std::string text = Printable(name);
  return text.size() <= kNameMax ? text : ".." + text.substr(text.size() - kNameMax + 2);
}

std::string Size(uint64_t bytes) {
  const bool is_large = bytes >= kGiB;
  return fmt::format("{:.1f} {}", static_cast<double>(bytes) / (is_large ? kGiB : kMiB),
                     is_large ? "GiB" : "MiB");
}

/// One line of the table. Fields that are not known are a dash.
struct Row {
  std::string name;
  uint64_t anonymous = 0;
  uint64_t peak = 0;
  std::optional<uint64_t> shared;
  std::optional<uint64_t> file;
  uint64_t model = 0;
  uint64_t training = 0;
  uint64_t other = 0;
  uint64_t allocated = 0;
  uint64_t peak_allocated = 0;
};

Row RowOf(const std::string& name, const RankMemory& rank) {
  return {.name = name,
          .anonymous = rank.held.host.anonymous,
          .peak = rank.Peak(),
          .shared = rank.held.host.shared,
          .file = rank.held.host.file,
          .model = rank.HostTensors(kOfModel),
          .training = rank.HostTensors(kOfTraining),
          .other = rank.HostTensors(kOfOthers),
          .allocated = rank.Allocated(),
          .peak_allocated = rank.PeakAllocated()};
}

/// The sum of a node's ranks.
Row RowOf(const NodeMemory& node, const std::vector<RankMemory>& ranks) {
  Row row{.name = Shortened(node.host.substr(0, node.host.find('.'))),
          .anonymous = node.anonymous,
          .peak = node.peak,
          .shared = node.shared,
          .file = node.file,
          .allocated = node.allocated,
          .peak_allocated = node.peak_allocated};
  for (const RankMemory& rank : ranks) {
    if (rank.host != node.host) continue;
    row.model += rank.HostTensors(kOfModel);
    row.training += rank.HostTensors(kOfTraining);
    row.other += rank.HostTensors(kOfOthers);
  }
  return row;
}

/// Each rank while they are few; of many those that hold least, most and as much as half of them.
std::vector<Row> RowsOf(const StageMemory& stage) {
  std::vector<Row> rows;
  std::vector<const RankMemory*> ranks;
  for (const RankMemory& rank : stage.ranks) ranks.push_back(&rank);
  if (ranks.size() <= kRanksShown) {
    for (const RankMemory* rank : ranks)
      rows.push_back(RowOf(fmt::format("rank {}", rank->rank), *rank));
  } else {
    std::stable_sort(ranks.begin(), ranks.end(), [](const RankMemory* a, const RankMemory* b) {
      return a->Peak() < b->Peak();
    });
    const auto add = [&](const char* what, const RankMemory* rank) {
      rows.push_back(RowOf(fmt::format("{}, {}", what, rank->rank), *rank));
    };
    add("least", ranks.front());
    add("median", ranks[ranks.size() / 2]);
    add("most", ranks.back());
  }
  std::vector<const NodeMemory*> nodes;
  for (const NodeMemory& node : stage.nodes) {
    if (node.ranks > 1) nodes.push_back(&node);
  }
  if (nodes.size() > kRanksShown) {  // the largest alone
    nodes = {*std::max_element(nodes.begin(), nodes.end(),
                               [](const auto* a, const auto* b) { return a->peak < b->peak; })};
  }
  for (const NodeMemory* node : nodes) rows.push_back(RowOf(*node, stage.ranks));
  return rows;
}

/// The first and the last ones, and that of the highest peak.
std::vector<const StageMemory*> Shown(const std::vector<StageMemory>& stages) {
  const auto peak = [](const StageMemory& stage) {
    uint64_t most = 0;
    for (const RankMemory& rank : stage.ranks) most = std::max(most, rank.Peak());
    return most;
  };
  const auto highest =
      std::max_element(stages.begin(), stages.end(),
                       [&](const auto& a, const auto& b) { return peak(a) < peak(b); });
  std::vector<const StageMemory*> shown;
  for (auto stage = stages.begin(); stage != stages.end(); ++stage) {
    const bool is_near_an_end = stage - stages.begin() < 2 ||
                                stages.end() - stage <= static_cast<int64_t>(kStagesShown) - 3;
    if (stages.size() <= kStagesShown || is_near_an_end || stage == highest)
      shown.push_back(&*stage);
  }
  return shown;
}

class Table {
 public:
  explicit Table(const std::vector<StageMemory>& stages) : stages_(stages) {
    for (const StageMemory* stage : Shown(stages)) {
      shown_.emplace_back(stage->stage, RowsOf(*stage));
      stage_width_ = std::max(stage_width_, Shortened(stage->stage).size() + 1);
      for (const Row& row : shown_.back().second) {
        name_width_ = std::max(name_width_, row.name.size() + 1);
        has_devices_ |= row.peak_allocated > 0;
        if (std::max({row.anonymous, row.peak, row.peak_allocated}) >= 100 * kGiB) unit_ = kGiB;
      }
    }
  }

  std::string Text() const {
    std::string out = "memory  " + Heading() + "\n";
    out += fmt::format("  {:<{}}{:<{}}", "stage", stage_width_, "of", name_width_);
    for (const char* name : {"private", "peak", "shared", "files", "model", "optim", "other"})
      out += fmt::format("{:>{}}", name, kColumnWidth);
    if (has_devices_)
      out += fmt::format("{:>{}}{:>{}}", "device", kColumnWidth, "top", kColumnWidth);
    out += "\n";
    for (const auto& [stage, rows] : shown_) {
      std::string label = Shortened(stage);
      for (const Row& row : rows) {
        out += Line(label, row);
        label.clear();
      }
    }
    if (shown_.size() < stages_.size()) {
      out += fmt::format("  {} more stages are in the JSON and HTML reports\n",
                         stages_.size() - shown_.size());
    }
    return out;
  }

 private:
  std::string Heading() const {
    double interval_ms = 0;
    for (const StageMemory& stage : stages_) {
      for (const RankMemory& rank : stage.ranks) {
        if (rank.held.peak) interval_ms = std::max(interval_ms, rank.held.peak->interval_ms);
      }
    }
    std::string text = unit_ == kGiB ? "GiB" : "MiB";
    text += " at each stage";
    if (interval_ms > 0)
      text += fmt::format("; peak: since the stage before, read every {:.0f} ms", interval_ms);
    return text;
  }

  std::string Line(const std::string& stage, const Row& row) const {
    std::string out = fmt::format("  {:<{}}{:<{}}", stage, stage_width_, row.name, name_width_);
    const auto add = [&](std::optional<uint64_t> bytes) {
      const std::string text =
          bytes ? fmt::format("{:.1f}", static_cast<double>(*bytes) / static_cast<double>(unit_))
                : "-";
      out += fmt::format("{:>{}}", text, kColumnWidth);
    };
    for (const std::optional<uint64_t> bytes :
         {std::optional(row.anonymous), std::optional(row.peak), row.shared, row.file,
          std::optional(row.model), std::optional(row.training), std::optional(row.other)})
      add(bytes);
    if (has_devices_) {
      add(row.allocated);
      add(row.peak_allocated);
    }
    return out + "\n";
  }

  const std::vector<StageMemory>& stages_;
  std::vector<std::pair<std::string, std::vector<Row>>> shown_;
  bool has_devices_ = false;
  uint64_t unit_ = kMiB;
  size_t stage_width_ = 6;
  size_t name_width_ = 3;
};

/// Innermost, then the first frame of each package further out: "a.py:3 f, from b/c.py:9 g".
std::string StackText(const std::vector<std::string>& stack) {
  const auto package = [](const std::string& frame) {
    return frame.substr(0, frame.find_first_of("/:"));
  };
  std::string text;
  size_t shown = 0;
  for (size_t i = 0; i < stack.size() && shown < kFramesShown; ++i) {
    if (i > 0 && package(stack[i]) == package(stack[i - 1])) continue;
    text += (shown++ == 0 ? "" : ", from ") + stack[i];
  }
  return text;
}

uint64_t Others(const RankMemory& rank) {
  return rank.HostTensors(kOfOthers) + rank.DeviceTensors(kOfOthers);
}

bool IsRetained(const RankMemory& rank) {
  const uint64_t model = rank.HostTensors(kOfModel) + rank.DeviceTensors(kOfModel);
  return Others(rank) >= std::max(kRetainedBytesMin, model / kRetainedPart);
}

/// What stands below the table.
class Notes {
 public:
  Notes(const std::vector<StageMemory>& stages, int width) : stages_(stages), width_(width) {}

  std::string Text() {
    Retained();
    Peak();
    return std::move(out_);
  }

 private:
  void Line(const std::string& label, const std::string& text) {
    out_ += Wrapped(Printable(fmt::format("  {:<10}{}", label, text)), width_, kNoteIndent) + "\n";
  }

  void Who(const RankMemory& rank, const std::string& by) {
    size_t shown = 0;
    for (const HeldBy& one : rank.held.who) {
      if (one.by != by || shown++ == kWhoShown) continue;
      const std::string stack = StackText(one.stack);
      const std::string noun = by == "holder" ? "tensor" : "allocation";
      const std::string link = by == "holder" ? ", held by " : ": ";
      Line("who", fmt::format("{} in {}{}{}{}", Size(one.bytes), Plural(one.count, noun), link,
                              one.what, stack.empty() ? "" : ", " + stack));
    }
  }

  /// The stage after which most stays that nothing of the model accounts for.
  void Retained() {
    const StageMemory* at = nullptr;
    const RankMemory* most = nullptr;
    for (const StageMemory& stage : stages_) {
      for (const RankMemory& rank : stage.ranks) {
        if (!IsRetained(rank) || (most != nullptr && Others(rank) <= Others(*most))) continue;
        at = &stage;
        most = &rank;
      }
    }
    if (most == nullptr) return;
    size_t ranks = 0;
    for (const RankMemory& rank : at->ranks) ranks += IsRetained(rank) ? 1 : 0;
    std::string text = fmt::format(
        "after `{}`, rank {} holds {} in tensors that are not part of its model, gradients or "
        "optimizer",
        at->stage, most->rank, Size(Others(*most)));
    if (const uint64_t held = most->DeviceTensors(kOfOthers); held > 0)
      text += fmt::format(", {} of it on devices", Size(held));
    const std::vector<RankMemory>& last = stages_.back().ranks;
    const auto then = std::find_if(last.begin(), last.end(), [&](const RankMemory& rank) {
      return rank.rank == most->rank && IsRetained(rank);
    });
    if (at != &stages_.back() && then != last.end())
      text += fmt::format("; {} still after `{}`", Size(Others(*then)), stages_.back().stage);
    if (ranks > 1) text += fmt::format("; {} of {} ranks hold such", ranks, at->ranks.size());
    Line("retained", text);
    Who(*most, "holder");
  }

  /// Where the rank was that held most.
  void Peak() {
    const StageMemory* at = nullptr;
    const RankMemory* most = nullptr;
    for (const StageMemory& stage : stages_) {
      for (const RankMemory& rank : stage.ranks) {
        if (most != nullptr && rank.Peak() <= most->Peak()) continue;
        at = &stage;
        most = &rank;
      }
    }
    if (most == nullptr || !most->held.peak) return;
    std::string text =
        fmt::format("rank {} held {} before `{}`", most->rank, Size(most->Peak()), at->stage);
    const HeldPeak& peak = *most->held.peak;
    if (most->Peak() > most->held.host.anonymous)
      text += fmt::format(", {} more than at it", Size(most->Peak() - most->held.host.anonymous));
    if (!peak.stacks.empty())
      text += fmt::format("; at {} it was in {}", Size(peak.stacks_bytes),
                          StackText(peak.stacks.front()));
    Line("peak", text);
    for (size_t i = 1; i < peak.stacks.size(); ++i)
      Line("", "another thread was in " + StackText(peak.stacks[i]));
    Who(*most, "python");
    for (const RankMemory& rank : at->ranks) {
      if (rank.rank == most->rank) Who(rank, "device");
    }
  }

  const std::vector<StageMemory>& stages_;
  const int width_;
  std::string out_;
};

}  // namespace

std::string LoadingText(const std::vector<LoadingMemory>& ranks) {
  std::vector<const LoadingMemory*> shown;
  for (const LoadingMemory& rank : ranks) shown.push_back(&rank);
  if (shown.size() > kRanksShown) {
    const auto [least, most] = std::minmax_element(
        shown.begin(), shown.end(), [](const auto* a, const auto* b) { return a->peak < b->peak; });
    shown = {*least, *most};
  }
  std::string text;
  for (const LoadingMemory* rank : shown) {
    text += fmt::format("{}rank {} {}", text.empty() ? "" : ", ", rank->rank, Size(rank->peak));
    if (rank->plain_peak) text += fmt::format(" ({} by the plain way)", Size(*rank->plain_peak));
  }
  if (text.empty()) return "";
  return fmt::format(
      "{}: {}", shown.size() < ranks.size() ? "loading needed least and most on" : "loading needed",
      text);
}

std::string MemoryText(const std::vector<StageMemory>& stages, int width) {
  if (stages.empty()) return "";
  return Table(stages).Text() + Notes(stages, width).Text();
}

}  // namespace shardproof
