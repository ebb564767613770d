// Evidence structs <-> lines of JSON, one pair a record of FORMAT.md. The readers complain of
// everything that is not as FORMAT.md says.
#pragma once

#include <string>
#include <vector>

#include "verify/case/json_fields.h"
#include "verify/evidence/evidence.h"
#include "verify/evidence/json_text.h"

namespace shardproof {

/// What a stream of evidence may say at most: ranks, and elements of a tensor or of one dim.
inline constexpr int64_t kRecordedRanksMax = 65536;
inline constexpr int64_t kRecordedSizeMax = int64_t{1} << 48;

std::string ToString(Content content);

// Lines are without their newline.

std::string DescriptorLine(const TensorDescriptor& descriptor);
TensorDescriptor ParseDescriptor(FieldReader& fields);

MeshRecord ParseMeshRecord(FieldReader& fields);
GroupsRecord ParseGroupsRecord(FieldReader& fields);

/// Axes of any names: those of a case are fewer.
std::vector<AxisCase> ParseAxes(FieldReader& fields, const char* name);

/// Axes that are laid over some of `mesh`, which they divide.
std::vector<AxisCase> ParseLaidOver(FieldReader& fields, const char* name,
                                    const std::vector<AxisCase>& mesh);

/// All but storage_bytes and committed_bytes, which are measures.
/// \param id  of the state's descriptor as it is in the file.
std::string StateLine(const std::string& name, const TensorState& state, int64_t id);
TensorState ParseState(FieldReader& fields);

std::string CollectiveLine(const CollectiveRecord& record);
CollectiveRecord ParseCollective(FieldReader& fields);

std::string FaultLine(const FaultRecord& record);
FaultRecord ParseFaultRecord(FieldReader& fields);

std::string ErrorLine(const ErrorRecord& record);
ErrorRecord ParseErrorRecord(FieldReader& fields);

std::string KeysLine(const KeyReport& record);
TwinRecord ParseTwin(FieldReader& fields);
KeyReport ParseKeys(FieldReader& fields);

void AddTwinStep(JsonText& out, const TwinStep& step);
TwinStep ParseTwinStep(FieldReader& fields);

/// A line of that kind, left open.
JsonText Record(const char* kind);

std::string OptimizerLine(const OptimizerRecord& record);
OptimizerRecord ParseOptimizer(FieldReader& fields);

std::string StepsLine(const StepsRecord& record);
StepsRecord ParseSteps(FieldReader& fields);
HeldRecord ParseHeld(FieldReader& fields);

/// Parts that oracle.json shares with the streams.
void AddOptimizerGroups(JsonText& out, const std::vector<OptimizerGroup>& groups);
std::vector<OptimizerGroup> ParseOptimizerGroups(FieldReader& fields);
void AddBlocks(JsonText& out, const BlockDigests& blocks);
void ParseBlocks(FieldReader& fields, BlockDigests& blocks);
void AddBytes(JsonText& out, const std::vector<ByteRange>& ranges);
void ParseBytes(FieldReader& fields, std::vector<ByteRange>& ranges);
void ParseDigest(FieldReader& fields, const char* name, Digest& digest);

}  // namespace shardproof
