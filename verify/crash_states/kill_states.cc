// The processes die and the kernel goes on (SIGKILL, the OOM killer, an abort): all that was done
// stays done, in order. A write that a fatal signal meets ends between two pages
// (generic_perform_write of the Linux kernel looks for one before each), so it may be done in part;
// everything else is done or not.
#include <fmt/format.h>

#include "verify/crash_states/history.h"

namespace shardproof::crash {

Status VisitKillStates(const History& history, const StateOptions& options,
                       const MakeVisitor& visit) {
  for (const int64_t after : CrashPoints(history, options.kill_points_max)) {
    CrashState state;
    state.after = after;
    state.disk = history.after[after];
    Losses(history).TellIn(state);
    SP_TRY(visit(CrashState(state)));
    if (after == history.count() || history.change(after).kind != OperationKind::kWrite) continue;
    const Change& write = history.change(after);
    state.in_flight = true;
    for (const int64_t tear : Tears(write, options)) {
      FileContent content = history.after[after].Content(write.inode);
      content.Write(write.offset, write.bytes, 0, tear - write.offset);
      state.disk = history.after[after];
      state.disk.SetContent(write.inode, std::move(content));
      Losses losses(history);
      losses.Torn(after, fmt::format("at {}", tear));
      losses.TellIn(state);
      SP_TRY(visit(CrashState(state)));
    }
  }
  return Ok();
}

}  // namespace shardproof::crash
