// A shared file system that is late: on one rank a file is not there yet.
#include "src/seam/decorators.h"
#include "verify/fault/fault.h"
#include "verify/fault/fault_descriptions.h"

namespace shardproof::faults::file_stale {
namespace {

/// Asks of each look-up that finds something whether it is one that comes too early: for a file,
/// which is then not there yet, or of a directory, which then lacks its last name.
class LateFiles : public FilesDecorator {
 public:
  LateFiles(std::shared_ptr<FileSystem> inner, std::shared_ptr<FaultPoint> point)
      : FilesDecorator(std::move(inner)), point_(std::move(point)) {}

  bool Exists(const std::string& path) override {
    if (!inner_->Exists(path)) return false;
    const std::string call = "look for " + path;
    return !point_->Strikes({path}, {.detail = call + ": not there yet", .call = call});
  }

  Result<std::vector<std::string>> List(const std::string& directory) override {
    auto names = inner_->List(directory);
    if (!names.ok() || names.value().empty()) return names;
    const std::string call = "list " + directory;
    const std::string detail = call + ": " + names.value().back() + " is not there yet";
    if (point_->Strikes({directory}, {.detail = detail, .call = call})) names.value().pop_back();
    return names;
  }

 private:
  const std::shared_ptr<FaultPoint> point_;
};

const FaultRegistration kRegistration{{
    .id = "file/stale",
    .what = "one look-up by a rank does not find a file that is there, or a listing lacks its last "
            "name, as where a shared file system is late on its machine",
    .where = kTriggerHelp,
    .example = {"0:1",
                "on rank 1, the first look-up of a file that is there, or listing of a directory, "
                "misses a name, as if the file were late"},
    // Whoever does not find what it can go without goes on.
    .model = FaultModel::kMustEndInTime,
    .check = CheckTrigger,
    .arm =
        [](FaultSite site, const std::string& where) {
          site.world.files =
              std::make_shared<LateFiles>(site.world.files, site.Point("file/stale", where));
        },
    .in_words = CallInWords("look-up of a file that is there, or listing of a directory,",
                            "misses a name, as if the file were late"),
    .draw = {.anywhere = FaultDraw::Anywhere::kCall, .place = 19},
}};

}  // namespace
}  // namespace shardproof::faults::file_stale
