// The options of `shardproof verify`, and the Case that they describe.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "verify/case/case.h"
#include "verify/cli/execute.h"
#include "verify/cli/generated.h"

namespace shardproof {

/// As they are given; what is left out is empty.
struct VerifyArguments {
  /// Texts that options give for fields of the case, by the path of the field
  /// (verify/case/fields.h); of a flag, "true".
  std::map<std::string, std::vector<std::string>> fields;
  std::string case_file;
  std::optional<int64_t> world;
  std::optional<int64_t> resume_world;
  std::vector<std::string> kill, stop;
  SoakArguments soak;
  std::string bugs;
  ExecuteOptions execute;

  bool IsGiven(const std::string& field) const;
};

/// The options of the command, by group; `arguments` must live as long as it.
void AddVerifyOptions(CLI::App& command, VerifyArguments& arguments);

/// Whether a subject is to be run and nothing says of which model: then it is EveryKindOfTensor's.
bool IsDrawn(const VerifyArguments& arguments);

/// A case as JSON, whose model has every kind of tensor that loading can get wrong.
extern const char* const kEveryKindOfTensor;

/// Sets what options give for fields of the case. \error kBadInput naming the option.
Status SetGivenFields(const VerifyArguments& arguments, Case& test_case);

/// The one case that the options describe, from a checkpoint, a case file or a planted bug.
/// \error kBadInput naming the option, or the field of the case file.
Result<Case> CaseFrom(const VerifyArguments& arguments);

}  // namespace shardproof
