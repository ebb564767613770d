// Functions that the nccl.h which has been included is too old for are nothing. Included before
// each functions.inc, so without a guard.
#ifndef SHARDPROOF_NOTHING
#define SHARDPROOF_NOTHING(...)
#endif
#if NCCL_VERSION_CODE < 22300
#define NCCL_2_23_FUNCTION SHARDPROOF_NOTHING
#endif
#if NCCL_VERSION_CODE < 22800
#define NCCL_2_28_FUNCTION SHARDPROOF_NOTHING
#endif
