// The parts of the engine that stand alone: plan, devices, page counts, orders of ids.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "src/aten/dtype.h"
#include "verify/decorators/devices.h"
#include "verify/decorators/files.h"
#include "verify/plan/plan.h"
#include "verify/rank/pages.h"
#include "verify/registry/registry.h"

namespace shardproof {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(const std::vector<PhasePlan>& phases) {
  std::vector<std::string> names;
  for (const PhasePlan& phase : phases) names.emplace_back(phase.name());
  return names;
}

Case SmallCase() {
  Case test_case;
  test_case.mesh = {{"dp_shard", 4}};
  test_case.resume_mesh = {{"dp_shard", 3}, {"tp", 2}};
  return test_case;
}

TEST(PlanPhases, ARunOnAnotherMeshAndItsYardstick) {
  const auto phases = PlanPhases(SmallCase());
  ASSERT_THAT(Names(phases), ElementsAre("values", "plain", "resume", "memory", "memory_plain"));
  EXPECT_EQ(phases[0].strategy, "rank0-broadcast");
  EXPECT_EQ(phases[0].WorldSize(), 4);
  EXPECT_EQ(phases[1].strategy, "plain");
  EXPECT_EQ(phases[2].WorldSize(), 6);
  EXPECT_EQ(phases[3].WorldSize(), 4);
  EXPECT_EQ(phases[2].facts().mode, RunMode::kValues);
  EXPECT_EQ(phases[3].facts().mode, RunMode::kMemory);
  EXPECT_EQ(phases[4].strategy, "plain");
  EXPECT_EQ(phases[4].WorldSize(), 4);
}

TEST(PlanPhases, FaultsStrikeOnceAndTheYardstickIsSound) {
  for (const PhasePlan& phase : PlanPhases(SmallCase())) {
    const std::string name = phase.name();
    EXPECT_EQ(phase.armed, name == "values") << name;
    EXPECT_EQ(phase.facts().is_plain, name.ends_with("plain")) << name;
    EXPECT_EQ(phase.saves, name == "values" || name == "memory") << name;
    EXPECT_EQ(std::string(NameOf(phase.facts().resumes)), name == "resume" ? "values" : "") << name;
    EXPECT_EQ(phase.facts().mode == RunMode::kMemory, name.starts_with("memory")) << name;
    EXPECT_EQ(phase.facts().only_shown, name == "memory_plain") << name;
  }
}

TEST(PlanPhases, NothingIsRunThatWasNotAskedForNorTwice) {
  Case test_case = SmallCase();
  test_case.strategy = "plain";
  test_case.resume_mesh.clear();
  EXPECT_THAT(Names(PlanPhases(test_case)), ElementsAre("values", "memory"));
  test_case.subject = "other.py";
  test_case.strategy = "rank0-broadcast";
  const std::map<std::string, std::string> cannot = {{"plain", "it has one way of loading"}};
  // Whether only rank 0 reads, the subject says (READS): a run leaves the phase out if it does not.
  EXPECT_THAT(Names(PlanPhases(test_case, cannot)), ElementsAre("values", "one_reads", "memory"));
  test_case.strategy = "plain";
  EXPECT_THAT(Names(PlanPhases(test_case)), ElementsAre("values", "one_reads", "memory"));
  test_case.mesh = {{"dp_shard", 1}};  // nobody else is there to read
  EXPECT_THAT(Names(PlanPhases(test_case)), ElementsAre("values", "memory"));
}

TEST(PoisonFresh, EveryElementOfEveryDtypeShows) {
  const auto device = PoisonFresh(MakeHostDevice());
  for (const char* name : {"F32", "BF16", "F16", "F64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "I64",
                           "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"}) {
    const at::ScalarType dtype = *DtypeFromName(name);
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {3, 5}, {0, 2}, {70000}}) {
      const auto tensor = device->Allocate(shape, dtype, "w");
      ASSERT_TRUE(tensor.ok()) << tensor.error().message;
      EXPECT_EQ(tensor.value().sizes(), at::IntArrayRef(shape));
      EXPECT_EQ(tensor.value().scalar_type(), dtype);
      const auto* bytes = static_cast<const unsigned char*>(tensor.value().const_data_ptr());
      EXPECT_TRUE(std::all_of(bytes, bytes + tensor.value().nbytes(), [](unsigned char byte) {
        return byte == 0xff;
      })) << name;
      if (at::isFloatingType(dtype) && tensor.value().numel() > 0) {
        EXPECT_TRUE(tensor.value().to(at::kFloat).isnan().all().item<bool>()) << name;
      }
    }
  }
}

