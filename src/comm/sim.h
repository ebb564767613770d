// A simulated transport: ranks are threads of one process of which one runs at a time. Who runs,
// and when what travels is read and written, follows from a seed alone, so that any run can be had
// again. A collective under way reads its input and writes its output at some moment before its
// Wait returns, as a network does: what is used too early, or reused too early, is wrong here, and
// always alike.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/comm/c10d_fwd.h"
#include "src/comm/sim_scheduler.h"
#include "src/seam/clock.h"
#include "src/seam/communicator.h"

namespace shardproof {

class SimWorld {
 public:
  SimWorld(int64_t world_size, uint64_t seed);

  /// Calls be_rank(rank) for every rank in a thread of its own, which must not throw, and returns
  /// when all have returned. Where ranks wait for what never comes, each one's wait throws, with
  /// the operation, its number and its tensors of every rank; likewise in what does not match.
  void Run(const std::function<void(int64_t rank)>& be_rank);

  /// This rank's end of the transport. Tensors on meta travel without data.
  c10::intrusive_ptr<c10d::Backend> BackendOf(int64_t rank);
  /// The same as a Communicator, which tells the world which tensors travel.
  std::shared_ptr<Communicator> CommunicatorOf(int64_t rank);
  /// Counts the choices that the scheduler has made, one a microsecond.
  std::shared_ptr<Clock> MakeClock() const;
  /// From now on nothing travels to or from this rank, whose memory may go. Only in its thread.
  void Lose(int64_t rank) { lost_.insert(rank); }
  /// Lets the scheduler choose who goes on. Only in a rank's thread.
  void Yield() { scheduler_.Yield(); }

  /// Why nothing could travel any more, or empty.
  const std::string& failure() const { return failure_; }
  /// Collectives that match in all that a transport sees and carry other tensors, in order.
  const std::vector<std::string>& other_tensors() const { return other_tensors_; }

 private:
  friend class SimBackend;
  friend class SimWork;
  friend class SimCommunicator;

  /// What a rank asks for.
  struct Request {
    std::string op;  ///< "broadcast", "scatter", "allreduce"
    int64_t root = -1;
    std::string reduction;             ///< "MAX", of a reduction only
    at::Tensor payload;                ///< what arrives; of a broadcast's root, what leaves
    std::vector<at::Tensor> leaves;    ///< scatter's root: one a rank
    std::vector<std::string> tensors;  ///< which logical tensors travel
  };
  /// One collective, as far as ranks have come to it.
  struct Operation {
    std::map<int64_t, Request> requests;  ///< by rank
    std::set<int64_t> arrived;            ///< ranks whose part is done
    int64_t sent = 0;                     ///< by root, of a broadcast or scatter
    at::Tensor reduced;
  };

  int64_t Post(int64_t rank, Request request);
  /// Returns once the rank's part is done. \throws c10::Error if it never will be.
  void Await(int64_t rank, int64_t number);
  bool HasArrived(int64_t rank, int64_t number) const;
  void Match(int64_t number, const Operation& operation, int64_t rank, const Request& request);
  /// Offers the transfers that have become possible with this rank's request.
  void OfferTransfers(int64_t number, int64_t rank);
  void Transfer(int64_t number, int64_t to);
  void Reduce(int64_t number, int64_t to);
  void Arrive(int64_t number, int64_t rank);
  void Fail(std::string text);
  std::string WhoWaits() const;
  std::string Described(int64_t number, const Request& request) const;

  int64_t world_size_;
  SimScheduler scheduler_;
  std::set<int64_t> lost_;
  std::map<int64_t, Operation> operations_;          ///< by number, until every rank's part is done
  std::vector<int64_t> posted_;                      ///< how many each rank has asked for
  std::vector<int64_t> waits_for_;                   ///< the number that each rank waits for, or -1
  std::vector<std::vector<std::string>> announced_;  ///< tensors of each rank's next request
  std::string failure_;
  std::vector<std::string> other_tensors_;
};

}  // namespace shardproof
