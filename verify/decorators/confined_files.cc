#include "verify/decorators/confined_files.h"

#include <filesystem>
#include <set>

#include "verify/decorators/asked_files.h"

namespace shardproof {
namespace {

std::string Normal(const std::string& path) {
  std::string normal = std::filesystem::absolute(path).lexically_normal().string();
  while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  return normal;
}

}  // namespace

std::shared_ptr<FileSystem> ConfineTo(std::shared_ptr<FileSystem> inner,
                                      const std::string& save_to) {
  static const std::set<FileOp> kHarmless = {FileOp::kMap, FileOp::kRead, FileOp::kSync,
                                             FileOp::kSyncDirectory};
  return AskBefore(std::move(inner), [allowed = Normal(save_to)](const FileCall& call) -> Status {
    if (kHarmless.contains(call.op) || Normal(call.path).starts_with(allowed)) return Ok();
    return Failed(call.action + ": refused, since a job that is struck changes nothing but " +
                  allowed);
  });
}

}  // namespace shardproof
