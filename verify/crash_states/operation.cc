#include "verify/crash_states/operation.h"

#include <fmt/format.h>

#include "verify/crash_states/link_target.h"

namespace shardproof::crash {

const char* ToString(OperationKind kind) {
  switch (kind) {
    case OperationKind::kCreate:
      return "create";
    case OperationKind::kWrite:
      return "write";
    case OperationKind::kTruncate:
      return "truncate";
    case OperationKind::kSyncFile:
      return "sync_file";
    case OperationKind::kMakeDirectory:
      return "make_directory";
    case OperationKind::kSyncDirectory:
      return "sync_directory";
    case OperationKind::kRename:
      return "rename";
    case OperationKind::kExchange:
      return "exchange";
    case OperationKind::kUnlink:
      return "unlink";
    case OperationKind::kRemoveDirectory:
      return "remove_directory";
    case OperationKind::kLink:
      return "link";
    case OperationKind::kSymlink:
      return "symlink";
  }
  return "unknown";
}

std::string Describe(const FileOperation& operation) {
  const std::string path = operation.path.empty() ? "." : operation.path;
  switch (operation.kind) {
    case OperationKind::kCreate:
      return operation.size == 0 ? "create of " + path
                                 : fmt::format("create of {}, {} bytes", path, operation.size);
    case OperationKind::kWrite:
      return fmt::format("write of bytes [{}, {}) of {}", operation.offset,
                         static_cast<uint64_t>(operation.offset) + operation.bytes.size(), path);
    case OperationKind::kTruncate:
      return fmt::format("truncate of {} to {} bytes", path, operation.size);
    case OperationKind::kRename:
      return fmt::format("rename of {} to {}", path, operation.other);
    case OperationKind::kExchange:
      return fmt::format("exchange of {} and {}", path, operation.other);
    case OperationKind::kSyncFile:
    case OperationKind::kSyncDirectory:
      return "sync of " + path;
    case OperationKind::kMakeDirectory:
      return "mkdir of " + path;
    case OperationKind::kUnlink:
      return "unlink of " + path;
    case OperationKind::kRemoveDirectory:
      return "rmdir of " + path;
    case OperationKind::kLink:
      return fmt::format("link of {} as {}", path, operation.other);
    case OperationKind::kSymlink:
      return fmt::format("symlink of {} to {}", path, TargetText(operation.other));
  }
  return path;
}

}  // namespace shardproof::crash
