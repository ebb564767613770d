// What the tables of fields say, for machines and for people.
#pragma once

#include <string>

namespace shardproof {

/// The JSON schema of a case, as text: fixtures/schema/case.schema.json is this.
std::string CaseSchemaText();

/// Every field of a case, by its path: type, default, what it is for, its option of `verify`.
std::string FieldsText();

}  // namespace shardproof
