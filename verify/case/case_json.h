// The JSON form of parts of a Case that other files hold too (the oracle's record of declared
// tensors).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "verify/case/case.h"
#include "verify/case/json_fields.h"

namespace shardproof {

nlohmann::json TensorCaseToJson(const TensorCase& tensor);

/// ParseCase of a part of a larger document.
Result<Case> ParseCase(const JsonValue& value);

/// ParseCase that says in `complaint` which field is wrong. \error kBadInput if it is no JSON
Result<Case> ParseCase(const nlohmann::json& json, Complaint& complaint);

/// Reads the fields alone; ParseCase checks also whether they make sense together.
Case ParseFieldsOfCase(const JsonValue& value, Complaint& complaint);

/// Reads the fields; whether they make sense together is CheckTensorCase's matter.
TensorCase ParseTensorCase(const JsonValue& value, const std::string& pointer,
                           Complaint& complaint);

nlohmann::json AxesToJson(const std::vector<AxisCase>& mesh);

/// Complains of what the types alone cannot rule out: sizes, names, ties, contradictions.
void CheckCase(const Case& test_case, Complaint& complaint);

}  // namespace shardproof
