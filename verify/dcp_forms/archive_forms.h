// ZIP archives as torch.save and others write them: nothing compressed, and the rest in any of the
// ways that the format allows.
#pragma once

#include <string>
#include <vector>

#include "verify/oracle/draws.h"

namespace shardproof::dcp_forms {

using oracle::Draws;

struct ArchiveMember {
  std::string name;
  std::string content;
};

/// The bytes of an archive; in which order, with which fields of 64 bits, alignment and further
/// records, `draws` says. \source APPNOTE.TXT 6.3.10
std::string ArchiveOf(std::vector<ArchiveMember> members, Draws& draws);

}  // namespace shardproof::dcp_forms
