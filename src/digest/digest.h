/* The partition-invariant digest: C ABI, no ATen, no allocation. SPECIFICATION.md beside this file
 * defines every number; test vectors are in vectors.json.
 *
 * D(T) = sum over the bytes of T's *global* row-major little-endian image of value x key(position),
 * so D of a tensor is the sum of D over any disjoint cover of it, cut at any byte. Coverage is the
 * digest of the same runs of an image whose bytes are all 1: it shows gaps and overlaps that zeros
 * would hide. It guards against accident, not against an adversary. */
#ifndef SHARDPROOF_DIGEST_H_
#define SHARDPROOF_DIGEST_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Two independent lanes, each a sum modulo 2^64. Adding two partial digests lane by lane gives the
 * digest of the union of their bytes. */
typedef struct sp_digest {
  uint64_t lane[2];
} sp_digest;

/* How to read elements for the non-finite count. Other dtypes have no NaN: SP_NO_FLOAT. */
typedef enum sp_float_format {
  SP_NO_FLOAT = 0,
  SP_F16 = 1,
  SP_BF16 = 2,
  SP_F32 = 3,
  SP_F64 = 4,
  SP_F8_E4M3FN = 5, /* NaN is 0x7f and 0xff; no Inf */
  SP_F8_E5M2 = 6
} sp_float_format;

/* `count` equal stretches of the global byte image that this rank holds.
 * Stretch i covers global bytes [global_start + i*global_stride, + length), stored at
 * data + i*data_stride. A contiguous shard is one run with count = 1; Shard(1) of a matrix is one
 * run with count = rows. All figures in bytes. `data` may be null for coverage only. */
typedef struct sp_run {
  uint64_t global_start;
  uint64_t length;
  uint64_t count;
  uint64_t global_stride;
  const void* data;
  int64_t data_stride;
} sp_run;

/* What one pass over some runs yields. Only elements that lie wholly within one stretch are counted
 * as NaN or Inf. */
typedef struct sp_summary {
  sp_digest digest;
  uint64_t nan_count;
  uint64_t inf_count;
} sp_summary;

/* Adds the runs' digest and non-finite counts to *summary. Units: bytes. Reads each byte once. */
void sp_digest_runs(sp_summary* summary, const sp_run* runs, size_t run_count,
                    sp_float_format format);

/* Adds the NaN and Inf among the whole elements of data[0, length) to *summary, and no digest: for
 * who does not need one, a third of the time. Units: bytes. */
void sp_count_non_finite(sp_summary* summary, const void* data, uint64_t length,
                         sp_float_format format);

/* Adds the runs' coverage (digest of the all-ones image) to *coverage, in closed form per 4 KiB. */
void sp_coverage_runs(sp_digest* coverage, const sp_run* runs, size_t run_count);

/* Like sp_digest_runs, and besides adds each grid block's partial digest to
 * blocks[i - first_block], where block i is global bytes [i*block_bytes, (i+1)*block_bytes).
 * block_bytes is a positive multiple of 4096. Blocks outside [first_block, first_block +
 * block_count) are summed into *summary only. */
void sp_digest_blocks(sp_summary* summary, sp_digest* blocks, uint64_t first_block,
                      size_t block_count, uint64_t block_bytes, const sp_run* runs,
                      size_t run_count, sp_float_format format);

/* The name of the code path in use on this machine: "avx2", "avx512" or "portable";
 * the fastest, or the one that the environment variable SHARDPROOF_DIGEST_KERNEL names, if this
 * machine runs that. */
const char* sp_digest_kernel(void);

/* Why SHARDPROOF_DIGEST_KERNEL cannot be followed, since it names no code path: a line; else "". */
const char* sp_digest_kernel_refused(void);

#ifdef __cplusplus
}
#endif
#endif /* SHARDPROOF_DIGEST_H_ */
