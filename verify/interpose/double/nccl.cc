// A double of libnccl, for tests without a GPU: ranks are threads of one process, what they give
// and get lies in the memory of the double of libcudart, and a call returns when its collective is
// done. Sums are of floats; the operation is always the sum.
#include <nccl.h>
#include <string.h>

#include <atomic>

#include "verify/interpose/double/meeting.h"
#include "verify/interpose/double/memory.h"

struct ncclComm {
  std::shared_ptr<meeting::Place> place;
  int rank = 0;
  bool aborted = false;  ///< under the place's mutex
};

namespace {

using meeting::Part;
using Parts = std::vector<Part>;

std::mutex mutex;
std::atomic<uint64_t> ids{1};
thread_local int group_depth = 0;
thread_local std::vector<std::function<ncclResult_t()>> group;

std::map<uint64_t, std::weak_ptr<meeting::Place>>& Places() {
  static auto* places = new std::map<uint64_t, std::weak_ptr<meeting::Place>>;
  return *places;
}

std::shared_ptr<meeting::Place> PlaceOf(const ncclUniqueId& id, int ranks) {
  uint64_t number = 0;
  ::memcpy(&number, id.internal, sizeof number);
  const std::lock_guard lock(mutex);
  std::shared_ptr<meeting::Place> place = Places()[number].lock();
  if (place == nullptr) Places()[number] = place = std::make_shared<meeting::Place>(ranks);
  return place;
}

size_t BytesOf(ncclDataType_t type) {
  constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kBytes[type];
}

/// Now, or when the group ends.
ncclResult_t Do(std::function<ncclResult_t()> work) {
  if (group_depth == 0) return work();
  group.push_back(std::move(work));
  return ncclSuccess;
}

ncclResult_t Collect(ncclComm_t comm, const void* send, void* recv, size_t count,
                     ncclDataType_t type, int root, meeting::Work work) {
  if (comm == nullptr) return ncclInvalidArgument;
  const Part part{static_cast<char*>(doubleHostAddress(send)),
                  static_cast<char*>(doubleHostAddress(recv)), count * BytesOf(type), type, root};
  return Do([comm, part, work = std::move(work)] {
    return comm->place->Meet(comm->rank, part, work, comm->aborted);
  });
}

/// The `index`-th share of all ranks' sends.
std::vector<char> Sum(const Parts& parts, size_t index) {
  std::vector<char> total(parts[0].bytes);
  for (const Part& part : parts) {
    for (size_t at = 0; at + sizeof(float) <= total.size(); at += sizeof(float)) {
      float sum = 0, more = 0;
      ::memcpy(&sum, total.data() + at, sizeof sum);
      ::memcpy(&more, part.send + index * part.bytes + at, sizeof more);
      sum += more;
      ::memcpy(total.data() + at, &sum, sizeof sum);
    }
  }
  return total;
}

void AllReduce(Parts& parts) {
  const std::vector<char> total = Sum(parts, 0);
  for (Part& part : parts) ::memcpy(part.recv, total.data(), part.bytes);
}

void Reduce(Parts& parts) {
  const std::vector<char> total = Sum(parts, 0);
  ::memcpy(parts[static_cast<size_t>(parts[0].root)].recv, total.data(), total.size());
}

void ReduceScatter(Parts& parts) {
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const std::vector<char> total = Sum(parts, rank);
    ::memcpy(parts[rank].recv, total.data(), total.size());
  }
}

void Broadcast(Parts& parts) {
  const Part root = parts[static_cast<size_t>(parts[0].root)];
  const std::vector<char> message(root.send, root.send + root.bytes);
  for (Part& part : parts) ::memcpy(part.recv, message.data(), message.size());
}

void GatherAt(Part& into, const Parts& parts) {
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    ::memcpy(into.recv + rank * into.bytes, parts[rank].send, into.bytes);
  }
}

void AllGather(Parts& parts) {
  for (Part& part : parts) GatherAt(part, parts);
}

void Gather(Parts& parts) { GatherAt(parts[static_cast<size_t>(parts[0].root)], parts); }

void Scatter(Parts& parts) {
  const Part& root = parts[static_cast<size_t>(parts[0].root)];
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    ::memcpy(parts[rank].recv, root.send + rank * root.bytes, root.bytes);
  }
}

void AlltoAll(Parts& parts) {
  for (size_t to = 0; to < parts.size(); ++to) {
    for (size_t from = 0; from < parts.size(); ++from) {
      ::memcpy(parts[to].recv + from * parts[to].bytes, parts[from].send + to * parts[to].bytes,
               parts[to].bytes);
    }
  }
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  const uint64_t number = ids++;
  ::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  if (rank < 0 || rank >= ranks) return ncclInvalidArgument;
  *comm = new ncclComm{PlaceOf(id, ranks), rank};
  return (*comm)->place->Meet(
      rank, {}, [](Parts&) {}, (*comm)->aborted);
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  return ncclCommInitRankConfig(comm, ranks, ids[0], rank, config);
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int*) {
  const auto place = std::make_shared<meeting::Place>(devices);
  for (int rank = 0; rank < devices; ++rank) comms[rank] = new ncclComm{place, rank};
  return ncclSuccess;
}
/// Of one rank alone: what is tested is that the call comes through.
ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t* made, ncclConfig_t*) {
  *made = new ncclComm{std::make_shared<meeting::Place>(1), 0};
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(const ncclComm_t, void* buffer, size_t, void** handle) {
  *handle = buffer;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
/// The communicator stays for the threads that still wait on it.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->place->Abort(comm->aborted);
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->place->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  ncclResult_t worst = ncclSuccess;
  for (const auto& work : std::exchange(group, {})) {
    const ncclResult_t result = work();
    if (result != ncclSuccess) worst = result;
  }
  return worst;
}

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t) {
  return Collect(comm, send, recv, count, type, 0, AllReduce);
}
ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t) {
  return Collect(comm, send, recv, count, type, root, Broadcast);
}
/// As the real one, by way of the other.
ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t, int root, ncclComm_t comm, cudaStream_t) {
  return Collect(comm, send, recv, count, type, root, Reduce);
}
ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t) {
  return Collect(comm, send, recv, count, type, 0, AllGather);
}
ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t) {
  return Collect(comm, send, recv, count, type, 0, ReduceScatter);
}
ncclResult_t ncclAlltoAll(const void* send, void* recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t) {
  return Collect(comm, send, recv, count, type, 0, AlltoAll);
}
ncclResult_t ncclGather(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t) {
  return Collect(comm, send, recv, count, type, root, Gather);
}
ncclResult_t ncclScatter(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t) {
  return Collect(comm, send, recv, count, type, root, Scatter);
}
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t) {
  const char* begin = static_cast<char*>(doubleHostAddress(send));
  std::vector<char> message(begin, begin + count * BytesOf(type));
  return Do([=] {
    comm->place->Send(comm->rank, peer, message);
    return ncclSuccess;
  });
}
ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t) {
  char* out = static_cast<char*>(doubleHostAddress(recv));
  return Do([=] {
    return comm->place->Receive(peer, comm->rank, out, count * BytesOf(type), comm->aborted);
  });
}

}  // extern "C"
