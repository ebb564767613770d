// The states that a crash may leave on disk. Every state that is made can happen under its model,
// so one that does not load is a mistake of the save, not of the model.
//
// | model        | what crashes                   | what is left                                |
// |--------------|--------------------------------|---------------------------------------------|
// | kill         | all processes, not the kernel  | all that was done; a write that was under   |
// |              |                                | way up to some block boundary               |
// | ext4-ordered | the machine, on ext4 as it is  | of names and sizes a prefix (the journal);  |
// |              | mounted by default             | of a file's bytes a prefix of its writes    |
// | posix        | the machine, whatever the file | what was synced; of the rest anything that  |
// |              | system                         | the table below allows                      |
//
// Why this is what ext4 leaves stands in ext4_states.cc. Under posix:
//
// | what             | durable once     | until then                                              |
// |------------------|------------------|---------------------------------------------------------|
// | a file's bytes   | the file is      | each block as of some moment since the last sync; a     |
// |                  | synced           | lost write takes later ones to its blocks along         |
// | a file's size    | the file is      | as of some moment since; lost bytes that it covers are  |
// |                  | synced           | zeros; if the file was cut off after that moment, all   |
// |                  |                  | later writes are lost                                   |
// | a name made or   | its directory is | there or not; a change takes later ones of the same     |
// | removed          | synced           | name along                                              |
// | rename, exchange | both directories | whole or not at all; if one directory is synced, the    |
// |                  | are synced       | other's half may be lost alone; lost with the name of   |
// |                  |                  | the directory that it moves to                          |
// | rmdir            | as a name        | lost while the directory still has a name in it         |
//
// Whether a file is seen is a matter of its names alone, whatever was synced of it: where the name
// that it was made by is lost, a later one that is durable still shows its bytes. Block boundaries
// are multiples of the block size in the file, since pages are what the kernel copies and writes
// back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/crash_states/disk.h"
#include "verify/crash_states/operation.h"

namespace shardproof::crash {

enum class CrashModel { kKill, kExt4Ordered, kPosix };

/// "kill", "ext4-ordered", "posix".
const char* ToString(CrashModel model);
/// \error kBadInput naming the known ones.
Result<CrashModel> ParseCrashModel(const std::string& name);

struct StateOptions {
  std::vector<CrashModel> models = {CrashModel::kKill, CrashModel::kExt4Ordered,
                                    CrashModel::kPosix};
  /// Of the combinations that are drawn. The same seed gives the same states in the same order.
  uint64_t seed = 1;
  /// Of ext4-ordered and posix: so many combinations of losses at a crash point are made all, where
  /// there are no more; else each single loss, each single survival, all losses and those of one
  /// kind or file are made, however many these are, and drawn ones up to this number.
  int64_t combinations_max = 512;
  /// Of ext4-ordered and posix: crashes after so many operations are looked at, where there are
  /// more. Those after what is no write come first, with the start and the end; then others,
  /// evenly.
  int64_t points_max = 1000;
  /// Of kill: likewise.
  int64_t kill_points_max = INT64_MAX;
  /// Of ext4-ordered and posix: where there are more combinations at a crash point than this, so
  /// many of them, evenly, with nothing lost and everything lost.
  int64_t choices_max = INT64_MAX;
  int64_t block_bytes = 4096;
  /// At so many block boundaries a write is torn at most: the first, the last, and evenly between.
  int64_t tears_max = 4;
};

struct CrashState {
  CrashModel model = CrashModel::kKill;
  /// So many operations had been done, returned to their callers, when it crashed.
  int64_t after = 0;
  /// The one behind them was under way; only under kill. (Under the others it counts as done, and
  /// as lost in part: its caller cannot tell.)
  bool in_flight = false;
  Disk disk;
  /// For people, one line: "lost: create of a; torn: write of bytes [0, 8192) of b at 4096".
  /// "nothing lost" if so.
  std::string what;
  /// Index of the operation that `what` begins with; -1: nothing is lost.
  int64_t lacks = -1;
};

struct StateCounts {
  int64_t made = 0;
  /// Of these, differing in model, disk, or in whether all, none or some operations had been done.
  int64_t distinct = 0;
};

using StateVisitor = std::function<Status(const CrashState&)>;

/// Calls `visit` with each distinct state once: of equal ones, with the one that was made first.
/// \param before      what was on disk, durably, when the first operation was done
/// \param operations  in the order in which they were done
/// \error kBadInput if the operations do not fit what is on disk, or an option is no positive
/// number;
///   what `visit` returns, which ends it.
Result<StateCounts> VisitStates(const Disk& before, const std::vector<FileOperation>& operations,
                                const StateOptions& options, const StateVisitor& visit);

}  // namespace shardproof::crash
