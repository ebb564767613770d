// What a call of CUDA or NCCL is about, as far as rules ask. Made from its arguments, and only for
// functions that a rule names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardproof::interpose {

struct Facts {
  uint64_t bytes = 0;          ///< allocated or copied, or of one rank's share in a collective
  void* filled = nullptr;      ///< where the result comes to lie on this rank; null: nowhere
  uint64_t filled_bytes = 0;   ///< of the result
  void* stream = nullptr;      ///< on which it comes
  void* comm = nullptr;        ///< communicator; null: none
  int rank = -1;               ///< in a communicator that is being made
  int* async_error = nullptr;  ///< where ncclCommGetAsyncError says what it knows
};

/// Bytes of an element of an ncclDataType_t; 0 if it is not known.
uint64_t ElementBytes(int type);

/// Of the communicator, as NCCL says; 1 and -1 if it does not.
int RanksOf(void* comm);
int RankIn(void* comm);

inline Facts Sized(uint64_t bytes) { return {.bytes = bytes}; }
inline Facts OfRank(int rank) { return {.rank = rank}; }
inline Facts On(void* comm) { return {.comm = comm}; }
inline Facts SizedOn(void* comm, uint64_t bytes) { return {.bytes = bytes, .comm = comm}; }
inline Facts Copied(void* to, uint64_t bytes, void* stream) {
  return {.bytes = bytes, .filled = to, .filled_bytes = bytes, .stream = stream};
}
inline Facts Reporting(void* comm, void* error) {
  return {.comm = comm, .async_error = static_cast<int*>(error)};
}
inline Facts Collective(void* filled, size_t count, int type, void* comm, void* stream) {
  Facts facts = Copied(filled, count * ElementBytes(type), stream);
  facts.comm = comm;
  return facts;
}
/// The result is as many times as large as there are ranks.
inline Facts OfAll(Facts facts) {
  facts.filled_bytes *= static_cast<uint64_t>(RanksOf(facts.comm));
  return facts;
}
/// The result comes to lie on one rank alone.
inline Facts AtRoot(int root, Facts facts) {
  if (RankIn(facts.comm) != root) facts.filled = nullptr;
  return facts;
}

}  // namespace shardproof::interpose
