// The numbers of a small tensor at a stage, whole, from the bytes that its ranks have recorded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/evidence/evidence.h"

namespace shardproof {

struct RecordedValues {
  std::string dtype;
  uint64_t element = 4;  ///< bytes
  std::string bytes;
  std::vector<int64_t> ranks;

  uint64_t count() const { return bytes.size() / element; }
  float at(uint64_t index) const { return static_cast<float>(number(index)); }
  int64_t integer(uint64_t index) const { return static_cast<int64_t>(number(index)); }

 private:
  double number(uint64_t index) const;
};

/// Why a tensor cannot be judged, or its values.
struct RecordedLookup {
  std::string why_not;
  RecordedValues values;
  bool is_there = false;  ///< defined, whether or not all of its bytes are on record
};

/// \param stage  its key: "stepped@3.optimizer"
RecordedLookup ValuesAt(const PhaseEvidence& phase, const std::string& stage,
                        const std::string& name);

/// What a parameter of a floating-point dtype takes of a value.
float RoundedTo(const std::string& dtype, float value);

}  // namespace shardproof
