// The closed sets of names that a Case may use, each in one table, so that a message can list them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardproof {

using NameTable = std::vector<std::string_view>;

/// The load strategy in which every rank reads everything.
inline constexpr const char* kPlainStrategy = "plain";
/// In place of a checkpoint's path, of a job that was observed and named none.
inline constexpr const char* kNoCheckpoint = "no checkpoint";

const NameTable& KnownDtypes();       ///< safetensors' names
const NameTable& KnownStrategies();   ///< load strategies of the reference pipeline
const NameTable& KnownTransports();   ///< what carries the reference's collectives
const NameTable& KnownValues();       ///< of synthetic tensors
const NameTable& KnownDevices();      ///< whose memory the reference's tensors are in
const NameTable& KnownOptimizers();   ///< when the reference pipeline makes one
const NameTable& KnownMoments();      ///< dtypes of an optimizer's moments
const NameTable& KnownReductions();   ///< dtypes in which gradients travel, "none"
const NameTable& KnownSaveFormats();  ///< of a training job's saves
const NameTable& KnownKinds();        ///< "parameter", "buffer"
const NameTable& KnownInits();        ///< "uniform", "ones", "zeros"
const NameTable& KnownAxes();         ///< mesh axes
const NameTable& KnownRopes();        ///< kinds of rotary position embeddings

/// \returns bytes an element, or nullopt for a dtype that is not known.
std::optional<uint64_t> DtypeBytes(std::string_view dtype);

/// "a, b or c": for messages.
std::string ListNames(const NameTable& names);

/// Bytes of a tensor. \returns nullopt if a dim is negative, the dtype is unknown, or the product
/// does not fit.
std::optional<uint64_t> TensorBytes(std::string_view dtype, const std::vector<int64_t>& shape);

/// Dims from the outermost in memory on, by the strides of a tensor; of equal strides the first is
/// outer.
std::vector<size_t> OrderInMemory(const std::vector<int64_t>& strides);
/// Strides, in elements, of a tensor whose dims lie in memory in that order, without gaps.
std::vector<int64_t> StridesInOrder(const std::vector<int64_t>& shape,
                                    const std::vector<size_t>& order);

}  // namespace shardproof
