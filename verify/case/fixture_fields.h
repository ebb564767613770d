// Fields of cases, for tests.
#pragma once

#include "verify/case/fields.h"

namespace shardproof {

/// Whether it has its default.
inline bool IsUsual(const FieldOfCase& field) {
  Case plain;
  return IsSame(field, FieldAt(plain, field.path));
}

}  // namespace shardproof
