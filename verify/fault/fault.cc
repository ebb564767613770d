#include "verify/fault/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "src/text/nearest.h"
#include "src/text/quote.h"
#include "verify/registry/registry.h"

namespace shardproof {
namespace {

Registry<Fault>& Faults() {
  static Registry<Fault> faults("fault");
  return faults;
}

}  // namespace

std::shared_ptr<FaultPoint> FaultSite::Point(const std::string& id, const std::string& where,
                                             bool from_then_on) const {
  return std::make_shared<FaultPoint>(
      FaultPoint::Options{.name = id,
                          .trigger = ParseTrigger(test_case, where).value(),
                          .rank = world.rank(),
                          .from_then_on = from_then_on,
                          .stage = stage,
                          .log = log});
}

const char* NameOf(FaultModel model) {
  switch (model) {
    case FaultModel::kMustBeSeen:
      return "seen";
    case FaultModel::kMustGoOn:
      return "go-on";
    case FaultModel::kMustRecover:
      return "recover";
    case FaultModel::kMustRefuse:
      return "refuse";
    case FaultModel::kMustSpare:
      return "spare";
    case FaultModel::kMustAbortCleanly:
      return "abort";
    case FaultModel::kMustEndTheRun:
      return "end-the-run";
    case FaultModel::kMustTellAll:
      return "tell-all";
    case FaultModel::kMustEndInTime:
      return "end-in-time";
  }
  return "";
}

Status CheckTrigger(const Case& test_case, const std::vector<oracle::TensorLocation>&,
                    const std::string& where) {
  SP_TRY(ParseTrigger(test_case, where));
  return Ok();
}

const std::vector<Fault>& AllFaults() { return Faults().All(); }

std::vector<DrawnFault> DrawnFaults() {
  std::vector<DrawnFault> drawn;
  for (const Fault& fault : AllFaults()) {
    const bool is_drawn = fault.draw.certain != FaultDraw::Certain::kNowhere ||
                          fault.draw.anywhere != FaultDraw::Anywhere::kNowhere;
    if (is_drawn) drawn.push_back({fault.id, fault.draw});
  }
  std::stable_sort(drawn.begin(), drawn.end(), [](const DrawnFault& a, const DrawnFault& b) {
    return a.draw.place < b.draw.place;
  });
  return drawn;
}

Result<Fault> FindFault(const std::string& id) { return Faults().Find(id); }
std::string WhyCannotStrike(const Case& test_case) {
  for (const FaultCase& asked : test_case.faults) {
    const auto fault = FindFault(asked.id);
    if (!fault.ok() || !fault.value().cannot) continue;  // of an unknown one Verify says so
    const std::string why = fault.value().cannot();
    if (!why.empty()) return fmt::format("fault {}: {}", asked.id, why);
  }
  return "";
}

FaultRegistration::FaultRegistration(Fault fault) { Faults().Add(std::move(fault)); }

Result<TensorAndRest> SplitWhere(const std::vector<oracle::TensorLocation>& source,
                                 const std::string& where) {
  for (const auto& tensor : source) {
    if (tensor.name == where) return TensorAndRest{tensor, ""};
  }
  const size_t colon = where.rfind(':');
  const std::string name = where.substr(0, colon);
  for (const auto& tensor : source) {
    if (tensor.name == name && colon != std::string::npos) {
      return TensorAndRest{tensor, where.substr(colon + 1)};
    }
  }
  std::vector<std::string> known;
  for (const auto& tensor : source) known.push_back(tensor.name);
  const std::string nearest = text::Nearest(name, known);
  return BadInput(fmt::format("the checkpoint has no tensor {}{}", text::Quote(name),
                              nearest.empty() ? "" : ": did you mean '" + nearest + "'?"));
}

Status CheckFormat(const Case& test_case, const std::string& format) {
  if (test_case.model.format == format) return Ok();
  return BadInput(fmt::format("expected a source in {}, found {}", format, test_case.model.format));
}

Status CheckLoaded(const Case& test_case, const std::vector<oracle::TensorLocation>& source,
                   const std::string& name) {
  SP_ASSIGN(const auto declared, oracle::DeclareModel(test_case));
  const auto in_source = [&](const std::string& other) {
    return std::any_of(source.begin(), source.end(),
                       [&](const auto& tensor) { return tensor.name == other; });
  };
  // Of tied names the first that the checkpoint has is loaded.
  for (const std::vector<std::string>& group : declared.ties) {
    if (std::find(group.begin(), group.end(), name) == group.end()) continue;
    const auto loaded = std::find_if(group.begin(), group.end(), in_source);
    if (loaded == group.end() || *loaded == name) return Ok();
    return BadInput(
        fmt::format("the model does not load '{}': it is tied to '{}', which the "
                    "checkpoint has too",
                    name, *loaded));
  }
  const auto holds = [&](const std::vector<StoredCase>& way) {
    return std::any_of(way.begin(), way.end(),
                       [&](const StoredCase& part) { return part.key == name; });
  };
  const bool known =
      std::any_of(declared.tensors.begin(), declared.tensors.end(), [&](const TensorCase& tensor) {
        return tensor.persistent &&
               (tensor.name == name ||
                std::any_of(tensor.stored.begin(), tensor.stored.end(), holds));
      });
  return known ? Ok() : BadInput(fmt::format("the model does not load tensor '{}'", name));
}

Result<WhatAndRank> SplitRank(const Case& test_case, const std::string& where) {
  const size_t colon = where.rfind(':');
  WhatAndRank split{where.substr(0, colon), test_case.WorldSize() - 1};
  if (colon != std::string::npos) {
    SP_ASSIGN(split.rank, ParseIndex(where.substr(colon + 1), test_case.WorldSize(), "the rank"));
  }
  return split;
}

Result<int64_t> ParseIndex(const std::string& text, int64_t limit, const std::string& what) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= limit) {
    return BadInput(
        fmt::format("{} is '{}': expected a whole number from 0 to {}", what, text, limit - 1));
  }
  return value;
}

}  // namespace shardproof
