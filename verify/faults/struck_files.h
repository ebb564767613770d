// A file system that is asked before each of its calls whether a fault strikes.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "src/seam/file_system.h"
#include "verify/faults/fault.h"

namespace shardproof {

/// One call that is about to be made.
struct FileCall {
  FileOp op = FileOp::kMap;
  std::string path;  ///< of a rename the old name
  std::string
      action;  ///< as the real file system's errors have it: "writing 96 bytes at offset 0 of a"
  uint64_t bytes = 0;   ///< of a write
  uint64_t offset = 0;  ///< likewise
  std::string_view data = {};
  OutputFile* file = nullptr;  ///< of a write or sync
};

/// Ok, and the call is made; or what it fails with.
using BeforeCall = std::function<Status(const FileCall&)>;

std::shared_ptr<FileSystem> AskBefore(std::shared_ptr<FileSystem> inner, BeforeCall before);

/// A fault of which calls of some kinds fail with an errno.
struct FileFault {
  std::string id;
  std::string what;
  FaultExample example;
  std::set<FileOp> ops;
  int error_number = 0;
  bool from_then_on = false;  ///< or just the call that is hit
  FaultModel model = FaultModel::kMustAbortCleanly;
  bool half = false;      ///< a write is done by half before it fails
  std::string call;       ///< what is struck, in words: "write to a file"
  std::string also = {};  ///< what else happens, likewise: ", and what was written is lost"
  FaultDraw draw = {};
};

Fault MakeFileFault(FileFault fault);

/// In_subject of a fault of files: the same done to system calls, as `calls` has it but for its
/// trigger.
std::function<Result<SubjectFault>(const Case&, const std::string& where)> InSystemCalls(
    SubjectCalls calls);

}  // namespace shardproof
