// An allocation of no tensor fails: the n-th operator new that a rank's own thread comes to.
#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "src/seam/decorators.h"
#include "verify/fault/fault.h"
#include "verify/fault/fault_descriptions.h"

namespace shardproof::faults::memory_new {
namespace {

/// How many calls of operator new this thread makes until one fails; negative: none does.
thread_local int64_t calls_left = -1;
/// Puts it on record; whether it strikes.
thread_local std::function<bool()> asked;

/// Whether the call that is being made fails.
inline bool Fails() {
  if (calls_left < 0 || calls_left-- > 0) return false;
  return asked();  // makes calls itself, which are not counted any more
}

}  // namespace
}  // namespace shardproof::faults::memory_new

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsReplaced = false;  // a sanitizer has its own
#else
constexpr bool kIsReplaced = true;
// What is not replaced here, arrays and those that do not throw, comes by here in the standard
// library. Freed by its operator delete, which calls free.
void* operator new(std::size_t size) {
  if (shardproof::faults::memory_new::Fails()) throw std::bad_alloc();
  if (void* block = std::malloc(size == 0 ? 1 : size)) return block;
  throw std::bad_alloc();
}
#endif

namespace shardproof::faults::memory_new {
namespace {

/// Allocations of this thread do not count while it is there.
class NotCounted {
 public:
  NotCounted() : left_(std::exchange(calls_left, -1)) {}
  ~NotCounted() { calls_left = left_; }
  NotCounted(const NotCounted&) = delete;
  NotCounted& operator=(const NotCounted&) = delete;

 private:
  const int64_t left_;
};

/// What the recorder allocates is the verifier's.
class UncountedObserver : public ObserverDecorator {
 public:
  using ObserverDecorator::ObserverDecorator;
  void Enter(Stage stage) override {
    const NotCounted guard;
    inner_->Enter(stage);
  }
  void Reached(Stage stage, int64_t step, const Model& model) override {
    const NotCounted guard;
    inner_->Reached(stage, step, model);
  }
  void Keys(const std::vector<std::string>& missing,
            const std::vector<std::string>& unexpected) override {
    const NotCounted guard;
    inner_->Keys(missing, unexpected);
  }
};

struct Target {
  int64_t call = 0;
  int64_t rank = 0;
};

Result<Target> TargetOf(const Case& test_case, const std::string& where) {
  SP_ASSIGN(const auto split, SplitRank(test_case, where));
  SP_ASSIGN(const int64_t call, ParseIndex(split.what, std::numeric_limits<int64_t>::max(),
                                           "the number of the allocation"));
  return Target{call, split.rank};
}

const FaultRegistration kRegistration{{
    .id = "memory/new",
    .what = "one call of operator new by a rank, other than for a tensor, fails",
    .where = "N or N:RANK, such as 120:1, where N counts allocations from 0 from the start of the "
             "faulted phase, and RANK is the last rank if not given",
    .example = {"120:0", "on rank 0, the 121st allocation other than for a tensor fails"},
    .model = FaultModel::kMustEndInTime,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>&,
                const std::string& where) -> Status {
      if (test_case.transport == "sim") {
        return BadInput("simulated ranks share one memory: expected transport gloo");
      }
      SP_TRY(TargetOf(test_case, where));
      return Ok();
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          const Target target = TargetOf(site.test_case, where).value();
          if (site.world.rank() != target.rank) return;
          site.world.observer = std::make_shared<UncountedObserver>(site.world.observer);
          const auto point = std::make_shared<FaultPoint>(
              FaultPoint::Options{.name = "memory/new", .trigger = Trigger{}, .log = site.log});
          asked = [point,
                   line = fmt::format("operator new {} of rank {}", target.call, target.rank)] {
            return point->Strikes({}, {.detail = line, .call = "operator new"});
          };
          calls_left = target.call;
        },
    .in_words = [](const Case& test_case, const std::string& where) -> std::string {
      const auto target = TargetOf(test_case, where);
      if (!target.ok()) return "";
      return fmt::format("on rank {}, the {} allocation other than for a tensor fails",
                         target.value().rank, Ordinal(target.value().call + 1));
    },
    .cannot = []() -> std::string {
      return kIsReplaced ? "" : "operator new is a sanitizer's in this build";
    },
    .tried_at = {"300:0"},
    .draw = {.certain = FaultDraw::Certain::kAllocation, .needs_processes = true, .place = 17},
}};

}  // namespace
}  // namespace shardproof::faults::memory_new
