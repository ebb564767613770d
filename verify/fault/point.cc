#include "verify/fault/point.h"

#define FIU_ENABLE 1
#include <fiu-control.h>
#include <fiu.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "src/core/check.h"

namespace shardproof {
namespace {

/// Of the thread that asks libfiu, for libfiu to ask back.
thread_local FaultPoint* asking = nullptr;
thread_local const FaultCall* asked_call = nullptr;

/// Each point is enabled once in a process, with its trigger behind it: what was switched meanwhile
/// stays as it is.
void EnableOnce(const std::string& name, external_cb_t* ask) {
  static std::mutex mutex;
  static std::set<std::string> enabled;
  const std::lock_guard lock(mutex);
  if (!enabled.insert(name).second) return;
  SP_CHECK(fiu_init(0) == 0, "libfiu cannot be initialised");
  SP_CHECK(fiu_enable_external(name.c_str(), 1, nullptr, 0, ask) == 0,
           "libfiu cannot enable the point '%s'", name.c_str());
}

}  // namespace

FaultPoint::FaultPoint(Options options) : options_(std::move(options)) {
  EnableOnce(options_.name, &FaultPoint::Ask);
}

int FaultPoint::Ask(const char*, int*, void**, unsigned int*) {
  return asking != nullptr && asking->Wants(*asked_call) ? 1 : 0;
}

bool FaultPoint::Wants(const FaultCall& call) {
  if (!options_.trigger) return false;
  const Trigger& trigger = *options_.trigger;
  if (trigger.rank && *trigger.rank != options_.rank) return false;
  if (!trigger.Matches(call, options_.stage ? options_.stage() : "")) return false;
  const int64_t number = matched_++;
  return options_.from_then_on ? number >= trigger.number : number == trigger.number;
}

bool FaultPoint::Strikes(const FaultCall& call, FaultRecord record) {
  asking = this;
  asked_call = &call;
  const bool strikes = fiu_fail(options_.name.c_str()) != 0;
  asking = nullptr;
  if (!strikes) return false;
  ++struck_;
  options_.log(std::move(record));
  return true;
}

Status ControlPointsBy(const std::string& base) {
  SP_CHECK(fiu_init(0) == 0, "libfiu cannot be initialised");
  if (fiu_rc_fifo(base.c_str()) == 0) return Ok();
  return BadInput(
      fmt::format("{}: pipes for fiu-ctrl cannot be made: {}", base, std::strerror(errno)));
}

}  // namespace shardproof
