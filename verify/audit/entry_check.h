// The bytes of a checkpoint against the CRC-32 that its archives have of each of their entries.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "verify/formats/stored.h"

namespace shardproof {

class EntryCheck {
 public:
  /// \pre `checkpoint` outlives it.
  explicit EntryCheck(const formats::StoredCheckpoint& checkpoint);

  /// Takes bytes of a file from `start` on: from any thread, in any order, each byte once.
  void Add(uint32_t file, uint64_t start, std::string_view bytes);

  /// Entries that had all their bytes added and have a CRC-32; and all other ones that are not
  /// empty.
  uint64_t Checked() const { return CountJudged(true); }
  uint64_t Unchecked() const { return CountJudged(false); }

  /// A line for every entry whose bytes are others. One that was not read whole is not judged: why
  /// it was not is an error of its own.
  std::vector<std::string> Damage() const;

 private:
  struct Entry {
    const formats::StoredArchive* archive = nullptr;
    const formats::ZipEntry* entry = nullptr;
  };
  /// What was added of one entry.
  struct Sum {
    std::atomic<uint64_t> bytes = 0;
    std::atomic<uint32_t> terms = 0;
  };
  bool IsJudged(size_t index) const;
  uint64_t CountJudged(bool judged) const;
  /// Where a tensor's piece begins.
  using Start = std::tuple<uint32_t, uint64_t, const formats::StoredTensor*>;
  std::vector<Start> TensorStarts() const;
  std::string TensorsIn(const Entry& entry, const std::vector<Start>& starts) const;

  const formats::StoredCheckpoint& checkpoint_;
  std::vector<Entry> entries_;  ///< those that are not empty, in the order of their bytes
  std::vector<Sum> sums_;       ///< of each
};

}  // namespace shardproof
