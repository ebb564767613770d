// The disk is full while a checkpoint is being saved.
#include <atomic>

#include <fmt/format.h>

#include "src/seam/decorators.h"
#include "verify/faults/fault.h"

namespace shardproof {
namespace {

/// Fails the n-th write of this rank and every one after it.
class FullDisk : public FilesDecorator {
 public:
  FullDisk(std::shared_ptr<FileSystem> inner, int64_t first_call,
           std::function<void(const std::string&)> log)
      : FilesDecorator(std::move(inner)), left_(first_call), log_(std::move(log)) {}

  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    SP_ASSIGN(auto file, inner_->OpenForWrite(path));
    return std::unique_ptr<OutputFile>(std::make_unique<File>(std::move(file), path, *this));
  }

 private:
  class File : public OutputFile {
   public:
    File(std::unique_ptr<OutputFile> inner, std::string path, FullDisk& disk)
        : inner_(std::move(inner)), path_(std::move(path)), disk_(disk) {}
    Status WriteAt(uint64_t offset, std::string_view bytes) override {
      if (disk_.left_-- > 0) return inner_->WriteAt(offset, bytes);
      disk_.log_(fmt::format("write of {} bytes at offset {} refused", bytes.size(), offset));
      return Failed(fmt::format("writing {} bytes at offset {} of {}: No space left on device",
                                bytes.size(), offset, path_));
    }
    Status Sync() override { return inner_->Sync(); }

   private:
    std::unique_ptr<OutputFile> inner_;
    std::string path_;
    FullDisk& disk_;
  };

  std::atomic<int64_t> left_;
  std::function<void(const std::string&)> log_;
};

struct Target {
  int64_t call = 0;
  int64_t rank = 0;
};

Result<Target> TargetOf(const Case& test_case, const std::string& where) {
  SP_ASSIGN(const auto split, SplitRank(test_case, where));
  SP_ASSIGN(const int64_t call, ParseIndex(split.what, int64_t{1} << 32, "the write's number"));
  return Target{call, split.rank};
}

const FaultRegistration kRegistration{{
    .id = "file/enospc",
    .what = "one rank finds the disk full from its n-th write on",
    .where = "N, or N:RANK (else the last rank), counted from 0: 0, 3:1",
    .model = FaultModel::kMustAbortCleanly,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>&,
                const std::string& where) -> Status {
      SP_TRY(TargetOf(test_case, where));
      return Ok();
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          const Target target = TargetOf(site.test_case, where).value();
          if (site.world.rank() != target.rank) return;
          site.world.files =
              std::make_shared<FullDisk>(site.world.files, target.call, site.log);
        },
}};

}  // namespace
}  // namespace shardproof
