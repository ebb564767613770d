// Cases that faults strike, and how the catalogue's tests try them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "verify/case/case.h"
#include "verify/engine/verification.h"
#include "verify/launch/subject.h"
#include "verify/oracle/safetensors_writer.h"
#include "verify/process/scratch_directory.h"

namespace shardproof {

enum class Outcome { kAsStated, kNeverStruck, kWrong };

/// A model of two uneven tensors and a buffer on two ranks.
inline constexpr const char* kModel = R"("model": {"files": 2, "tensors": [
  {"name": "a.weight", "dtype": "F32", "shape": [5, 3]},
  {"name": "a.table", "kind": "buffer", "dtype": "BF16", "shape": [7]},
  {"name": "b.weight", "dtype": "BF16", "shape": [4, 6]}]},
  "mesh": [{"name": "dp_shard", "size": 2}])";

inline Case CaseOf(const std::string& more) {
  auto parsed = ParseCaseText(
      fmt::format(R"({{"schema": 1, "why": "faults, place by place", "as_stated": true, {}{}}})",
                  kModel, more));
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message);
  return parsed.value();
}

/// Loads, shards, saves and restores.
inline Case Loading(const std::string& transport) {
  return CaseOf(fmt::format(R"(, "transport": "{}")", transport));
}

/// Takes steps and saves after each, a part of the work being the host's.
inline Case Training(const std::string& transport, const std::string& format) {
  return CaseOf(fmt::format(
      R"(, "transport": "{}", "steps": 3, "training": {{"save_every": 1, "keep": 1,
         "offload": 0.5, "format": "{}"}})",
      transport, format));
}

/// The same with a parameter that has two names, and none of two saves to go back to.
inline Case TiedTraining(const std::string& transport) {
  Case test_case = Training(transport, "dcp");
  test_case.training.save_every = 0;
  TensorCase tied = test_case.model.tensors[0];
  tied.name = "c.weight";
  test_case.model.tensors.push_back(tied);
  test_case.model.ties = {{"a.weight", "c.weight"}};
  return test_case;
}

inline Outcome Try(Case test_case, const std::vector<FaultCase>& faults) {
  const std::string name = fmt::format("{}@{}", faults[0].id, faults[0].where);
  test_case.faults = faults;
  static const auto scratch = ScratchDirectory::Make();
  if (!scratch.ok()) {
    ADD_FAILURE() << scratch.error().message;
    return Outcome::kWrong;
  }
  const std::string directory = scratch.value()->path() + "/run";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory(directory);
  const auto launcher = test_case.transport == "sim" ? MakeSimLauncher(true) : MakeForkLauncher();
  VerifyOptions options;
  options.subject.name = kReference;
  options.directory = directory;
  options.measures_memory = false;
  const auto result = Verify(test_case, *launcher, options);
  if (!result.ok()) {
    ADD_FAILURE() << name << ": " << result.error().message;
    return Outcome::kWrong;
  }
  for (const PropertyResult& property : result.value().properties) {
    if (property.id != "fault.every_fault_fires") continue;
    if (property.judgement.verdict() == Verdict::kInconclusive) return Outcome::kNeverStruck;
  }
  if (result.value().verdict == Verdict::kPass) return Outcome::kAsStated;
  std::string why = result.value().verdict == Verdict::kFail ? "" : "inconclusive";
  for (const Finding* finding : result.value().Findings()) why += "\n  " + finding->message;
  ADD_FAILURE() << name << ": not as stated: " << why;
  return Outcome::kWrong;
}

inline Outcome Try(const Case& test_case, const std::string& id, const std::string& where) {
  return Try(test_case, {{id, where}});
}

/// A model that a config.json describes, without a file of its tensors.
inline Case FromConfig() {
  static const auto scratch = ScratchDirectory::Make();
  const std::string directory = scratch.value()->path();
  std::ofstream(directory + "/config.json") << R"({"architectures": ["LlamaForCausalLM"],
      "vocab_size": 17, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
      "num_attention_heads": 2, "rope_scaling": {"rope_type": "linear", "factor": 2.0}})";
  Case test_case = Loading("sim");
  test_case.model = {.checkpoint = directory, .from_scratch = true};
  return test_case;
}

/// The same with an adapter's folder, which alone holds tensors.
inline Case WithAdapter() {
  Case test_case = FromConfig();
  test_case.model.adapter = test_case.model.checkpoint + "/adapter";
  std::filesystem::create_directory(test_case.model.adapter);
  std::ofstream(test_case.model.adapter + "/adapter_config.json") << R"({"peft_type": "LORA",
      "r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "o_proj"], "bias": "none"})";
  std::vector<oracle::PlannedTensor> tensors;
  for (const std::string module : {"q_proj", "o_proj"}) {
    const std::string prefix = "base_model.model.model.layers.0.self_attn." + module;
    tensors.push_back(
        oracle::PlannedBytes(prefix + ".lora_A.weight", "F32", {2, 8}, std::string(64, '\x3e')));
    tensors.push_back(
        oracle::PlannedBytes(prefix + ".lora_B.weight", "F32", {8, 2}, std::string(64, '\x3d')));
  }
  EXPECT_TRUE(
      oracle::WriteSafetensors(test_case.model.adapter + "/adapter_model.safetensors", tensors)
          .ok());
  return test_case;
}

}  // namespace shardproof
