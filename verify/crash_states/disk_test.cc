#include "verify/crash_states/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "verify/crash_states/fixture_operations.h"
#include "verify/process/scratch_directory.h"

namespace shardproof::crash {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string ErrorOf(const Disk& disk, const FileOperation& operation) {
  const auto change = disk.Resolve(operation);
  return change.ok() ? "" : change.error().message;
}

// A content is compared with the plain string that it stands for.
RC_GTEST_PROP(FileContent, IsTheStringThatWasWritten, ()) {
  FileContent content;
  std::string plain;
  for (int step = 0; step < 12; ++step) {
    if (*rc::gen::inRange(0, 4) == 0) {
      const int64_t size = *rc::gen::inRange(0, 40);
      content.Resize(size);
      plain.resize(size, '\0');
      continue;
    }
    const auto bytes = std::make_shared<const std::string>(*rc::gen::string<std::string>());
    const int64_t size = static_cast<int64_t>(bytes->size());
    const int64_t from = *rc::gen::inRange<int64_t>(0, size + 1);
    const int64_t to = *rc::gen::inRange<int64_t>(from, size + 1);
    const int64_t offset = *rc::gen::inRange(0, 40);
    content.Write(offset, bytes, from, to);
    if (from == to) continue;
    if (static_cast<int64_t>(plain.size()) < offset + to - from)
      plain.resize(offset + to - from, '\0');
    plain.replace(offset, to - from, bytes->substr(from, to - from));
  }
  RC_ASSERT(content.Text() == plain);
  FileContent whole;
  whole.Write(0, std::make_shared<const std::string>(plain), 0, plain.size());
  RC_ASSERT(content == whole);
  RC_ASSERT(content.Hash() == whole.Hash());
  if (plain.empty()) return;
  plain[*rc::gen::inRange<size_t>(0, plain.size())] ^= 1;
  FileContent other;
  other.Write(0, std::make_shared<const std::string>(plain), 0, plain.size());
  RC_ASSERT(!(content == other));
  RC_ASSERT(content.Hash() != other.Hash());
}

TEST(FileContent, TellsHolesFromZerosOnlyByWhatIsWritten) {
  FileContent content;
  content.Resize(8);
  content.Write(2, std::make_shared<const std::string>(3, '\0'), 0, 3);
  EXPECT_TRUE(content.IsWritten(2, 5));
  EXPECT_FALSE(content.IsWritten(1, 5));
  EXPECT_FALSE(content.IsWritten(4, 6));
  FileContent zeros;
  zeros.Resize(8);
  EXPECT_EQ(content, zeros);
  EXPECT_EQ(content.Hash(), zeros.Hash());
}

TEST(FileContent, AHoleCostsNothing) {
  FileContent content;
  content.Resize(int64_t{1} << 60);
  FileContent other = content;
  EXPECT_EQ(content, other);
  EXPECT_EQ(content.Hash(), other.Hash());
  other.Write(int64_t{1} << 59, std::make_shared<const std::string>("x"), 0, 1);
  EXPECT_FALSE(content == other);
  EXPECT_NE(content.Hash(), other.Hash());
}

TEST(Disk, DoesWhatTheCallsDo) {
  Disk disk = DiskOf({MakeDirectory("d"), Create("d/a"), Write("d/a", 0, "hello"),
                      Write("./d//a", 7, "x"), Create("b", 2), Truncate("d/a", 3)});
  EXPECT_EQ(disk.Text(), "b: \\0\\0\nd/\nd/a: hel\n");
  ASSERT_TRUE(disk.Apply(Rename("b", "d/a")).ok());
  EXPECT_EQ(disk.Text(), "d/\nd/a: \\0\\0\n");
  ASSERT_TRUE(disk.Apply(MakeDirectory("e")).ok());
  ASSERT_TRUE(disk.Apply(Exchange("d", "e")).ok());
  EXPECT_EQ(disk.Text(), "d/\ne/\ne/a: \\0\\0\n");
  ASSERT_TRUE(disk.Apply(Rename("e", "d")).ok()) << "an empty directory is replaced";
  ASSERT_TRUE(disk.Apply(Unlink("d/a")).ok());
  ASSERT_TRUE(disk.Apply(RemoveDirectory("d")).ok());
  EXPECT_EQ(disk, Disk());
}

TEST(Disk, RefusesWhatAFileSystemRefuses) {
  const Disk disk = DiskOf({MakeDirectory("d"), Create("d/a"), Create("b"), MakeDirectory("e")});
  EXPECT_THAT(ErrorOf(disk, Create("b")), HasSubstr("'b': expected nothing yet, found a file"));
  EXPECT_THAT(ErrorOf(disk, Create("x/b")), HasSubstr("expected 'x' to be a directory"));
  EXPECT_THAT(ErrorOf(disk, Create("")), HasSubstr("a name below"));
  EXPECT_THAT(ErrorOf(disk, Create("d/../x")), HasSubstr("without '..'"));
  EXPECT_THAT(ErrorOf(disk, Write("x", 0, "1")), HasSubstr("expected a file, found nothing"));
  EXPECT_THAT(ErrorOf(disk, Write("b", -1, "1")), HasSubstr("that a file can have"));
  EXPECT_THAT(ErrorOf(disk, Write("b", INT64_MAX, "1")), HasSubstr("that a file can have"));
  EXPECT_THAT(ErrorOf(disk, SyncFile("e")), HasSubstr("found an empty directory"));
  EXPECT_THAT(ErrorOf(disk, SyncDirectory("b")), HasSubstr("expected a directory, found a file"));
  EXPECT_THAT(ErrorOf(disk, RemoveDirectory("d")), HasSubstr("that is not empty"));
  EXPECT_THAT(ErrorOf(disk, Unlink("d")), HasSubstr("expected a file"));
  EXPECT_THAT(ErrorOf(disk, Rename("x", "y")), HasSubstr("'x'"));
  EXPECT_THAT(ErrorOf(disk, Rename("e", "d")), HasSubstr("'d': expected nothing, or an empty"));
  EXPECT_THAT(ErrorOf(disk, Rename("b", "d")), HasSubstr("nothing, or a file"));
  EXPECT_THAT(ErrorOf(disk, Rename("d", "d/x")), HasSubstr("not below the other"));
  EXPECT_THAT(ErrorOf(disk, Exchange("b", "x")), HasSubstr("'x': expected a file or directory"));
  EXPECT_THAT(ErrorOf(disk, Exchange("d/a", "d")), HasSubstr("not below the other"));
  FileOperation named = Create("b");
  named.sequence = 7;
  named.rank = 3;
  EXPECT_THAT(ErrorOf(disk, named), HasSubstr("operation 7 of rank 3, create of b"));
}

TEST(Disk, CopiesAreIndependent) {
  const Disk disk = DiskOf({Create("a"), Write("a", 0, "12")});
  Disk copy = disk;
  ASSERT_TRUE(copy.Apply(Write("a", 0, "3")).ok());
  ASSERT_TRUE(copy.Apply(Create("b")).ok());
  EXPECT_EQ(disk.Text(), "a: 12\n");
  EXPECT_EQ(copy.Text(), "a: 32\nb: \n");
}

TEST(Disk, EqualWhateverTheHistory) {
  const Disk a = DiskOf({Create("x"), Write("x", 0, "12"), Create("y"), Rename("y", "z")});
  const Disk b = DiskOf({Create("z"), Create("x", 2), Write("x", 1, "2"), Write("x", 0, "1")});
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.Hash(), b.Hash());
  const Disk c = DiskOf({MakeDirectory("z"), Create("x"), Write("x", 0, "12")});
  EXPECT_FALSE(a == c);
  EXPECT_NE(a.Hash(), c.Hash());
}

