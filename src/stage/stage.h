// The stages that a job comes through, and what is true at each: one table.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace shardproof {

enum class Stage {
  kBuilt,
  kLoaded,
  kBound,
  kSharded,
  kMaterialized,
  kReady,
  kSaved,
  kRestored,
  kStepped,
  kResumed,
};

struct StageFacts {
  Stage stage;
  const char* name;       ///< as evidence, reports and command lines spell it
  const char* what;       ///< what is true of the model then, for people
  bool is_whole = false;  ///< everything must be defined, and right
  bool is_step = false;   ///< an optimizer step was just taken: which one is said with it
};

/// A row for each, in the order of the enumeration.
inline constexpr std::array kStages = {
    StageFacts{Stage::kBuilt, "built", "The modules are built, with parameters on meta."},
    StageFacts{Stage::kLoaded, "loaded",
               "The ranks that read have the checkpoint's values; a tensor that is made of many "
               "keys is filled only when it is sharded."},
    StageFacts{Stage::kBound, "bound", "The optimizer is made, if it is made before sharding."},
    StageFacts{Stage::kSharded, "sharded",
               "Each rank has its shards: slices of the values that it had, else tensors on meta."},
    StageFacts{Stage::kMaterialized, "materialized",
               "Tensors that were on meta have memory with undefined content."},
    StageFacts{Stage::kReady, "ready",
               "Shards are filled, missing keys initialised and buffers computed.",
               /*is_whole=*/true},
    StageFacts{Stage::kSaved, "saved", "The checkpoint is committed.", /*is_whole=*/true},
    StageFacts{Stage::kRestored, "restored", "What was saved is loaded again.", /*is_whole=*/true},
    StageFacts{Stage::kStepped, "stepped", "An optimizer step was taken.", /*is_whole=*/true,
               /*is_step=*/true},
    StageFacts{Stage::kResumed, "resumed",
               "An optimizer step was taken by the job that was restored.", /*is_whole=*/true,
               /*is_step=*/true},
};

constexpr const StageFacts& FactsOf(Stage stage) { return kStages[static_cast<size_t>(stage)]; }
constexpr const char* NameOf(Stage stage) { return FactsOf(stage).name; }

/// The stage of that name; nothing if it is none of these: a subject may show stages of its own.
constexpr std::optional<Stage> FindStage(std::string_view name) {
  for (const StageFacts& facts : kStages) {
    if (name == facts.name) return facts.stage;
  }
  return std::nullopt;
}

constexpr bool operator==(std::string_view name, Stage stage) { return name == NameOf(stage); }

/// All names, as messages list them: "built, loaded, ...".
std::string ListStages();

static_assert(
    [] {
      for (size_t i = 0; i < kStages.size(); ++i) {
        if (kStages[i].stage != static_cast<Stage>(i)) return false;
      }
      return kStages.back().stage == Stage::kResumed;
    }(),
    "a stage's row is not in its place");

}  // namespace shardproof
