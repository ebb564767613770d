// A disk that fails anywhere in a save leaves the old checkpoint or the new one, whole.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "src/checkpoint/fixture_save.h"
#include "src/seam/decorators.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;

/// A disk whose n-th changing operation fails, and, if `dead`, every one after it; a write that
/// fails leaves half of its bytes behind. Lists what it was asked to do.
class FailingFiles : public FilesDecorator {
 public:
  FailingFiles(std::shared_ptr<FileSystem> inner, size_t fail_at, bool dead)
      : FilesDecorator(std::move(inner)), fail_at_(fail_at), dead_(dead) {}

  Status Create(const std::string& path, uint64_t size) override {
    SP_TRY(Next("create"));
    return inner_->Create(path, size);
  }
  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    SP_TRY(Next("open"));
    SP_ASSIGN(auto file, inner_->OpenForWrite(path));
    return std::unique_ptr<OutputFile>(std::make_unique<File>(std::move(file), *this));
  }
  Status MakeDirectory(const std::string& path) override {
    SP_TRY(Next("mkdir"));
    return inner_->MakeDirectory(path);
  }
  Status SyncDirectory(const std::string& path) override {
    SP_TRY(Next("fsync of directory"));
    return inner_->SyncDirectory(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    SP_TRY(Next("rename"));
    return inner_->Rename(from, to);
  }
  Status Exchange(const std::string& a, const std::string& b) override {
    SP_TRY(Next("exchange"));
    return inner_->Exchange(a, b);
  }
  Status RemoveTree(const std::string& path) override {
    SP_TRY(Next("remove"));
    return inner_->RemoveTree(path);
  }

  const std::vector<std::string>& operations() const { return operations_; }

 private:
  class File : public OutputFile {
   public:
    File(std::unique_ptr<OutputFile> inner, FailingFiles& disk)
        : inner_(std::move(inner)), disk_(disk) {}
    Status WriteAt(uint64_t offset, std::string_view bytes) override {
      if (Status next = disk_.Next("write"); !next.ok()) {
        (void)inner_->WriteAt(offset, bytes.substr(0, bytes.size() / 2));
        return next;
      }
      return inner_->WriteAt(offset, bytes);
    }
    Status Sync() override {
      SP_TRY(disk_.Next("fsync"));
      return inner_->Sync();
    }

   private:
    std::unique_ptr<OutputFile> inner_;
    FailingFiles& disk_;
  };

  Status Next(const std::string& operation) {
    operations_.push_back(operation);
    const size_t index = operations_.size() - 1;
    if (index == fail_at_ || (dead_ && index > fail_at_)) {
      return Failed(operation + ": Input/output error");
    }
    return Ok();
  }

  size_t fail_at_;
  bool dead_;
  std::vector<std::string> operations_;
};

TEST_F(SaveModelTest, AFailureAnywhereLeavesTheOldCheckpointOrTheNewOneWhole) {
  size_t operations = 0;
  std::set<std::string> failed;
  for (const bool dead : {false, true}) {
    for (size_t n = 0;; ++n) {
      world_.files = MakePosixFileSystem();
      fs::remove_all(job_.save_to);
      ASSERT_TRUE(SaveSeed(1).ok());
      const auto before = Contents(job_.save_to);

      const auto disk = std::make_shared<FailingFiles>(MakePosixFileSystem(), n, dead);
      world_.files = disk;
      const Status saved = SaveSeed(2);
      operations = disk->operations().size();
      if (n >= operations) {
        EXPECT_TRUE(saved.ok()) << saved.error().message;
        break;
      }
      const std::string& operation = disk->operations()[n];
      SCOPED_TRACE(fmt::format("operation {}, {}, fails{}", n, operation, dead ? " for good" : ""));
      failed.insert(operation);
      const auto first = disk->operations().begin();
      const bool committed = std::find(first, first + static_cast<ptrdiff_t>(n), "exchange") !=
                             first + static_cast<ptrdiff_t>(n);
      EXPECT_FALSE(saved.ok());
      if (committed) {
        EXPECT_TRUE(Holds(job_.save_to, 2));
      } else {
        EXPECT_EQ(Contents(job_.save_to), before);
        EXPECT_TRUE(Holds(job_.save_to, 1));
      }
      // Once the disk is well again, a save must succeed and leave nothing else behind.
      world_.files = MakePosixFileSystem();
      ASSERT_TRUE(SaveSeed(3).ok());
      EXPECT_TRUE(Holds(job_.save_to, 3));
      EXPECT_EQ(Contents(root_).size(), 1u + 6u);
    }
  }
  EXPECT_GE(operations, 20u);
  for (const char* operation :
       {"create", "open", "mkdir", "write", "fsync", "fsync of directory", "exchange", "remove"}) {
    EXPECT_TRUE(failed.contains(operation)) << operation;
  }
}

TEST_F(SaveModelTest, AFailureOfTheFirstSaveLeavesNothingUnderTheName) {
  for (size_t n = 0;; ++n) {
    fs::remove_all(job_.save_to);
    const auto disk = std::make_shared<FailingFiles>(MakePosixFileSystem(), n, false);
    world_.files = disk;
    const Status saved = SaveSeed(1);
    if (n >= disk->operations().size()) {
      EXPECT_TRUE(saved.ok());
      EXPECT_TRUE(Holds(job_.save_to, 1));
      break;
    }
    SCOPED_TRACE(fmt::format("operation {}, {}, fails", n, disk->operations()[n]));
    EXPECT_FALSE(saved.ok());
    const auto& done = disk->operations();
    const auto renamed = std::find(done.begin(), done.end(), "rename");
    if (renamed != done.end() && renamed < done.begin() + static_cast<ptrdiff_t>(n)) {
      EXPECT_TRUE(Holds(job_.save_to, 1));
    } else {
      EXPECT_FALSE(fs::exists(job_.save_to));
    }
  }
}

}  // namespace
}  // namespace shardproof