TEST(Disk, IsWrittenAndReadBack) {
  const auto scratch = ScratchDirectory::Make();
  ASSERT_TRUE(scratch.ok());
  Disk disk = DiskOf({MakeDirectory("d"), MakeDirectory("d/e"), Create("d/a", 10000),
                      Write("d/a", 5000, "middle"), Create("b")});
  ASSERT_TRUE(disk.WriteTo(scratch.value()->path()).ok());
  const auto read = Disk::Read(scratch.value()->path());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value(), disk);
  const Status again = disk.WriteTo(scratch.value()->path());
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, HasSubstr("/b: File exists"));
}

TEST(Disk, ReadsNoDevicesAndNotWhatIsNotThere) {
  const auto scratch = ScratchDirectory::Make();
  ASSERT_TRUE(scratch.ok());
  const std::string& path = scratch.value()->path();
  EXPECT_EQ(Disk::Read(path + "/x").error().code, ErrorCode::kBadInput);
  ASSERT_EQ(::mkfifo((path + "/other").c_str(), 0600), 0);
  const auto read = Disk::Read(path);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(read.error().message, HasSubstr("/other"));
}

TEST(Disk, AFileOfTwoNamesIsOneUntilItIsWrittenOut) {
  const auto scratch = ScratchDirectory::Make();
  ASSERT_TRUE(scratch.ok());
  const std::string& path = scratch.value()->path();
  std::ofstream(path + "/file") << "1";
  ASSERT_EQ(::link((path + "/file").c_str(), (path + "/other").c_str()), 0);
  auto read = Disk::Read(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  Disk& disk = read.value();
  EXPECT_EQ(disk.Find("file"), disk.Find("other"));
  ASSERT_TRUE(disk.Apply(Write("file", 0, "2")).ok());
  ASSERT_TRUE(disk.Apply(Link("other", "third")).ok());
  ASSERT_TRUE(disk.Apply(Unlink("file")).ok());
  EXPECT_EQ(disk.Text(), "other: 2\nthird: 2\n");
  EXPECT_THAT(disk.Apply(Link("third", "other")).error().message, HasSubstr("nothing yet"));
  EXPECT_THAT(disk.Apply(Link("gone", "new")).error().message, HasSubstr("'gone'"));
}

TEST(Disk, ALinkLeadsToTheSameInACopyElsewhere) {
  const auto from = ScratchDirectory::Make();
  const auto to = ScratchDirectory::Make();
  ASSERT_TRUE(from.ok() && to.ok());
  const fs::path path = from.value()->path();
  fs::create_directories(path / "a/b");
  std::ofstream(path / "a/step-1") << "one";
  fs::create_symlink("step-1", path / "a/beside");
  fs::create_symlink("../step-1", path / "a/b/above");
  fs::create_symlink(path / "a/step-1", path / "a/b/absolute");
  fs::create_symlink(path, path / "a/root");
  fs::create_symlink("/nowhere/else", path / "outside");
  fs::create_symlink("gone", path / "dangling");
  const auto read = Disk::Read(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read.value().Text(),
            "a/\na/b/\na/b/above -> ../step-1\na/b/absolute -> ROOT/a/step-1\n"
            "a/beside -> step-1\na/root -> ROOT/\na/step-1: one\ndangling -> gone\n"
            "outside -> /nowhere/else\n");
  ASSERT_TRUE(read.value().WriteTo(to.value()->path()).ok());
  const fs::path copy = to.value()->path();
  fs::remove_all(path / "a");
  for (const char* link : {"a/beside", "a/b/above", "a/b/absolute", "a/root/a/step-1"}) {
    std::ifstream file(copy / link);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "one") << link;
  }
  EXPECT_EQ(fs::read_symlink(copy / "outside"), "/nowhere/else");
  fs::create_symlink("../../x", copy / "a/out");
  EXPECT_THAT(Disk::Read(copy).error().message, HasSubstr("a/out: expected a link that stays"));
}

TEST(Disk, ALinkIsNeitherWrittenNorTheFileOfTheSameText) {
  Disk link = DiskOf({Symlink("a", "b")});
  EXPECT_THAT(link.Apply(Write("a", 0, "x")).error().message,
              HasSubstr("expected a file, found a symbolic link"));
  EXPECT_THAT(link.Apply(Symlink("a", "c")).error().message, HasSubstr("nothing yet"));
  const Disk file = DiskOf({Create("a"), Write("a", 0, "b")});
  EXPECT_FALSE(link == file);
  EXPECT_NE(link.Hash(), file.Hash());
  EXPECT_FALSE(link == DiskOf({Symlink("a", "c")}));
  EXPECT_NE(link.Hash(), DiskOf({Symlink("a", "c")}).Hash());
  ASSERT_TRUE(link.Apply(Create("t")).ok());
  ASSERT_TRUE(link.Apply(Rename("t", "a")).ok());
  EXPECT_EQ(link.Text(), "a: \n");
}

}  // namespace
}  // namespace shardproof::crash
