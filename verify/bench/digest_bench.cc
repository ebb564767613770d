// Speed of the digest beside a plain vectorised sum over the same bytes in the same process.
// Repetitions are interleaved and timed by processor time, so that a neighbour's load touches all
// alike; the table gives medians and their ratio to the plain sum's. `plain_sum_prefetch` reads as
// the digest does, two pages at a time and with prefetches: on some machines the harder rival.
//   SHARDPROOF_BENCH_BYTES  bytes of the buffer, 1 GiB unless set
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "src/digest/digest.h"
#include "src/digest/digest_internal.h"

#ifdef SHARDPROOF_DIGEST_X86
#include <immintrin.h>
#endif

namespace {

using shardproof::digest_internal::Kernel;
using shardproof::digest_internal::Kernels;

constexpr uint64_t kSlackBytes = 1 << 16;
constexpr int kRepetitions = 9;

uint64_t BufferBytes() {
  const char* text = std::getenv("SHARDPROOF_BENCH_BYTES");
  uint64_t bytes = text != nullptr ? std::strtoull(text, nullptr, 10) : uint64_t{1} << 30;
  return std::max<uint64_t>(bytes / 4096 * 4096, 1 << 20);
}

/// Finite in every format: bits 3 and 6 of every byte are clear, so no exponent is all ones.
uint8_t* MakeBuffer(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes + kSlackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("digest_bench: mmap");
    std::exit(2);
  }
  madvise(memory, bytes + kSlackBytes, MADV_HUGEPAGE);
  uint8_t* data = static_cast<uint8_t*>(memory);
  for (uint64_t i = 0; i < bytes + kSlackBytes; ++i) {
    data[i] = static_cast<uint8_t>((i * 2654435761u >> 24) & 0xb7);
  }
  return data;
}

const uint64_t g_bytes = BufferBytes();
uint8_t* const g_data = MakeBuffer(g_bytes);

#ifdef SHARDPROOF_DIGEST_X86
__attribute__((target("avx2"))) uint64_t PlainSum(const uint8_t* data, uint64_t bytes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  const __m256i* at = reinterpret_cast<const __m256i*>(data);
  for (uint64_t i = 0; i + 256 <= bytes; i += 256, at += 8) {
    a = _mm256_add_epi64(a, _mm256_loadu_si256(at));
    b = _mm256_add_epi64(b, _mm256_loadu_si256(at + 1));
    c = _mm256_add_epi64(c, _mm256_loadu_si256(at + 2));
    d = _mm256_add_epi64(d, _mm256_loadu_si256(at + 3));
    e = _mm256_add_epi64(e, _mm256_loadu_si256(at + 4));
    f = _mm256_add_epi64(f, _mm256_loadu_si256(at + 5));
    g = _mm256_add_epi64(g, _mm256_loadu_si256(at + 6));
    h = _mm256_add_epi64(h, _mm256_loadu_si256(at + 7));
  }
  a = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
  e = _mm256_add_epi64(_mm256_add_epi64(e, f), _mm256_add_epi64(g, h));
  uint64_t sum[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sum), _mm256_add_epi64(a, e));
  return sum[0] + sum[1] + sum[2] + sum[3];
}

__attribute__((target("avx2"))) uint64_t PlainSumPrefetch(const uint8_t* data, uint64_t bytes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (uint64_t block = 0; block + 8192 <= bytes; block += 8192) {
    for (uint64_t i = block; i < block + 4096; i += 64) {
      a = _mm256_add_epi64(a, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i)));
      b = _mm256_add_epi64(b, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + 32)));
      const uint8_t* next = data + i + 4096;
      c = _mm256_add_epi64(c, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(next)));
      d = _mm256_add_epi64(d, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(next + 32)));
      __builtin_prefetch(data + i + 8192, 0, 2);
      __builtin_prefetch(next + 8192, 0, 2);
    }
  }
  a = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
  uint64_t sum[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sum), a);
  return sum[0] + sum[1] + sum[2] + sum[3];
}
#else
uint64_t PlainSum(const uint8_t* data, uint64_t bytes) {
  const uint64_t* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t sum[4] = {};
  for (uint64_t i = 0; i + 4 <= bytes / 8; i += 4) {
    for (int j = 0; j < 4; ++j) sum[j] += words[i + j];
  }
  return sum[0] + sum[1] + sum[2] + sum[3];
}

uint64_t PlainSumPrefetch(const uint8_t* data, uint64_t bytes) { return PlainSum(data, bytes); }
#endif

void BenchPlainSum(benchmark::State& state, uint64_t (*sum)(const uint8_t*, uint64_t)) {
  for (auto _ : state) benchmark::DoNotOptimize(sum(g_data, g_bytes));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * g_bytes));
}

