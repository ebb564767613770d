// The tables of the fields of a Case: a field is a row here, its member, and the place that uses
// it.
#pragma once

#include <string>
#include <vector>

#include "verify/case/field.h"

namespace shardproof {

/// In the order in which generated cases draw them, on which it depends what a seed gives.
const FieldTable<Case>& CaseFields();
const FieldTable<TrainingCase>& TrainingFields();
const FieldTable<ModelCase>& ModelFields();
/// Those that a model from there has.
const FieldTable<ModelCase>& FieldsOfModelFrom(ModelSource source);
const FieldTable<LoraCase>& LoraFields();
const FieldTable<TensorCase>& TensorFields();
const FieldTable<StoredCase>& StoredFields();
const FieldTable<RopeCase>& RopeFields();
const FieldTable<AxisCase>& AxisFields();
const FieldTable<FaultCase>& FaultFields();

/// The fields of a case of which there is one each, in order: its own, and after `model` and
/// `training` the fields of these. The pointers are valid as long as the case stays where it is.
std::vector<FieldOfCase> FieldsOf(Case& test_case);

/// The one of that path, which there must be.
FieldOfCase FieldAt(Case& test_case, const std::string& path);

/// The bounds of a signed integer.
int64_t LowOf(const FieldRow& row);
int64_t HighOf(const FieldRow& row);

/// "a number from 0 to 1": for messages.
std::string RealInWords(const RealBounds& bounds);

/// Whether both, of one path in two cases, say the same.
bool IsSame(const FieldOfCase& one, const FieldOfCase& other);
void SetToDefault(const FieldOfCase& field);

}  // namespace shardproof
