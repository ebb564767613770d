// Evidence structs <-> JSON objects, one pair a record of FORMAT.md. The writers put "record"
// first; the readers complain of everything that is not as FORMAT.md says.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "verify/case/json_fields.h"
#include "verify/evidence/evidence.h"

namespace shardproof {

using OrderedJson = nlohmann::ordered_json;

std::string ToString(Content content);

OrderedJson DescriptorToJson(const TensorDescriptor& descriptor);
TensorDescriptor ParseDescriptor(FieldReader& fields);

/// All but storage_bytes and committed_bytes, which are measures.
OrderedJson StateToJson(const std::string& name, const TensorState& state);
TensorState ParseState(FieldReader& fields);

OrderedJson CollectiveToJson(const CollectiveRecord& record);
CollectiveRecord ParseCollective(FieldReader& fields);

OrderedJson FaultToJson(const FaultRecord& record);
FaultRecord ParseFaultRecord(FieldReader& fields);

OrderedJson ErrorToJson(const ErrorRecord& record);
ErrorRecord ParseErrorRecord(FieldReader& fields);

OrderedJson KeysToJson(const KeyReport& record);
KeyReport ParseKeys(FieldReader& fields);

OrderedJson OptimizerToJson(const OptimizerRecord& record);
OptimizerRecord ParseOptimizer(FieldReader& fields);

/// Parts that oracle.json shares with the streams.
void AppendBlocks(OrderedJson& json, const BlockDigests& blocks);
void ParseBlocks(FieldReader& fields, BlockDigests& blocks);
void AppendBytes(OrderedJson& json, const std::vector<ByteRange>& ranges);
void ParseBytes(FieldReader& fields, std::vector<ByteRange>& ranges);
void ParseDigest(FieldReader& fields, const char* name, Digest& digest);

/// One line without its newline.
std::string DumpLine(const OrderedJson& json);

}  // namespace shardproof