void BenchDigest(benchmark::State& state, const Kernel* kernel, sp_float_format format,
                 sp_run run) {
  for (auto _ : state) {
    sp_summary summary = {};
    kernel->digest_runs[format](&summary, &run, 1);
    benchmark::DoNotOptimize(summary);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * run.length * run.count));
}

void BenchBlocks(benchmark::State& state, uint64_t block_bytes) {
  sp_run run = {0, g_bytes, 1, 0, g_data, 0};
  std::vector<sp_digest> blocks(g_bytes / block_bytes + 1);
  for (auto _ : state) {
    sp_summary summary = {};
    sp_digest_blocks(&summary, blocks.data(), 0, blocks.size(), block_bytes, &run, 1, SP_BF16);
    benchmark::DoNotOptimize(summary);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * g_bytes));
}

void BenchCoverage(benchmark::State& state) {
  sp_run run = {0, g_bytes, 1, 0, nullptr, 0};
  for (auto _ : state) {
    sp_digest coverage = {};
    sp_coverage_runs(&coverage, &run, 1);
    benchmark::DoNotOptimize(coverage);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * g_bytes));
}

template <typename Function, typename... Arguments>
void Register(const std::string& name, Function function, Arguments... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), function, arguments...)
      ->Repetitions(kRepetitions)
      ->Iterations(static_cast<int64_t>(std::max<uint64_t>(1, (uint64_t{1} << 30) / g_bytes)))
      ->Unit(benchmark::kMillisecond);
}

/// One rank's columns of a matrix, 256 bytes a row, of a row of 8192 + 256 bytes.
sp_run Shard1(uint64_t first_byte) { return {first_byte, 256, g_bytes / 256, 8448, g_data, 256}; }

void RegisterAll() {
  Register("plain_sum", BenchPlainSum, PlainSum);
  Register("plain_sum_prefetch", BenchPlainSum, PlainSumPrefetch);
  sp_run whole = {0, g_bytes, 1, 0, g_data, 0};
  sp_run odd_element = {2, g_bytes, 1, 0, g_data, 0};
  sp_run odd_address = {0, g_bytes, 1, 0, g_data + 1, 0};
  sp_run odd_both = {2, g_bytes, 1, 0, g_data + 1, 0};
  for (const Kernel* kernel : Kernels()) {
    std::string name = std::string(kernel->name) + "/";
    Register(name + "bytes", BenchDigest, kernel, SP_NO_FLOAT, whole);
    Register(name + "bf16", BenchDigest, kernel, SP_BF16, whole);
    Register(name + "f32", BenchDigest, kernel, SP_F32, whole);
    Register(name + "f64", BenchDigest, kernel, SP_F64, whole);
    Register(name + "f8_e4m3fn", BenchDigest, kernel, SP_F8_E4M3FN, whole);
    Register(name + "bf16_odd_element", BenchDigest, kernel, SP_BF16, odd_element);
    Register(name + "bf16_odd_address", BenchDigest, kernel, SP_BF16, odd_address);
    Register(name + "bf16_odd_both", BenchDigest, kernel, SP_BF16, odd_both);
    Register(name + "bf16_shard1_256", BenchDigest, kernel, SP_BF16, Shard1(0));
    Register(name + "bf16_shard1_256_odd", BenchDigest, kernel, SP_BF16, Shard1(2));
  }
  Register("blocks_4KiB/bf16", BenchBlocks, uint64_t{4096});
  Register("blocks_1MiB/bf16", BenchBlocks, uint64_t{1} << 20);
  Register("coverage", BenchCoverage);
}

/// Keeps every repetition's speed and, at the end, prints medians beside the plain sum's.
class MedianReporter : public benchmark::ConsoleReporter {
 public:
  MedianReporter() : ConsoleReporter(OO_None) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      std::string name = run.run_name.function_name;
      speeds_[name].push_back(run.counters.at("bytes_per_second").value / 1e9);
    }
  }

  void Finalize() override {
    std::printf("%-34s %9s %7s\n", "median of repetitions", "GB/s", "ratio");
    double plain = Median("plain_sum");
    for (const auto& [name, speeds] : speeds_) {
      double speed = Median(name);
      std::printf("%-34s %9.2f %7.2f\n", name.c_str(), speed, plain > 0 ? speed / plain : 0.0);
    }
  }

 private:
  double Median(const std::string& name) const {
    auto found = speeds_.find(name);
    if (found == speeds_.end()) return 0;
    std::vector<double> sorted = found->second;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

  std::map<std::string, std::vector<double>> speeds_;
};

}  // namespace

int main(int argc, char** argv) {
  // Benchmark's own flag, on unless the command line says otherwise.
  std::vector<char*> arguments(argv, argv + argc);
  static char interleave[] = "--benchmark_enable_random_interleaving=true";
  arguments.insert(arguments.begin() + 1, interleave);
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  RegisterAll();
  std::printf("kernel in use: %s; %llu bytes\n", sp_digest_kernel(),
              static_cast<unsigned long long>(g_bytes));
  MedianReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}
