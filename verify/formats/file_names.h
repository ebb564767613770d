// What the names of a checkpoint's files say: of how many they are one, and of which rank.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/oracle/oracle.h"

namespace shardproof::formats {

/// What goes before the names in a file that one rank wrote: its name up to the rank, as
/// "model-rank-0" of "model-rank-0-part-1.safetensors". Empty if the name says no rank.
std::string RankOf(const std::string& file);

/// What the files of all ranks of one kind share of their names, which are alike but for numbers:
/// "policy/model" of "policy/model_world_size_2_rank_0.pt" and of "policy/rank_1/model.pt". May be
/// empty.
std::string FamilyOf(const std::string& file);

/// Whether a folder is named as that of one rank: "mp_rank_00", "tp_0", "node-3".
bool IsFolderOfRank(const std::string& folder);

/// Notes each file that is not there though another one's name says that it should be: the second
/// of "model-00001-of-00002.safetensors", rank 1 of "model_world_size_2_rank_0.pt", part 0 of
/// "model-rank-0-part-1.safetensors", and an index of several numbered files.
/// \param partitions  how many "zero_pp_rank_N" of DeepSpeed's there are; none: up to the largest.
/// \param names  the files of `directory` that the checkpoint consists of.
Status CheckComplete(const std::string& directory, const std::vector<std::string>& names,
                     bool has_index, oracle::Damage* damage,
                     std::optional<int64_t> partitions = {});

/// Notes each file that a parameter lacks in a universal checkpoint of DeepSpeed's, where
/// "zero/NAME/" has the parameter and each part of the optimizer's state in a file of its own: its
/// fp32.pt, or one that most of the others have, unless it has no state at all, since it is frozen.
/// With `damage`, also state of another shape than the parameter's: it can be read all the same.
/// \param shapes  of "param" in each file.
Status CheckUniversal(const std::string& directory,
                      const std::map<std::string, std::vector<int64_t>>& shapes,
                      const std::vector<std::string>& names, oracle::Damage* damage);

}  // namespace shardproof::formats
