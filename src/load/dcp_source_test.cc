#include "src/load/dcp_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/pickle/pickle_writer.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using namespace std::string_literals;

/// The bytes of a tensor, put together from its pieces.
std::string ImageOf(const Source& source, const SourceTensor& tensor) {
  std::string bytes(tensor.length, '\0');
  tensor.VisitStretches(0, tensor.length,
                        [&](uint64_t start, int64_t file, uint64_t offset, uint64_t length) {
                          std::memcpy(bytes.data() + start, source.BytesAt(file, offset), length);
                        });
  return bytes;
}

template <typename Number>
std::vector<double> Numbers(const std::string& bytes) {
  std::vector<double> numbers;
  for (size_t i = 0; i < bytes.size(); i += sizeof(Number)) {
    Number number;
    std::memcpy(&number, bytes.data() + i, sizeof number);
    numbers.push_back(static_cast<double>(number));
  }
  return numbers;
}

std::vector<double> Counting(int count) {
  std::vector<double> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

/// A copy of what the real torch saved, to be damaged.
class DcpSourceTest : public ::testing::TestWithParam<const char*> {
 protected:
  DcpSourceTest() {
    std::string pattern = (fs::temp_directory_path() / "shardproof-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    fs::copy(std::string(SHARDPROOF_STORED) + "/dcp_" + GetParam(), directory_);
  }
  ~DcpSourceTest() override {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string Read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(Path(name), std::ios::binary).rdbuf();
    return text.str();
  }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  /// In place of bytes of the same number, everywhere.
  void Replace(const std::string& name, const std::string& from, const std::string& to) const {
    ASSERT_EQ(from.size(), to.size());
    std::string bytes = Read(name);
    size_t count = 0;
    for (size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at)) {
      bytes.replace(at, from.size(), to);
      ++count;
    }
    ASSERT_GT(count, 0u) << from;
    Write(name, bytes);
  }
  Result<Source> Open() { return OpenDcpSource(*files_, directory_); }
  /// One line that says where.
  void Refused(const std::string& what) {
    const auto source = Open();
    ASSERT_FALSE(source.ok()) << what;
    EXPECT_THAT(source.error().code, AnyOf(ErrorCode::kBadInput, ErrorCode::kUnsupported));
    EXPECT_THAT(source.error().message, HasSubstr(what));
    EXPECT_THAT(source.error().message, HasSubstr(directory_));
    EXPECT_EQ(source.error().message.find('\n'), std::string::npos) << source.error().message;
  }

  const std::shared_ptr<FileSystem> files_ = MakePosixFileSystem();
  std::string directory_;
};

INSTANTIATE_TEST_SUITE_P(OfTorch, DcpSourceTest, ::testing::Values("2.11.0", "2.15.0"),
                         [](const auto& info) { return std::string(info.param).substr(2, 2); });

TEST_P(DcpSourceTest, ReadsWhatTorchSavedOnTwoRanks) {
  const auto opened = Open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Source& source = opened.value();
  const auto numbers = [&](const char* name) {
    return Numbers<float>(ImageOf(source, source.tensors.at(name)));
  };
  EXPECT_EQ(numbers("rows"), Counting(15));
  EXPECT_EQ(numbers("one_row"), Counting(4));
  EXPECT_EQ(numbers("scalar"), Counting(1));
  EXPECT_EQ(Numbers<int64_t>(ImageOf(source, source.tensors.at("whole"))), Counting(6));
  // BF16 is the upper half of F32: of columns, which are cut along dim 1.
  std::string wide;
  const std::string narrow = ImageOf(source, source.tensors.at("columns"));
  for (size_t i = 0; i < narrow.size(); i += 2) wide += std::string(2, '\0') + narrow.substr(i, 2);
  EXPECT_EQ(Numbers<float>(wide), Counting(20));
  EXPECT_EQ(source.tensors.at("empty").shape, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(source.values.at("step"), pickle::PickleWriter().Finish().substr(0, 2) + "K\x07.");
}

TEST_P(DcpSourceTest, AnyPartOfAnImageIsReadFromItsPieces) {
  const auto opened = Open();
  ASSERT_TRUE(opened.ok());
  const SourceTensor& columns = opened.value().tensors.at("columns");
  const std::string whole = ImageOf(opened.value(), columns);
  for (uint64_t begin = 0; begin <= whole.size(); ++begin) {
    for (uint64_t end = begin; end <= whole.size(); ++end) {
      std::string part(end - begin, '?');
      uint64_t seen = 0;
      columns.VisitStretches(begin, end,
                             [&](uint64_t start, int64_t file, uint64_t offset, uint64_t length) {
                               std::memcpy(part.data() + (start - begin),
                                           opened.value().BytesAt(file, offset), length);
                               seen += length;
                             });
      ASSERT_EQ(seen, end - begin);
      ASSERT_EQ(part, whole.substr(begin, end - begin)) << begin << " " << end;
    }
  }
}

TEST_P(DcpSourceTest, RefusesFilesThatAreMissingOrShort) {
  fs::remove(Path("__1_0.distcp"));
  Refused("__1_0.distcp");
  fs::copy(std::string(SHARDPROOF_STORED) + "/dcp_" + GetParam() + "/__1_0.distcp", directory_);
  const auto size = fs::file_size(Path("__0_0.distcp"));
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, size / 2, size - 1}) {
    fs::resize_file(Path("__0_0.distcp"), length);
    Refused("expected a piece within the");
  }
}

