#include "verify/decorators/confined_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "verify/process/scratch_directory.h"

namespace shardproof {
namespace {

class ConfinedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = ScratchDirectory::Make();
    ASSERT_TRUE(made.ok());
    scratch_ = std::move(made).value();
    files_ = ConfineTo(MakePosixFileSystem(), At("saved"));
  }
  std::string At(const std::string& name) const { return scratch_->path() + "/" + name; }

  std::unique_ptr<ScratchDirectory> scratch_;
  std::shared_ptr<FileSystem> files_;
};

TEST_F(ConfinedTest, WhatIsSavedAndItsDraftsAreMadeAndRenamed) {
  EXPECT_TRUE(files_->MakeDirectory(At("saved.saving")).ok());
  EXPECT_TRUE(files_->Create(At("saved.saving/model"), 3).ok());
  EXPECT_TRUE(files_->Rename(At("saved.saving"), At("saved")).ok());
  EXPECT_TRUE(files_->SyncDirectory(scratch_->path()).ok());
}

TEST_F(ConfinedTest, NothingElseIsMadeChangedOrRemoved) {
  ASSERT_TRUE(MakePosixFileSystem()->Create(At("other"), 3).ok());
  for (const Status& refused :
       {files_->Create(At("another"), 1), files_->MakeDirectory(At("save")),
        files_->RemoveTree(At("other")), files_->Rename(At("other"), At("saved")),
        files_->Create(At("saved/../another"), 1)}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message,
                ::testing::HasSubstr("changes nothing but " + At("saved")));
  }
  EXPECT_FALSE(files_->OpenForWrite(At("other")).ok());
  EXPECT_TRUE(std::filesystem::exists(At("other")));
  EXPECT_FALSE(std::filesystem::exists(At("another")));
}

}  // namespace
}  // namespace shardproof