TEST(LoseUnsynced, KeepsWhatWasSyncedAndNothingElse) {
  const std::string path = testing::TempDir() + "/unsynced";
  const auto files = LoseUnsynced(MakePosixFileSystem());
  ::unlink(path.c_str());
  ASSERT_TRUE(files->Create(path, 9).ok());
  {
    const auto file = files->OpenForWrite(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_TRUE(file.value()->WriteAt(0, "abcd").ok());
    ASSERT_TRUE(file.value()->Sync().ok());
    ASSERT_TRUE(file.value()->WriteAt(3, "DE").ok());
    ASSERT_TRUE(file.value()->WriteAt(5, "F").ok());
    EXPECT_EQ(files->ReadText(path, 9).value().substr(0, 6), "abcDEF");  // it is open still
  }
  EXPECT_EQ(files->ReadText(path, 9).value(), std::string("abc\xff\xff\xff\0\0\0", 9));
  ::unlink(path.c_str());
}

TEST(LoseUnsynced, TakesBackAReplacementWhoseDirectoryIsNotSynced) {
  const std::string directory = testing::TempDir() + "/replaced";
  const auto real = MakePosixFileSystem();
  const auto write = [](FileSystem& files, const std::string& path, const std::string& text) {
    ASSERT_TRUE(files.Create(path, text.size()).ok());
    const auto file = files.OpenForWrite(path);
    ASSERT_TRUE(file.ok() && file.value()->WriteAt(0, text).ok() && file.value()->Sync().ok());
  };
  for (const bool synced : {false, true}) {
    ASSERT_TRUE(real->RemoveTree(directory).ok());
    ASSERT_TRUE(real->MakeDirectory(directory).ok());
    write(*real, directory + "/a", "before");
    {
      const auto files = LoseUnsynced(real);
      for (const char* name : {"/a", "/b"}) {
        write(*files, directory + "/new", "after");
        ASSERT_TRUE(files->Replace(directory + "/new", directory + name).ok());
        EXPECT_EQ(files->ReadText(directory + name, 9).value(), "after");
      }
      if (synced) {
        ASSERT_TRUE(files->SyncDirectory(directory).ok());
      }
    }
    EXPECT_EQ(real->ReadText(directory + "/a", 9).value(), synced ? "after" : "before");
    EXPECT_EQ(real->Exists(directory + "/b"), synced);
    EXPECT_FALSE(real->Exists(directory + "/new"));
  }
  ASSERT_TRUE(real->RemoveTree(directory).ok());
}

class NoMemory : public Device {
 public:
  Result<at::Tensor> Allocate(at::IntArrayRef, at::ScalarType, const std::string&) override {
    return Failed("no memory");
  }
};

TEST(PoisonFresh, PassesAFailureOn) {
  EXPECT_THAT(
      PoisonFresh(std::make_shared<NoMemory>())->Allocate({1}, at::kFloat, "w").error().message,
      HasSubstr("no memory"));
  EXPECT_FALSE(
      WatchReleases(std::make_shared<NoMemory>(), [] {})->Allocate({1}, at::kFloat, "w").ok());
}

TEST(HostDevice, NamesWhatItCannotAllocate) {
  const auto tensor = MakeHostDevice()->Allocate({int64_t{1} << 50}, at::kDouble, "lm_head.weight");
  ASSERT_FALSE(tensor.ok());
  EXPECT_EQ(tensor.error().code, ErrorCode::kFailed);
  EXPECT_THAT(tensor.error().message, HasSubstr("F64 [1125899906842624] for lm_head.weight"));
}

TEST(WatchReleases, IsToldOnceBeforeTheLastHandleGoes) {
  int releases = 0;
  const float* data = nullptr;
  float last = 0;
  const auto device = WatchReleases(MakeHostDevice(), [&] {
    ++releases;
    if (data != nullptr) last = data[2];
  });
  {
    auto tensor = device->Allocate({3}, at::kFloat, "w");
    ASSERT_TRUE(tensor.ok());
    tensor.value().fill_(5);
    data = tensor.value().const_data_ptr<float>();
    const at::Tensor view = tensor.value().narrow(0, 1, 2);
    tensor = Failed("gone");
    EXPECT_EQ(releases, 0) << "a view holds it";
    EXPECT_EQ(view[0].item<float>(), 5);
  }
  EXPECT_EQ(releases, 1);
  EXPECT_EQ(last, 5) << "the memory was given back before the call";
}

/// Pages of this process's address space.
class Mapping {
 public:
  Mapping(size_t pages, int flags, int fd) : bytes_(pages * PageBytes()) {
    address_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, fd, 0);
    EXPECT_NE(address_, MAP_FAILED);
    ::madvise(address_, bytes_, MADV_NOHUGEPAGE);  // one touch must commit one page
  }
  ~Mapping() { ::munmap(address_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  static size_t PageBytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }
  volatile char* page(size_t index) { return static_cast<char*>(address_) + index * PageBytes(); }
  char* data() { return static_cast<char*>(address_); }
  size_t bytes() const { return bytes_; }

 private:
  void* address_;
  size_t bytes_;
};

TEST(CommittedBytes, CountsExactlyTheTouchedPages) {
  const size_t page = Mapping::PageBytes();
  constexpr size_t kPages = 1500;  // more than are looked up at once
  Mapping memory(kPages, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  EXPECT_EQ(CommittedBytes(memory.data(), memory.bytes()), 0u);
  uint64_t touched = 0;
  for (const size_t index : {0, 1, 7, 511, 512, 513, 1023, 1024, 1499}) {
    *memory.page(index) = 1;
    touched += page;
    EXPECT_EQ(CommittedBytes(memory.data(), memory.bytes()), touched) << index;
  }
  EXPECT_EQ(CommittedBytes(memory.data(), 2 * page), 2 * page);
  EXPECT_EQ(CommittedBytes(memory.data() + 2 * page, 5 * page), 0u);
  ::madvise(memory.data(), page, MADV_DONTNEED);
  EXPECT_EQ(CommittedBytes(memory.data(), memory.bytes()), touched - page);
}

TEST(CommittedBytes, LeavesOutPagesThatLieOnlyPartlyInside) {
  const size_t page = Mapping::PageBytes();
  Mapping memory(4, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  for (size_t i = 0; i < 4; ++i) *memory.page(i) = 1;
  EXPECT_EQ(CommittedBytes(memory.data(), 0), 0u);
  EXPECT_EQ(CommittedBytes(memory.data() + 1, page), 0u);
  EXPECT_EQ(CommittedBytes(memory.data() + 1, 2 * page - 1), page);
  EXPECT_EQ(CommittedBytes(memory.data() + page - 1, 3 * page), 2 * page);
  EXPECT_EQ(CommittedBytes(memory.data(), 4 * page), 4 * page);
}

TEST(CommittedBytes, FileBackedPagesDoNotCountUntilTheyAreCopied) {
  const size_t page = Mapping::PageBytes();
  char name[] = "/tmp/shardproof-XXXXXX";
  const int fd = ::mkstemp(name);
  ASSERT_GE(fd, 0);
  ::unlink(name);
  ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(8 * page)), 0);
  {
    Mapping shared(8, MAP_SHARED, fd);
    for (size_t i = 0; i < 8; ++i) *shared.page(i) = 1;
    EXPECT_EQ(CommittedBytes(shared.data(), shared.bytes()), 0u);
    Mapping copy(8, MAP_PRIVATE, fd);
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(*copy.page(i), 1);
    EXPECT_EQ(CommittedBytes(copy.data(), copy.bytes()), 0u);
    *copy.page(3) = 2;
    EXPECT_EQ(CommittedBytes(copy.data(), copy.bytes()), page);
  }
  ::close(fd);
}

TEST(AnonymousBytes, FollowsWhatIsTouched) {
  const uint64_t before = AnonymousBytes();
  ASSERT_GT(before, 0u);
  constexpr size_t kBytes = 64u << 20;
  Mapping memory(kBytes / Mapping::PageBytes(), MAP_PRIVATE | MAP_ANONYMOUS, -1);
  EXPECT_LT(AnonymousBytes(), before + kBytes / 4);
  std::memset(memory.data(), 1, memory.bytes());
  EXPECT_GT(AnonymousBytes(), before + kBytes * 3 / 4);
  EXPECT_LT(AnonymousBytes(), before + kBytes * 5 / 4);
}

struct Thing {
  std::string id;
};

TEST(RegistryDeathTest, IsSortedAndKnowsItsOwn) {
  Registry<Thing> things("thing");
  for (const char* id : {"b", "c", "a"}) things.Add({id});
  ASSERT_EQ(things.All().size(), 3u);
  EXPECT_EQ(things.All()[0].id, "a");
  EXPECT_EQ(things.All()[2].id, "c");
  EXPECT_EQ(things.Find("c").value().id, "c");
  EXPECT_EQ(things.Find("d").error().code, ErrorCode::kBadInput);
  EXPECT_EQ(things.Find("d").error().message, "thing 'd' is unknown: known are a, b, c");
  EXPECT_DEATH(things.Add({"b"}), "thing 'b' is registered twice");
}

}  // namespace
}  // namespace shardproof
