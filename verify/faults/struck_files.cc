#include "verify/faults/struck_files.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "src/seam/decorators.h"
#include "verify/faults/point.h"
#include "verify/faults/words.h"

namespace shardproof {
namespace {

class AskedFile : public OutputFile {
 public:
  AskedFile(std::unique_ptr<OutputFile> inner, std::string path, BeforeCall before)
      : inner_(std::move(inner)), path_(std::move(path)), before_(std::move(before)) {}
  Status WriteAt(uint64_t offset, std::string_view bytes) override {
    SP_TRY(before_(
        {.op = FileOp::kWrite,
         .path = path_,
         .action = fmt::format("writing {} bytes at offset {} of {}", bytes.size(), offset, path_),
         .bytes = bytes.size(),
         .offset = offset,
         .data = bytes,
         .file = inner_.get()}));
    return inner_->WriteAt(offset, bytes);
  }
  Status Sync() override {
    SP_TRY(before_(
        {.op = FileOp::kSync, .path = path_, .action = "fsync of " + path_, .file = inner_.get()}));
    return inner_->Sync();
  }

 private:
  std::unique_ptr<OutputFile> inner_;
  const std::string path_;
  const BeforeCall before_;
};

class AskedFiles : public FilesDecorator {
 public:
  AskedFiles(std::shared_ptr<FileSystem> inner, BeforeCall before)
      : FilesDecorator(std::move(inner)), before_(std::move(before)) {}

  Result<std::shared_ptr<const MappedFile>> Map(const std::string& path) override {
    SP_TRY(Ask(FileOp::kMap, path, path + ": mapping it"));
    return inner_->Map(path);
  }
  Result<std::string> ReadText(const std::string& path, uint64_t bytes_max) override {
    SP_TRY(Ask(FileOp::kRead, path, path + ": reading it"));
    return inner_->ReadText(path, bytes_max);
  }
  Status Create(const std::string& path, uint64_t size) override {
    SP_TRY(Ask(FileOp::kCreate, path, "creating " + path));
    return inner_->Create(path, size);
  }
  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    SP_TRY(Ask(FileOp::kOpen, path, fmt::format("opening {} for writing", path)));
    SP_ASSIGN(auto file, inner_->OpenForWrite(path));
    return std::unique_ptr<OutputFile>(std::make_unique<AskedFile>(std::move(file), path, before_));
  }
  Status MakeDirectory(const std::string& path) override {
    SP_TRY(Ask(FileOp::kMakeDirectory, path, "making directory " + path));
    return inner_->MakeDirectory(path);
  }
  Status SyncDirectory(const std::string& path) override {
    SP_TRY(Ask(FileOp::kSyncDirectory, path, "fsync of directory " + path));
    return inner_->SyncDirectory(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    SP_TRY(Ask(FileOp::kRename, from, fmt::format("renaming {} to {}", from, to)));
    return inner_->Rename(from, to);
  }
  Status Replace(const std::string& from, const std::string& to) override {
    SP_TRY(Ask(FileOp::kRename, from, fmt::format("renaming {} to {}", from, to)));
    return inner_->Replace(from, to);
  }
  Status Exchange(const std::string& a, const std::string& b) override {
    SP_TRY(Ask(FileOp::kRename, a, fmt::format("exchanging {} to {}", a, b)));
    return inner_->Exchange(a, b);
  }
  Status RemoveTree(const std::string& path) override {
    if (inner_->Exists(path)) SP_TRY(Ask(FileOp::kRemove, path, "removing " + path));
    return inner_->RemoveTree(path);
  }

 private:
  Status Ask(FileOp op, const std::string& path, std::string action) {
    return before_({.op = op, .path = path, .action = std::move(action)});
  }

  const BeforeCall before_;
};

}  // namespace

std::shared_ptr<FileSystem> AskBefore(std::shared_ptr<FileSystem> inner, BeforeCall before) {
  return std::make_shared<AskedFiles>(std::move(inner), std::move(before));
}

std::function<Result<SubjectFault>(const Case&, const std::string& where)> InSystemCalls(
    SubjectCalls calls) {
  return [calls](const Case& test_case, const std::string& where) -> Result<SubjectFault> {
    SubjectFault fault{.calls = calls};
    SP_ASSIGN(fault.calls->trigger, ParseTrigger(test_case, where));
    if (!fault.calls->trigger) return fault;
    if (!fault.calls->trigger->stage.empty()) {
      return BadInput(
          "stage=: which stage a subject works towards is not known before it is there: "
          "expected call=, rank=, what= or bytes=");
    }
    fault.rank = fault.calls->trigger->rank;
    return fault;
  };
}

Fault MakeFileFault(FileFault fault) {
  const auto arm = [fault](FaultSite site, const std::string& where) {
    const auto point = site.Point(fault.id, where, fault.from_then_on);
    site.world.files = AskBefore(site.world.files, [=](const FileCall& call) -> Status {
      if (!fault.ops.contains(call.op)) return Ok();
      const std::string why = std::strerror(fault.error_number);
      if (!point->Strikes(
              {call.path, call.bytes},
              {.detail = call.action + ": " + why, .call = call.action, .error = why})) {
        return Ok();
      }
      // Whether the half is written or not makes no difference to what must happen.
      if (fault.half) {
        (void)call.file->WriteAt(call.offset, call.data.substr(0, call.data.size() / 2));
      }
      return Failed(call.action + ": " + why);
    });
  };
  return {.id = fault.id,
          .what = fault.what,
          .where = kTriggerHelp,
          .example = fault.example,
          .model = fault.model,
          .check = CheckTrigger,
          .arm = arm,
          .in_subject = InSystemCalls({.ops = fault.ops,
                                       .error_number = fault.error_number,
                                       .from_then_on = fault.from_then_on,
                                       .half = fault.half}),
          .in_words = CallInWords(fault.call,
                                  fmt::format("{} with {}{}", fault.from_then_on ? "fail" : "fails",
                                              ErrnoInWords(fault.error_number), fault.also),
                                  fault.from_then_on),
          .draw = fault.draw};
}

}  // namespace shardproof