TEST_P(DcpSourceTest, RefusesEveryMetadataThatIsCutShort) {
  const std::string whole = Read(".metadata");
  for (size_t length = 0; length < whole.size(); length += 7) {
    Write(".metadata", whole.substr(0, length));
    Refused("");
  }
}

TEST_P(DcpSourceTest, ReadsNoMoreThanThereIsWhateverByteChanges) {
  // Every byte in turn: read as something or refused in one line; the sanitizers of ci/fuzz say
  // more.
  for (const char* name : {".metadata", "__0_0.distcp"}) {
    const std::string whole = Read(name);
    for (size_t at = 0; at < whole.size(); at += 3) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 0x41);
      Write(name, changed);
      const auto opened = Open();
      if (opened.ok()) {
        for (const auto& [key, tensor] : opened.value().tensors)
          (void)ImageOf(opened.value(), tensor);
        continue;
      }
      EXPECT_EQ(opened.error().message.find('\n'), std::string::npos) << opened.error().message;
    }
    Write(name, whole);
  }
}

TEST_P(DcpSourceTest, RefusesEntriesThatAreCompressed) {
  std::string bytes = Read("__0_0.distcp");
  const size_t entry = bytes.find("PK\x01\x02");
  ASSERT_NE(entry, std::string::npos);
  bytes[entry + 10] = 8;  // its method: deflated
  Write("__0_0.distcp", bytes);
  Refused("uncompressed");
}

TEST_P(DcpSourceTest, NamesThatBeginWithModelAreNoDictOfThatName) {
  Replace(".metadata", "one_row", "model.x");
  const auto opened = Open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_TRUE(opened.value().tensors.contains("model.x"));
  EXPECT_TRUE(opened.value().tensors.contains("rows"));
}

TEST_P(DcpSourceTest, RefusesWhatAPickleWouldCall) {
  Replace(".metadata", "_StorageInfo", "_StorageEvil");
  Refused("_StorageEvil");
}

TEST_P(DcpSourceTest, RefusesAPieceOfAnotherDtypeThanTheMetadataSay) {
  Replace("__0_0.distcp", "FloatStorage", "ShortStorage");
  Refused("expected a piece F32");
}

TEST_P(DcpSourceTest, RefusesPiecesThatOverlap) {
  // Of `rows`, 5 x 3, the second piece begins one row early, so that the last row is in none.
  Replace(".metadata", "K\x03K"s + '\0' + '\x86', "K\x02K"s + '\0' + '\x86');
  Refused("expected pieces that do not overlap, found [3, 3] at [0, 0] and [2, 3] at [2, 0]");
}

TEST_P(DcpSourceTest, RefusesALayoutThatIsNotStrided) {
  Replace(".metadata", "torch.strided", "torch.stridey");
  Refused("expected the layout torch.strided, found ");
}

TEST_P(DcpSourceTest, RefusesAFileOutsideOfTheDirectory) {
  Replace(".metadata", "__0_0.distcp", "../00.distcp");
  Refused("files below the directory");
}

}  // namespace
}  // namespace shardproof
