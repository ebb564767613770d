// Which elements of stored tensors the views of a map take.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/maps/apply.h"

namespace shardproof::maps {

/// The boxes that rules took of one side's tensors.
class Coverage {
 public:
  explicit Coverage(const Side& side) : side_(side) {}

  /// Repeated boxes are not counted. \pre the rule outlives this.
  void Add(const View& view, const Rule& rule);

  /// \error kBadInput: two boxes overlap; names the tensor and the two rules.
  Status CheckApart() const;

  /// Of tensors of which something was taken, what was not.
  void AddGaps(std::vector<Gap>& gaps) const;

 private:
  struct Box {
    std::vector<int64_t> offsets;
    std::vector<int64_t> sizes;
    const Rule* rule;
  };

  static bool Overlap(const Box& x, const Box& y);
  static uint64_t FirstMissing(const formats::StoredTensor& tensor, const std::vector<Box>& boxes);

  const Side& side_;
  std::map<const formats::StoredTensor*, std::vector<Box>> taken_;
};

}  // namespace shardproof::maps
