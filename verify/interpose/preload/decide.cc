#include "verify/interpose/preload/decide.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>

#include "verify/interpose/preload/log.h"
#include "verify/interpose/preload/rules.h"

namespace shardproof::interpose {

bool watched[kFunctions];

namespace {

/// Of the calls that match each rule. Each process has its own: they start anew after a fork.
std::atomic<int64_t> matched[kRulesMax];

/// Communicators that report an error which is not theirs.
constexpr int kBrokenMax = 64;
struct Broken {
  std::atomic<void*> comm;
  std::atomic<int> code;
};
Broken broken[kBrokenMax];

/// The process's, if a launcher has given it one. Asked at every call that a rule is about: jobs
/// that fork their ranks set it afterwards. LOCAL_RANK comes last: on a second machine it is not
/// it.
int64_t RankOfProcess() {
  for (const char* name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK"}) {
    const char* text = ::getenv(name);
    if (text == nullptr || text[0] < '0' || text[0] > '9') continue;
    char* end = nullptr;
    const long long rank = ::strtoll(text, &end, 10);
    if (*end == '\0') return rank;
  }
  return -1;
}

int64_t RankOf(const Facts& facts) {
  const int64_t rank = RankOfProcess();
  if (rank >= 0) return rank;
  return facts.comm != nullptr ? RankIn(facts.comm) : facts.rank;
}

bool IsAbout(const Rule& rule, int64_t rank, const Facts& facts) {
  if (rule.rank && *rule.rank != rank) return false;
  if (facts.bytes < rule.bytes_min) return false;
  const bool has_bit =
      facts.filled != nullptr && static_cast<uint64_t>(rule.value) / 8 < facts.filled_bytes;
  return rule.act != Act::kFlip || has_bit;
}

/// Whether the rule strikes, and is on record.
bool Strikes(size_t index, int64_t rank, const Facts& facts) {
  const Rule& rule = rules()[index];
  if (!IsAbout(rule, rank, facts)) return false;
  const int64_t number = matched[index].fetch_add(1);
  if (rule.then_on ? number < rule.call : number != rule.call) return false;
  return LogFiring(rule, number, rank, facts);
}

void Add(const Rule& rule, const Facts& facts, Acts& acts) {
  switch (rule.act) {
    case Act::kError:
      acts.error = static_cast<int>(rule.value);
      return;
    case Act::kDelay:
      acts.delay_ms += rule.value;
      return;
    case Act::kHang:
      acts.hangs = true;
      acts.hang_s = rule.value;
      return;
    case Act::kDrop:
      acts.drops = true;
      return;
    case Act::kFlip:
      acts.flipping[static_cast<size_t>(acts.flips++)] = &rule;
      return;
    case Act::kAsyncError:
      if (!Break(facts.comm, static_cast<int>(rule.value))) {
        LogUndone(rule, "too many communicators have an error already");
      }
  }
}

/// A signal may interrupt it, and it goes on if the process does.
void Sleep(int64_t milliseconds) {
  timespec left{.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1'000'000};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

}  // namespace

Acts Decide(Function function, const Facts& facts) {
  Acts acts;
  const int errno_before = errno;
  const int64_t rank = RankOf(facts);
  for (size_t i = 0; i < rules().size(); ++i) {
    const Rule& rule = rules()[i];
    if (rule.function == function && Strikes(i, rank, facts)) Add(rule, facts, acts);
  }
  errno = errno_before;
  return acts;
}

void Delay(const Acts& acts) {
  if (acts.delay_ms > 0) Sleep(acts.delay_ms);
  if (!acts.hangs) return;
  constexpr int64_t kDayMilliseconds = 86'400'000;
  do {
    Sleep(acts.hang_s > 0 ? acts.hang_s * 1000 : kDayMilliseconds);
  } while (acts.hang_s == 0);
}

int DecidePoint(const char* point) {
  const int errno_before = errno;
  int error = 0;
  for (size_t i = 0; i < rules().size(); ++i) {
    const Rule& rule = rules()[i];
    if (rule.point != point) continue;
    if (Strikes(i, RankOfProcess(), Facts{})) error = static_cast<int>(rule.value);
  }
  errno = errno_before;
  return error;
}

bool Break(void* comm, int code) {
  for (Broken& entry : broken) {
    void* none = nullptr;
    if (entry.comm.load() != comm && !entry.comm.compare_exchange_strong(none, comm)) continue;
    entry.code = code;
    return true;
  }
  return false;
}

int BrokenBy(void* comm) {
  for (const Broken& entry : broken) {
    if (entry.comm.load() == comm) return entry.code;
  }
  return 0;
}

void Forget(void* comm) {
  for (Broken& entry : broken) {
    void* it = comm;
    if (entry.comm.compare_exchange_strong(it, nullptr)) entry.code = 0;
  }
}

void CountAnew() {
  for (std::atomic<int64_t>& count : matched) count = 0;
}

}  // namespace shardproof::interpose
