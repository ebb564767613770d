#include "verify/run/files.h"

#include <algorithm>
#include <string>
#include <vector>

#include "src/seam/decorators.h"

namespace shardproof {
namespace {

constexpr uint64_t kLostBytes = 1 << 20;  // at a time

class UnsyncedFile : public OutputFile {
 public:
  explicit UnsyncedFile(std::unique_ptr<OutputFile> inner) : inner_(std::move(inner)) {}
  ~UnsyncedFile() override {
    for (const Stretch& stretch : unsynced_) Lose(stretch);
  }

  Status WriteAt(uint64_t offset, std::string_view bytes) override {
    if (!unsynced_.empty() && unsynced_.back().end == offset) unsynced_.back().end += bytes.size();
    else unsynced_.push_back({offset, offset + bytes.size()});
    return inner_->WriteAt(offset, bytes);
  }

  Status Sync() override {
    SP_TRY(inner_->Sync());
    unsynced_.clear();
    return Ok();
  }

 private:
  struct Stretch {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  void Lose(const Stretch& stretch) {
    const std::string lost(std::min(kLostBytes, stretch.end - stretch.begin), '\xff');
    for (uint64_t done = stretch.begin; done < stretch.end; done += lost.size()) {
      const uint64_t length = std::min<uint64_t>(lost.size(), stretch.end - done);
      // What cannot be written is not there either.
      (void)inner_->WriteAt(done, std::string_view(lost).substr(0, length));
    }
  }

  std::unique_ptr<OutputFile> inner_;
  std::vector<Stretch> unsynced_;
};

class LossyFiles : public FilesDecorator {
 public:
  using FilesDecorator::FilesDecorator;
  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    SP_ASSIGN(auto file, inner_->OpenForWrite(path));
    return std::unique_ptr<OutputFile>(std::make_unique<UnsyncedFile>(std::move(file)));
  }
};

}  // namespace

std::shared_ptr<FileSystem> LoseUnsynced(std::shared_ptr<FileSystem> inner) {
  return std::make_shared<LossyFiles>(std::move(inner));
}

}  // namespace shardproof
