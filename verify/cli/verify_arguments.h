// The options of `shardproof verify`, and the Case that they describe.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/case/case.h"
#include "verify/cli/execute.h"
#include "verify/cli/generated.h"

namespace shardproof {

constexpr int64_t kWorldMax = 1024;  // of a Case

/// As they are given; what is left out is empty.
struct VerifyArguments {
  std::string checkpoint;
  std::string adapter;
  std::string lora;
  bool from_scratch = false;
  std::string case_file;
  std::optional<int64_t> world;
  std::optional<int64_t> resume_world;
  std::optional<std::string> mesh;
  std::optional<std::string> resume_mesh;
  std::string strategy;
  std::string optimizer;
  std::string device;
  std::string transport;
  std::string subject;
  std::optional<int64_t> steps;
  std::vector<std::string> options;
  std::vector<std::string> inject, kill, stop;
  bool as_stated = false;
  std::string bug;
  std::optional<uint64_t> seed;
  std::optional<uint64_t> bucket_bytes;
  std::optional<double> deadline_seconds;
  std::vector<std::string> allow_missing;
  std::vector<std::string> allow_unexpected;
  SoakArguments soak;
  std::string bugs;
  ExecuteOptions execute;
};

/// The options of the command, by group; `arguments` must live as long as it.
void AddVerifyOptions(CLI::App& command, VerifyArguments& arguments);

/// The one case that the options describe, from a checkpoint, a case file or a planted bug.
/// \error kBadInput naming the option, or the field of the case file.
Result<Case> CaseFrom(const VerifyArguments& arguments);

}  // namespace shardproof
