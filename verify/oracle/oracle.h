// The independent oracle: what a checkpoint holds and what the model must therefore hold, from a
// minimal reader, a plain scalar digest and formulas that share nothing with src/. Slow where slow
// is simple. Nothing here includes ATen or src/ other than core/result.h.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/case/case.h"
#include "verify/evidence/evidence.h"

namespace shardproof::oracle {

/// One tensor's place in a safetensors checkpoint.
struct TensorLocation {
  std::string name;
  std::string file;          ///< within the directory
  uint64_t file_offset = 0;  ///< absolute byte offset of its first byte
  uint64_t byte_length = 0;
  std::string dtype;  ///< safetensors' name
  std::vector<int64_t> shape;
};

/// What of a checkpoint is not as it says of itself, a line each.
using Damage = std::vector<std::string>;

inline constexpr const char* kModelIndexName = "model.safetensors.index.json";

/// The tensors of a checkpoint directory (model.safetensors, or the files that
/// model.safetensors.index.json names; else every *.safetensors file), or of one .safetensors file,
/// sorted by name. Validated: every offset, size, dtype and duplicate.
/// \param damage  if given, takes what is wrong with what could be read, and the tensors concerned
/// are
///   left out: a file that an index names and that is not there, offsets beyond a file's end, a key
///   in another file than the index says, keys twice.
/// \param index  the name of the index; if it is another than a model's, model.safetensors is no
/// more
///   than any file.
/// \error kBadInput naming file, offset or key, what was expected and what was found.
Result<std::vector<TensorLocation>> Locate(const std::string& checkpoint, Damage* damage = nullptr,
                                           const std::string& index = kModelIndexName);

/// The tensors that a Case's run loads: of its checkpoint, which is at `source`, and of its adapter
/// (whose `file` is then absolute); none if it begins from scratch. \error kBadInput likewise.
Result<std::vector<TensorLocation>> LocateSource(const Case& test_case, const std::string& source);

/// The tensors of a checkpoint that a Case's run saved: of an adapter in its folder `adapter` too,
/// if the Case has one. \error kBadInput likewise.
Result<std::vector<TensorLocation>> LocateSaved(const Case& test_case, const std::string& saved);

/// Reads bytes [start, start+length) of a located tensor. \error kBadInput on a short read.
Result<std::string> ReadBytes(const std::string& checkpoint, const TensorLocation& where,
                              uint64_t start, uint64_t length);

/// The side of the block grid for a tensor of `byte_length` bytes: a power of two, at least 4096,
/// such that there are at most 1024 blocks. The observer uses the same function (EvidenceGrid).
uint64_t GridBlockBytes(uint64_t byte_length);

/// A tensor of a checkpoint by the name that the model gives it, and the keys that make it, one
/// after the other in row-major order.
struct PlacedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<TensorLocation> parts;  ///< one or more, all of one dtype
  std::string dtype = {};  ///< floating-point, that the model has it in; empty: that of its parts

  /// Whether keys other than its own name hold it.
  bool IsAssembled() const { return parts.size() != 1 || parts[0].name != name; }
  uint64_t ByteLength() const;
};

/// What the keys at `places` are to the model: of every declared tensor's stored ways (case.h) the
/// first whose keys are all there makes one tensor of them; every other key is a tensor of its own,
/// declared or not.
/// \error kBadInput, one line: a tensor of which some keys are there and neither the others nor its
///   own name; one that is there twice; a part of another shape than the way says, or of another
///   dtype than the parts before it.
Result<std::vector<PlacedTensor>> Place(const std::string& checkpoint,
                                        const std::vector<TensorLocation>& places,
                                        const std::vector<TensorCase>& declared);

/// Digests of every tensor as Place() puts them together, by the plain scalar digest of
/// SPECIFICATION.md, with inline bytes for tensors of at most 4096 bytes and for the captures asked
/// for (by tensor name).
/// \param places  as one of the Locate functions gives them for `checkpoint`.
/// \param declared  the model's tensors; of no interest but for their stored ways.
CheckpointRecord ReadCheckpoint(const std::string& checkpoint,
                                const Result<std::vector<TensorLocation>>& places,
                                const std::vector<CaptureRequest>& captures,
                                const std::vector<TensorCase>& declared);

/// The same of tensors that somebody has placed.
CheckpointRecord ReadPlaced(const std::string& checkpoint,
                            const std::vector<TensorLocation>& places,
                            const std::vector<PlacedTensor>& placed,
                            const std::vector<CaptureRequest>& captures);

/// The sum of the tensors' bytes as the index of a checkpoint directory has it, `total_size`;
/// nothing if there is no index or it does not say. `indexed` tells whether there is one.
std::optional<uint64_t> ClaimedSize(const std::string& checkpoint, bool& indexed);

/// Every tensor that the model of a Hugging Face config.json has (parameters and buffers, tied
/// names each on their own), by the public definition of the architecture: an implementation of its
/// own, not the pipeline's. Dtype is the config's (`dtype` or `torch_dtype`, else F32), but for
/// codes and scales of quantised layers (quantised_config.h); buffers are F32. Which are known: the
/// table in hf_model.cc.
struct DeclaredModel {
  std::vector<TensorCase> tensors;
  std::vector<std::vector<std::string>> ties;
  double init_scale = 0;               ///< half-width of the "uniform" initial values
  std::set<std::string> linears = {};  ///< the modules of a config.json that are linear layers
  std::set<std::string> adapted = {};  ///< the tensors of its adapter
};
/// \error kBadInput naming config.json (or adapter_config.json), the field, what was expected and
/// found;
///   an unknown architecture with the list of the known ones.
Result<DeclaredModel> DeclareModel(const Case& test_case);

/// The whole oracle for a Case whose source checkpoint is at `source` (for a synthetic model, where
/// WriteSynthetic put it; else test_case.model.checkpoint).
Result<OracleRecord> Consult(const Case& test_case, const std::string& source,
                             const std::vector<CaptureRequest>& captures);

/// Writes a synthetic model's checkpoint (files safetensors, index, no config.json) into
/// `directory`, which must exist and be empty. Values are a pure function of (seed, name, index);
/// every element of every tensor differs from its neighbours. Names in `missing` are left out,
/// names in `unexpected` are added as F32 [4].
Status WriteSynthetic(const Case& test_case, const std::string& directory);

/// The bytes that a key missing from the source must be initialised to (src/model/initial_value.h
/// states the formula; this is a second, independent implementation of it).
std::string InitialBytes(uint64_t seed, const std::string& name, const std::string& dtype,
                         const std::vector<int64_t>& shape, const std::string& init, double scale);

/// Inverse frequencies of RoPE kind "default": F32 [dim/2]; none if F32 cannot hold them.
std::vector<float> DefaultInverseFrequencies(double theta, int64_t dim);

}  // namespace shardproof::oracle
