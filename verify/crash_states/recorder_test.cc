#include "verify/crash_states/recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "verify/crash_states/disk.h"
#include "verify/process/scratch_directory.h"

namespace {

/// Last parts of the paths that were removed, in this program.
std::vector<std::string> removed;

}  // namespace

// In the place of the C library's: nothing but the calls tell in which order remove_all does them.
extern "C" int unlinkat(int directory, const char* path, int flags) noexcept {
  const int result = static_cast<int>(::syscall(SYS_unlinkat, directory, path, flags));
  if (result == 0) removed.push_back(std::filesystem::path(path).filename().string());
  return result;
}

namespace shardproof::crash {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The seam by the standard library: the real one belongs to a module that needs LibTorch.
class PlainFile : public OutputFile {
 public:
  PlainFile(const std::string& path, const bool& fails) : fails_(fails) {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  }
  ~PlainFile() override { ::close(fd_); }
  Status WriteAt(uint64_t offset, std::string_view bytes) override {
    if (fails_) return Failed("disk full");
    const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count != static_cast<ssize_t>(bytes.size())) return Failed("short write");
    return Ok();
  }
  Status Sync() override {
    if (fails_) return Failed("fsync: Input/output error");
    return Ok();
  }

 private:
  int fd_ = -1;
  const bool& fails_;
};

class PlainFiles : public FileSystem {
 public:
  bool fails = false;

  Result<std::shared_ptr<const MappedFile>> Map(const std::string&) override {
    return Failed("not here");
  }
  Result<std::string> ReadText(const std::string&, uint64_t) override {
    return std::string("text");
  }
  bool Exists(const std::string& path) override { return std::filesystem::exists(path); }
  Result<std::vector<std::string>> List(const std::string&) override {
    return std::vector<std::string>{"listed"};
  }
  Status Create(const std::string& path, uint64_t size) override {
    if (fails) return Failed("disk full");
    std::ofstream file(path);
    std::filesystem::resize_file(path, size);
    return Ok();
  }
  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    if (!Exists(path)) return Failed("no such file");
    return std::unique_ptr<OutputFile>(std::make_unique<PlainFile>(path, fails));
  }
  Status MakeDirectory(const std::string& path) override {
    return Told(std::filesystem::create_directory(path));
  }
  Status SyncDirectory(const std::string&) override { return Told(!fails); }
  Status Rename(const std::string& from, const std::string& to) override {
    return Told(::rename(from.c_str(), to.c_str()) == 0);
  }
  Status Replace(const std::string& from, const std::string& to) override {
    return Rename(from, to);
  }
  Status Exchange(const std::string& a, const std::string& b) override {
    return Told(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0);
  }
  Status RemoveTree(const std::string& path) override {
    if (fails) return Told(!std::filesystem::remove(path + "/1"));
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return Told(!error);
  }

 private:
  static Status Told(bool ok) {
    if (!ok) return Failed("failed");
    return Ok();
  }
};

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest()
      : scratch_(ScratchDirectory::Make().value()),
        root_(scratch_->path() + "/root"),
        plain_(std::make_shared<PlainFiles>()) {
    std::filesystem::create_directory(root_);
    recording_ = std::make_shared<Recording>(root_);
    files_ = RecordFiles(plain_, 0, recording_);
  }

  std::vector<FileOperation> Recorded() const {
    const auto operations = recording_->Operations();
    EXPECT_TRUE(operations.ok()) << (operations.ok() ? "" : operations.error().message);
    return operations.ok() ? operations.value() : std::vector<FileOperation>();
  }
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    for (const FileOperation& operation : Recorded()) lines.push_back(Describe(operation));
    return lines;
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  /// That what was recorded makes of what was there before what is there now.
  void ExpectComplete(const Disk& before) const {
    Disk disk = before;
    for (const FileOperation& operation : Recorded()) {
      const Status done = disk.Apply(operation);
      ASSERT_TRUE(done.ok()) << done.error().message;
    }
    const auto now = Disk::Read(root_);
    ASSERT_TRUE(now.ok());
    EXPECT_EQ(disk.Text(), now.value().Text());
    EXPECT_EQ(disk, now.value());
  }

  std::unique_ptr<ScratchDirectory> scratch_;
  std::string root_;
  std::shared_ptr<PlainFiles> plain_;
  std::shared_ptr<Recording> recording_;
  std::shared_ptr<FileSystem> files_;
};

