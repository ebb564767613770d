#include "verify/verdict/facts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace shardproof {
namespace {

const char* NameOf(Against::What what) {
  switch (what) {
    case Against::What::kNothing:
      return "";
    case Against::What::kCheckpoint:
      return "checkpoint";
    case Against::What::kInitial:
      return "initial";
    case Against::What::kTwin:
      return "twin";
    case Against::What::kPlain:
      return "plain";
    case Against::What::kFormula:
      return "formula";
    case Against::What::kDeclared:
      return "declared";
    case Against::What::kPlacements:
      return "placements";
    case Against::What::kEarlier:
      return "earlier";
    case Against::What::kFrozen:
      return "frozen";
    case Against::What::kModel:
      return "model";
    case Against::What::kStage:
      return "stage";
    case Against::What::kRank:
      return "rank";
    case Against::What::kReplica:
      return "replica";
  }
  return "";
}

}  // namespace

std::string Against::Words() const {
  switch (what) {
    case What::kNothing:
      return "";
    case What::kCheckpoint:
      return "the checkpoint";
    case What::kInitial:
      return "its initial value";
    case What::kTwin:
      return "the plain twin";
    case What::kPlain:
      return "the plain path";
    case What::kFormula:
      return "its formula";
    case What::kDeclared:
      return "the model's declaration";
    case What::kPlacements:
      return "its placements";
    case What::kEarlier:
      return fmt::format("its value at `{}`", stage.text());
    case What::kFrozen:
      return fmt::format("its value at `{}`, and it is frozen", stage.text());
    case What::kModel:
      return fmt::format("the model at `{}`", stage.text());
    case What::kStage:
      return fmt::format("`{}` of phase {}", stage.text(), NameOf(phase));
    case What::kRank:
      return fmt::format("rank {}{}", rank.value_or(0),
                         stage.empty() ? "" : fmt::format(" at `{}`", stage.text()));
    case What::kReplica:
      return "what the first replica has";
  }
  return "";
}

nlohmann::json AgainstToJson(const Against& against) {
  nlohmann::json json = {{"what", NameOf(against.what)}};
  if (against.phase) json["phase"] = NameOf(against.phase);
  if (!against.stage.empty()) json["stage"] = against.stage.text();
  if (against.rank) json["rank"] = *against.rank;
  return json;
}

}  // namespace shardproof
