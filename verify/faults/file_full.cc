// A disk that is really full: writes go to /dev/full, where the kernel itself fails each. What
// strikes at the seam shows how the job takes an error; this shows that a failed write becomes one.
#include "src/seam/decorators.h"
#include "verify/fault/fault.h"
#include "verify/fault/fault_descriptions.h"

namespace shardproof::faults::file_full {
namespace {

constexpr const char* kFull = "/dev/full";

class FullFiles : public FilesDecorator {
 public:
  FullFiles(std::shared_ptr<FileSystem> inner, std::shared_ptr<FaultPoint> point)
      : FilesDecorator(std::move(inner)), point_(std::move(point)) {}

  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    SP_ASSIGN(auto file, inner_->OpenForWrite(path));
    // What fails then is a write of that file, and the error names it.
    if (!point_->Strikes({path}, {.detail = kFull, .call = "open " + path, .file = path}))
      return file;
    return MakePosixFileSystem()->OpenForWrite(kFull);
  }

 private:
  const std::shared_ptr<FaultPoint> point_;
};

const FaultRegistration kRegistration{{
    .id = "file/full",
    .what = "one file that a rank writes is /dev/full, of which the kernel fails each write with "
            "ENOSPC",
    .where = kTriggerHelp,
    .example = {"0:1",
                "on rank 1, the first file that is opened to be written is /dev/full, of which the "
                "kernel fails each write"},
    .model = FaultModel::kMustAbortCleanly,
    .check = CheckTrigger,
    .arm =
        [](FaultSite site, const std::string& where) {
          site.world.files =
              std::make_shared<FullFiles>(site.world.files, site.Point("file/full", where));
        },
    .in_words = CallInWords("file that is opened to be written",
                            "is /dev/full, of which the kernel fails each write"),
    .on_any_device = true,
}};

}  // namespace
}  // namespace shardproof::faults::file_full