TEST_F(RecorderTest, RecordsWhatASaveDoes) {
  const auto second = RecordFiles(plain_, 1, recording_);
  ASSERT_TRUE(files_->MakeDirectory(Path("new.saving")).ok());
  ASSERT_TRUE(files_->Create(Path("new.saving/a"), 10).ok());
  ASSERT_TRUE(files_->Create(Path("new.saving/b"), 0).ok());
  {
    const auto file = second->OpenForWrite(Path("./new.saving//a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file.value()->WriteAt(4, "four").ok());
    ASSERT_TRUE(file.value()->Sync().ok());
  }
  ASSERT_TRUE(files_->SyncDirectory(Path("new.saving/")).ok());
  ASSERT_TRUE(files_->Rename(Path("new.saving"), Path("new")).ok());
  ASSERT_TRUE(files_->SyncDirectory(root_).ok());
  ASSERT_TRUE(files_->Exchange(Path("new/a"), Path("new/b")).ok());
  EXPECT_THAT(Lines(), ElementsAre("mkdir of new.saving", "create of new.saving/a",
                                   "truncate of new.saving/a to 10 bytes", "create of new.saving/b",
                                   "write of bytes [4, 8) of new.saving/a", "sync of new.saving/a",
                                   "sync of new.saving", "rename of new.saving to new", "sync of .",
                                   "exchange of new/a and new/b"));
  const std::vector<FileOperation> operations = Recorded();
  for (size_t i = 0; i < operations.size(); ++i) {
    EXPECT_EQ(operations[i].sequence, static_cast<int64_t>(i));
    EXPECT_EQ(operations[i].rank, i == 4 || i == 5 ? 1 : 0);
  }
  ExpectComplete(Disk());
}

TEST_F(RecorderTest, PassesReadsOn) {
  EXPECT_EQ(files_->ReadText("x", 1).value(), "text");
  EXPECT_THAT(files_->List("x").value(), ElementsAre("listed"));
  EXPECT_FALSE(files_->Exists(Path("x")));
  EXPECT_FALSE(files_->Map("x").ok());
  EXPECT_THAT(Recorded(), IsEmpty());
}

TEST_F(RecorderTest, RecordsNothingThatFailed) {
  ASSERT_TRUE(files_->Create(Path("a"), 0).ok());
  const auto file = files_->OpenForWrite(Path("a"));
  ASSERT_TRUE(file.ok());
  plain_->fails = true;
  EXPECT_FALSE(files_->Create(Path("b"), 0).ok());
  EXPECT_FALSE(files_->Rename(Path("x"), Path("y")).ok());
  EXPECT_FALSE(files_->SyncDirectory(root_).ok());
  EXPECT_FALSE(files_->OpenForWrite(Path("x")).ok());
  EXPECT_FALSE(file.value()->WriteAt(0, "x").ok());
  EXPECT_FALSE(file.value()->Sync().ok());
  plain_->fails = false;
  // The kernel says once that it could not write a page, and nothing at the next sync.
  EXPECT_TRUE(file.value()->Sync().ok());
  EXPECT_THAT(Lines(), ElementsAre("create of a"));
}

TEST_F(RecorderTest, RemovesATreeOneByOneInTheRealOrder) {
  for (const char* path : {"t", "t/d", "t/d/e", "t/c"}) {
    std::filesystem::create_directory(Path(path));
  }
  for (const char* path : {"t/1", "t/2", "t/3", "t/d/4", "t/d/5", "t/d/e/6", "t/c/7", "8"}) {
    std::ofstream(Path(path)) << path;
  }
  const auto before = Disk::Read(root_);
  ASSERT_TRUE(before.ok());
  removed.clear();
  ASSERT_TRUE(files_->RemoveTree(Path("t")).ok());
  std::vector<std::string> recorded;
  for (const FileOperation& operation : Recorded()) {
    recorded.push_back(std::filesystem::path(operation.path).filename().string());
  }
  EXPECT_EQ(recorded.size(), 11u);
  removed.push_back("t");  // by a call that cannot be replaced
  EXPECT_EQ(recorded, removed);
  ExpectComplete(before.value());
  ASSERT_TRUE(files_->RemoveTree(Path("absent")).ok());
  EXPECT_EQ(Recorded().size(), 11u);
}

TEST_F(RecorderTest, OfARemovalThatFailsRecordsWhatIsGone) {
  std::filesystem::create_directory(Path("t"));
  for (const char* path : {"t/1", "t/2"}) std::ofstream(Path(path)) << path;
  plain_->fails = true;
  EXPECT_FALSE(files_->RemoveTree(Path("t")).ok());
  EXPECT_THAT(Lines(), ElementsAre("unlink of t/1"));
}

TEST_F(RecorderTest, AnOpenFileIsFollowedWhenItIsMoved) {
  ASSERT_TRUE(files_->MakeDirectory(Path("d")).ok());
  ASSERT_TRUE(files_->MakeDirectory(Path("e")).ok());
  ASSERT_TRUE(files_->Create(Path("d/a"), 0).ok());
  const auto file = files_->OpenForWrite(Path("d/a"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(files_->Rename(Path("d"), Path("f")).ok());
  ASSERT_TRUE(file.value()->WriteAt(0, "1").ok());
  ASSERT_TRUE(files_->Exchange(Path("e"), Path("f")).ok());
  ASSERT_TRUE(file.value()->WriteAt(1, "2").ok());
  ExpectComplete(Disk());
  ASSERT_TRUE(files_->RemoveTree(Path("e")).ok());
  const size_t count = Recorded().size();
  ASSERT_TRUE(file.value()->WriteAt(2, "3").ok());
  ASSERT_TRUE(file.value()->Sync().ok());
  EXPECT_EQ(Recorded().size(), count);
  ExpectComplete(Disk());
}

TEST_F(RecorderTest, AReplacementIsARename) {
  ASSERT_TRUE(files_->Create(Path("a"), 0).ok());
  ASSERT_TRUE(files_->Create(Path("b"), 0).ok());
  ASSERT_TRUE(files_->Replace(Path("a"), Path("b")).ok());
  EXPECT_FALSE(files_->Replace(Path("a"), Path("b")).ok());
  EXPECT_THAT(Lines(), ElementsAre("create of a", "create of b", "rename of a to b"));
  ExpectComplete(Disk());
}

TEST_F(RecorderTest, LooksAtItsDirectoryAlone) {
  const std::string outside = scratch_->path() + "/outside";
  ASSERT_TRUE(files_->Create(outside, 0).ok());
  ASSERT_TRUE(files_->SyncDirectory(scratch_->path()).ok());
  EXPECT_THAT(Recorded(), IsEmpty());
  ASSERT_TRUE(files_->Rename(outside, Path("a")).ok());
  const auto operations = recording_->Operations();
  ASSERT_FALSE(operations.ok());
  EXPECT_EQ(operations.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(operations.error().message, HasSubstr("outside"));
}

TEST_F(RecorderTest, RanksAtOnceGiveALegalOrder) {
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto files = RecordFiles(plain_, rank, recording_);
      for (int i = 0; i < 50; ++i) {
        const std::string name = Path(std::to_string(rank) + "." + std::to_string(i));
        EXPECT_TRUE(files->Create(name + ".tmp", 8).ok());
        const auto file = files->OpenForWrite(name + ".tmp");
        EXPECT_TRUE(file.ok() && file.value()->WriteAt(0, name).ok() && file.value()->Sync().ok());
        EXPECT_TRUE(files->Rename(name + ".tmp", name).ok());
        // All ranks to one name: who was last is the order of the recording.
        EXPECT_TRUE(files->Rename(name, Path("shared")).ok());
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(Recorded().size(), 4u * 50u * 6u);
  ExpectComplete(Disk());
}

}  // namespace
}  // namespace shardproof::crash
