// What ranks for which a collective has failed say of themselves, and what all of it together
// tells.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shardproof {

/// What a rank says of itself when it can go on no more.
struct Word {
  int64_t number = 0;  ///< of its last collective, from 1; 0: it made none
  std::string what;    ///< that is, empty: it has left
  /// Ranks with which its connection broke: was reset, or carries nothing.
  std::vector<int64_t> cut = {};
  /// Ranks that it has waited for in vain.
  std::vector<int64_t> missed = {};
  /// From when it began its last collective until that failed.
  std::chrono::milliseconds waited{0};
  int64_t order = 0;  ///< among the words that have been left, from 1; 0: not known
};

std::string ToText(const Word& word);
/// The inverse; of what is no word's text, a word of number 0.
Word WordFromText(const std::string& text);

/// The words of all ranks, by rank.
using Words = std::map<int64_t, Word>;

/// The rank that all others, or else the most, with a broken connection have it with, "rank 2 (its
/// connections with ranks 1, 3 are broken)"; or, where it may be either end of one or several, "the
/// connections of ranks 1, 2"; or nothing, if none is broken. \param own  is called "this rank"
std::string WhoIsCutOff(const Words& words, int64_t own);

/// Whether two ranks have lost the connection with the same one, and no rank another but not that
/// one.
bool IsCutOffForCertain(const Words& words);

/// Ranks whose collective is not that of most: "rank 2 (it is at its collective 7, loading)".
std::string WhoIsElsewhere(const Words& words, int64_t own);

/// Ranks that came to a collective more than `bound` after another came to it: "rank 2 (it came 5.2
/// s after rank 0)". Certain for one that has failed after the other, and has waited so much less.
std::string WhoCameLate(const Words& words, int64_t own, std::chrono::milliseconds bound);

/// Ranks that others have waited for in vain, though they have left word since: "this rank (rank 0
/// has waited for it in vain)".
std::string WhoWasMissed(const Words& words, int64_t own);

}  // namespace shardproof
