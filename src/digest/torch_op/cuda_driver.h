// The part of the CUDA driver's API that launches the digest's kernel. The driver's library is
// looked for when the first tensor on a GPU comes: where there is none, everything else works.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "src/digest/digest_thread.h"

namespace shardproof::digest_internal {

/// The kernel's machine code for all architectures, as nvcc -fatbin wrote it.
extern "C" const unsigned char shardproof_digest_fatbin[];

/// Launches on one device. The units of `segments` are head.unit_count. Nothing is waited for, and
/// nothing is allocated after the first launch on a device.
/// \param stream  a cudaStream_t of the device.
/// \returns what is wrong, or nothing: "no CUDA driver was found (...)", "...: no kernel image is
///          available for execution on the device".
std::string LaunchDigest(int device, void* stream, LaunchHead head,
                         std::span<const Segment> segments);

}  // namespace shardproof::digest_internal
