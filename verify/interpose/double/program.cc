// A program on CUDA and NCCL that knows of no faults, linked to the doubles:
//   names              the functions that it can call, one a line
//   call NAME          NAME CODE RESULT of one call
//   ranks WORLD ROUNDS [group] [abort=MS]
//                      each of WORLD threads all-reduces ROUNDS times, in one NCCL group if asked;
//                      its communicators are aborted after so long. Lines: rank R round N code C
//                      value V, and rank R async E at the end
//   fork               two allocations, and two more in a child: parent C, child C
//   threads THREADS CALLS   how many of their synchronisations failed
//   time CALLS         nanoseconds a call
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "verify/interpose/double/calls.h"

namespace {

struct Plan {
  int world = 2, rounds = 1;
  bool is_group = false;
  bool aborts = false;
};

/// Floats of a rank in a round: all are (rank + 1) * (round + 1).
constexpr size_t kFloats = 4;

void Show(int rank, int round, ncclResult_t code, const void* device) {
  float values[kFloats] = {};
  cudaMemcpyAsync(values, device, sizeof values, cudaMemcpyDeviceToHost, nullptr);
  ::printf("rank %d round %d code %d value %g\n", rank, round, code, values[0]);
  ::fflush(stdout);
}

void RunRank(const Plan& plan, int rank, ncclComm_t comm) {
  std::vector<void*> buffers(static_cast<size_t>(plan.rounds));
  std::vector<ncclResult_t> codes;
  if (plan.is_group) ncclGroupStart();
  for (int round = 0; round < plan.rounds; ++round) {
    void*& buffer = buffers[static_cast<size_t>(round)];
    std::vector<float> values(kFloats, static_cast<float>((rank + 1) * (round + 1)));
    cudaMalloc(&buffer, sizeof(float) * kFloats);
    cudaMemcpyAsync(buffer, values.data(), sizeof(float) * kFloats, cudaMemcpyHostToDevice,
                    nullptr);
    codes.push_back(ncclAllReduce(buffer, buffer, kFloats, ncclFloat32, ncclSum, comm, nullptr));
    if (!plan.is_group) Show(rank, round, codes.back(), buffer);
  }
  if (plan.is_group) ncclGroupEnd();
  for (int round = 0; plan.is_group && round < plan.rounds; ++round) {
    Show(rank, round, codes[static_cast<size_t>(round)], buffers[static_cast<size_t>(round)]);
  }
  ncclResult_t error = ncclSuccess;
  ncclCommGetAsyncError(comm, &error);
  ::printf("rank %d async %d\n", rank, error);
  ::fflush(stdout);
}

int RunRanks(const Plan& plan) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::vector<ncclComm_t> comms(static_cast<size_t>(plan.world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < plan.world; ++rank) {
    threads.emplace_back([&plan, &comms, id, rank] {
      ncclComm_t& comm = comms[static_cast<size_t>(rank)];
      const ncclResult_t made = ncclCommInitRank(&comm, plan.world, id, rank);
      if (made == ncclSuccess) return RunRank(plan, rank, comm);
      ::printf("rank %d made %d\n", rank, made);
      ::fflush(stdout);
    });
  }
  if (plan.aborts) {
    threads.back().join();
    threads.pop_back();
    for (ncclComm_t comm : comms) ncclCommAbort(comm);
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

int RunFork() {
  const auto allocate = [](const char* who) {
    for (int i = 0; i < 2; ++i) {
      void* pointer = nullptr;
      ::printf("%s %d\n", who, cudaMalloc(&pointer, 64));
      ::fflush(stdout);
    }
  };
  allocate("parent");
  const pid_t child = ::fork();
  if (child == 0) {
    allocate("child");
    ::_exit(0);
  }
  return ::waitpid(child, nullptr, 0) == child ? 0 : 1;
}

int RunThreads(int threads, int calls) {
  std::atomic<int> failed{0};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&failed, calls] {
      for (int n = 0; n < calls; ++n) failed += cudaDeviceSynchronize() != cudaSuccess ? 1 : 0;
    });
  }
  for (std::thread& thread : all) thread.join();
  ::printf("failed %d\n", failed.load());
  return 0;
}

int RunTime(int calls) {
  cudaDeviceSynchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int n = 0; n < calls; ++n) cudaDeviceSynchronize();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  ::printf("%.2f\n", took.count() / calls);
  return 0;
}

int RunCall(const std::string& name) {
  const auto call = Calls().find(name);
  if (call == Calls().end()) return 2;
  const Outcome outcome = call->second();
  ::printf("%s %d %s\n", name.c_str(), outcome.code, outcome.result.c_str());
  return 0;
}

Plan PlanOf(const std::vector<std::string>& words) {
  Plan plan{.world = ::atoi(words[1].c_str()), .rounds = ::atoi(words[2].c_str())};
  for (size_t i = 3; i < words.size(); ++i) {
    if (words[i] == "group") plan.is_group = true;
    if (words[i] == "abort") plan.aborts = true;
  }
  return plan;
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  const std::string what = words.empty() ? "" : words[0];
  if (what == "names") {
    for (const auto& [name, call] : Calls()) ::puts(name.c_str());
    return 0;
  }
  if (what == "call" && words.size() == 2) return RunCall(words[1]);
  if (what == "ranks" && words.size() >= 3) return RunRanks(PlanOf(words));
  if (what == "fork") return RunFork();
  if (what == "threads" && words.size() == 3) {
    return RunThreads(::atoi(words[1].c_str()), ::atoi(words[2].c_str()));
  }
  if (what == "time" && words.size() == 2) return RunTime(::atoi(words[1].c_str()));
  ::fputs("expected names, call NAME, ranks WORLD ROUNDS, fork, threads T N or time N\n", stderr);
  return 2;
}
