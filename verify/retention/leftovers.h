// What earlier runs left below a directory, and which of it may go. Only what is recognised by its
// content is ever removed; symbolic links and other file systems are not entered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

struct Leftover {
  enum class Kind { kReport, kEvidence, kScratch };
  Kind kind = Kind::kReport;
  std::string path;
  int64_t changed_s = 0;  ///< when anything in it was last changed, in seconds since 1970
  uint64_t bytes = 0;     ///< of its own files
  uint64_t files = 0;
  std::vector<std::string> own;     ///< names in it that a run has written, sorted
  std::vector<std::string> others;  ///< names that none has written: they stay, and so does it
  std::string why_kept;             ///< empty: it may go
};

struct CleanOptions {
  std::optional<int64_t> older_s;  ///< only what was not changed for so long
  std::optional<uint64_t> keep;    ///< the newest so many reports and evidence folders stay
  bool with_scratch = true;        ///< also scratch directories of runs that were killed
};

/// Without --older, what was changed so recently stays: its run may not have ended.
inline constexpr int64_t kMayRunSeconds = 3600;

/// Everything below `root`, newest first, then scratch directories in `scratch_places`.
/// \param now_s  seconds since 1970
/// \error kBadInput: `root` is no directory or cannot be listed
Result<std::vector<Leftover>> FindLeftovers(const std::string& root, const CleanOptions& options,
                                            const std::vector<std::string>& scratch_places,
                                            int64_t now_s);

/// Removes its own files, and the directory if nothing else is in it. \error kFailed
Status Remove(const Leftover& leftover);

/// "14d", "12h", "30m", "90s" or "2w" in seconds. \error kBadInput
Result<int64_t> ParseAge(const std::string& text);

/// Where runs have their scratch directories: $TMPDIR or /tmp, and /dev/shm.
std::vector<std::string> ScratchPlaces();

}  // namespace shardproof
