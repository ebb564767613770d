#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <random>

#include "verify/oracle/fixture_files.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {
namespace {

using ::testing::HasSubstr;

/// The message of the error that a file with this header and data gives; empty if it gives none.
std::string ErrorOfFile(const std::string& header, const std::string& data) {
  const TemporaryDirectory directory;
  const std::string path = directory / "bad.safetensors";
  EXPECT_TRUE(WriteTextFile(path, RawSafetensors(header, data)).ok());
  const auto located = Locate(path);
  if (located.ok()) return "";
  EXPECT_EQ(located.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(located.error().message, HasSubstr("bad.safetensors"));
  EXPECT_EQ(located.error().message.find('\n'), std::string::npos);
  return located.error().message;
}

std::string ErrorOfText(const std::string& text) {
  const TemporaryDirectory directory;
  const std::string path = directory / "bad.safetensors";
  EXPECT_TRUE(WriteTextFile(path, text).ok());
  const auto located = Locate(path);
  return located.ok() ? "" : located.error().message;
}

std::string Entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + offsets +
         "]}";
}

std::string OneTensor(const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
  return R"({"w":)" + Entry(dtype, shape, offsets) + "}";
}

TEST(Locate, GivesPlaceDtypeAndShapeSortedByName) {
  const TemporaryDirectory directory;
  const std::string path = directory / "model.safetensors";
  ASSERT_TRUE(WriteSafetensors(path, {PlannedBytes("b", "F32", {2}, BytesOf({1.0f, 2.0f})),
                                      PlannedBytes("a", "U8", {0, 3}, ""),
                                      PlannedBytes("c", "I16", {}, BytesOf<int16_t>({7}))})
                  .ok());
  for (const std::string& checkpoint : {directory.path(), path}) {
    const auto located = Locate(checkpoint);
    ASSERT_TRUE(located.ok()) << located.error().message;
    const auto& tensors = located.value();
    ASSERT_EQ(tensors.size(), 3u);
    EXPECT_EQ(tensors[0].name, "a");
    EXPECT_EQ(tensors[0].byte_length, 0u);
    EXPECT_EQ(tensors[1].name, "b");
    EXPECT_EQ(tensors[1].dtype, "F32");
    EXPECT_EQ(tensors[1].shape, std::vector<int64_t>({2}));
    EXPECT_EQ(tensors[1].file, "model.safetensors");
    EXPECT_EQ(tensors[2].shape.size(), 0u);
    EXPECT_EQ(ReadBytes(checkpoint, tensors[1], 4, 4).value(), BytesOf({2.0f}));
    EXPECT_FALSE(ReadBytes(checkpoint, tensors[1], 4, 5).ok());
    EXPECT_FALSE(ReadBytes(checkpoint, tensors[1], ~0ull, 2).ok());
  }
}

TEST(Locate, AcceptsEmptyAndStringMetadata) {
  EXPECT_EQ(ErrorOfFile(R"({"__metadata__":{}})", ""), "");
  EXPECT_EQ(ErrorOfFile(R"({"__metadata__":{"format":"pt"}})", ""), "");
  EXPECT_EQ(ErrorOfFile("{}        ", ""), "");
}

TEST(Locate, RefusesMetadataOfOtherTypes) {
  EXPECT_THAT(ErrorOfFile(R"({"__metadata__":{"n":1}})", ""),
              HasSubstr("expected a string, found 1"));
  EXPECT_THAT(ErrorOfFile(R"({"__metadata__":[]})", ""), HasSubstr("expected an object"));
}

TEST(Locate, RefusesHeaderLengthsThatTheFileDoesNotHave) {
  EXPECT_THAT(ErrorOfText("abc"), HasSubstr("at least 8 bytes"));
  EXPECT_THAT(ErrorOfText(""), HasSubstr("at least 8 bytes"));
  char huge[9] = "\xff\xff\xff\xff\xff\xff\xff\x7f";
  EXPECT_THAT(ErrorOfText(std::string(huge, 8) + "{}"), HasSubstr("at most 100000000"));
  EXPECT_THAT(ErrorOfText(std::string("\x03\0\0\0\0\0\0\0", 8) + "{}"),
              HasSubstr("within the 2 bytes"));
  EXPECT_THAT(ErrorOfText(std::string(8, '\0')), HasSubstr("begin with '{'"));
}

TEST(Locate, RefusesHeadersThatAreNoJsonObject) {
  EXPECT_THAT(ErrorOfFile("{\"w\":", ""), HasSubstr("JSON"));
  EXPECT_THAT(ErrorOfFile("{} x", ""), HasSubstr("JSON"));
  EXPECT_THAT(ErrorOfFile(" {}", ""), HasSubstr("begin with '{'"));
  EXPECT_THAT(ErrorOfFile("[]", ""), HasSubstr("begin with '{'"));
  EXPECT_THAT(ErrorOfFile("{\"w\":1}", ""), HasSubstr("'w': expected an object, found 1"));
  std::string deep = "{\"w\":";
  for (int i = 0; i < 100000; ++i) deep += '[';
  EXPECT_THAT(ErrorOfFile(deep, ""), HasSubstr("JSON"));
}

TEST(Locate, RefusesDuplicateKeys) {
  const std::string entry = Entry("U8", "1", "0,1");
  EXPECT_THAT(ErrorOfFile("{\"w\":" + entry + ",\"w\":" + entry + "}", "x"),
              HasSubstr("expected every key once, found 'w' twice"));
  EXPECT_THAT(
      ErrorOfFile(R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
      HasSubstr("'dtype' twice"));
}

TEST(Locate, RefusesUnknownDtypesAndListsTheKnown) {
  const std::string message = ErrorOfText(RawSafetensors(OneTensor("F7", "1", "0,1"), "x"));
  EXPECT_THAT(message, HasSubstr("'F7', which is not known"));
  EXPECT_THAT(message, HasSubstr("BF16"));
  EXPECT_THAT(ErrorOfFile(R"({"w":{"dtype":3,"shape":[1],"data_offsets":[0,1]}})", "x"),
              HasSubstr("expected a string"));
}

TEST(Locate, RefusesShapesThatAreNegativeHugeOrOverflow) {
  EXPECT_THAT(ErrorOfFile(OneTensor("U8", "-1", "0,1"), "x"),
              HasSubstr("shape: expected an integer"));
  EXPECT_THAT(ErrorOfFile(OneTensor("U8", "1.0", "0,1"), "x"),
              HasSubstr("shape: expected an integer"));
  EXPECT_THAT(ErrorOfFile(OneTensor("U8", "18446744073709551615", "0,1"), "x"), HasSubstr("shape"));
  EXPECT_THAT(ErrorOfFile(OneTensor("U8", "99999999999999999999999", "0,1"), "x"),
              HasSubstr("JSON"));
  EXPECT_THAT(ErrorOfFile(OneTensor("U8", "4294967296,4294967296", "0,0"), ""),
              HasSubstr("overflows"));
  EXPECT_THAT(ErrorOfFile(OneTensor("F64", "2305843009213693952", "0,0"), ""),
              HasSubstr("overflows"));
  EXPECT_THAT(ErrorOfFile(OneTensor("U8", "4611686018427387904", "0,1"), "x"),
              HasSubstr("expected 46"));
}

TEST(Locate, RefusesOffsetsOutOfRangeOverlappingOrWithGaps) {
  EXPECT_THAT(ErrorOfFile(OneTensor("U8", "2", "0,2"), "x"), HasSubstr("begin <= end <= 1"));
  EXPECT_THAT(ErrorOfFile(OneTensor("U8", "1", "1,0"), "x"), HasSubstr("begin <= end"));
  EXPECT_THAT(ErrorOfFile(OneTensor("U8", "1", "0,1,2"), "x"), HasSubstr("expected 2 integers"));
  EXPECT_THAT(ErrorOfFile(OneTensor("F32", "1", "0,3"), "xyz"), HasSubstr("expected 4 bytes"));
  const auto two = [](const std::string& first, const std::string& second) {
    return "{\"a\":" + Entry("U8", "2", first) + ",\"b\":" + Entry("U8", "2", second) + "}";
  };
  EXPECT_EQ(ErrorOfFile(two("2,4", "0,2"), "wxyz"), "");
  EXPECT_THAT(ErrorOfFile(two("0,2", "1,3"), "xyz"), HasSubstr("overlap"));
  EXPECT_THAT(ErrorOfFile(two("0,2", "3,5"), "vwxyz"), HasSubstr("gap"));
  EXPECT_THAT(ErrorOfFile(two("0,2", "0,2"), "xy"), HasSubstr("overlap"));
  EXPECT_THAT(ErrorOfFile(OneTensor("U8", "1", "1,2"), "xy"), HasSubstr("gap"));
}

TEST(Locate, RefusesTrailingBytesAndIncompleteEntries) {
  EXPECT_THAT(ErrorOfFile(OneTensor("U8", "1", "0,1"), "xy"), HasSubstr("found 1 more bytes"));
  EXPECT_THAT(ErrorOfFile(R"({"w":{"dtype":"U8","shape":[1]}})", "x"), HasSubstr("data_offsets"));
}

TEST(Locate, RefusesWhatIsNoRegularFile) {
  const TemporaryDirectory directory;
  EXPECT_THAT(Locate(directory / "absent").error().message, HasSubstr("cannot be opened"));
  ASSERT_EQ(mkfifo((directory / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(Locate(directory.path()).error().message, HasSubstr("found a FIFO"));
  std::filesystem::remove(directory / "model.safetensors");
  std::filesystem::create_directory(directory / "model.safetensors");
  EXPECT_THAT(Locate(directory.path()).error().message, HasSubstr("found a directory"));
  std::filesystem::remove(directory / "model.safetensors");
  std::filesystem::create_symlink("/dev/zero", directory / "model.safetensors");
  EXPECT_THAT(Locate(directory.path()).error().message, HasSubstr("found a device"));
  std::filesystem::remove(directory / "model.safetensors");
  std::filesystem::create_symlink("nowhere", directory / "model.safetensors");
  EXPECT_THAT(Locate(directory.path()).error().message, HasSubstr("cannot be opened"));
  const TemporaryDirectory empty;
  EXPECT_THAT(Locate(empty.path()).error().message, HasSubstr("found none"));
}

TEST(Locate, FollowsALinkToARegularFile) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteSafetensors(directory / "blob", {PlannedBytes("w", "U8", {1}, "x")}).ok());
  std::filesystem::create_symlink("blob", directory / "model.safetensors");
  ASSERT_TRUE(Locate(directory.path()).ok());
}

/// A sharded checkpoint with keys a and b in one file each, and the index given.
class IndexTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(
        WriteSafetensors(directory_ / "1.safetensors", {PlannedBytes("a", "U8", {1}, "x")}).ok());
    ASSERT_TRUE(
        WriteSafetensors(directory_ / "2.safetensors", {PlannedBytes("b", "U8", {1}, "y")}).ok());
  }

  std::string ErrorWith(const std::string& index) {
    EXPECT_TRUE(WriteTextFile(directory_ / "model.safetensors.index.json", index).ok());
    const auto located = Locate(directory_.path());
    return located.ok() ? "" : located.error().message;
  }

  TemporaryDirectory directory_;
};

TEST_F(IndexTest, AcceptsAnIndexThatFits) {
  EXPECT_EQ(ErrorWith(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})"), "");
  EXPECT_EQ(ErrorWith(R"({"weight_map":{"a":"./1.safetensors","b":"././2.safetensors"}})"), "");
}

TEST_F(IndexTest, WithoutAnIndexAllFilesAreRead) {
  const auto located = Locate(directory_.path());
  ASSERT_TRUE(located.ok());
  EXPECT_EQ(located.value().size(), 2u);
  ASSERT_TRUE(
      WriteSafetensors(directory_ / "3.safetensors", {PlannedBytes("b", "U8", {1}, "z")}).ok());
  EXPECT_THAT(Locate(directory_.path()).error().message,
              HasSubstr("expected key 'b' in one file, found it in '2.safetensors' and"));
}

TEST_F(IndexTest, RefusesAnIndexThatDoesNotFit) {
  EXPECT_THAT(ErrorWith(R"({"weight_map":{"a":"1.safetensors","b":"9.safetensors"}})"),
              HasSubstr("9.safetensors"));
  EXPECT_THAT(ErrorWith(R"({"weight_map":{"a":"1.safetensors","c":"2.safetensors"}})"),
              HasSubstr("'2.safetensors' holds key 'b'"));
  EXPECT_THAT(ErrorWith(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors",
                            "c":"2.safetensors"}})"),
              HasSubstr("weight_map 'c': expected the key in '2.safetensors'"));
  EXPECT_THAT(ErrorWith(R"({"weight_map":{"a":"2.safetensors","b":"1.safetensors"}})"),
              HasSubstr("holds key"));
}

TEST_F(IndexTest, RefusesPathsThatLeaveTheDirectory) {
  for (const char* name : {"../1.safetensors", "/etc/passwd", "x/../../1.safetensors", "", "."}) {
    EXPECT_THAT(ErrorWith(std::string(R"({"weight_map":{"a":")") + name + "\"}}"),
                HasSubstr("inside the directory"))
        << name;
  }
  EXPECT_THAT(ErrorWith("{\"weight_map\":{\"a\":\"1.safetensors\\u0000\"}}"),
              HasSubstr("inside the directory"));
}

TEST_F(IndexTest, RefusesAnIndexOfTheWrongForm) {
  EXPECT_THAT(ErrorWith("{"), HasSubstr("JSON"));
  EXPECT_THAT(ErrorWith("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(ErrorWith("{}"), HasSubstr("weight_map: expected an object, found nothing"));
  EXPECT_THAT(ErrorWith(R"({"weight_map":3})"), HasSubstr("weight_map"));
  EXPECT_THAT(ErrorWith(R"({"weight_map":{"a":1}})"), HasSubstr("expected a string"));
  EXPECT_THAT(ErrorWith(R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})"),
              HasSubstr("'a' twice"));
}

TEST(Locate, SurvivesEveryMutationOfAGoodHeader) {
  const std::string good = R"({"__metadata__":{"k":"v"},"w":)" + Entry("U8", "1", "0,1") + "}";
  std::mt19937 random(17);
  const TemporaryDirectory directory;
  const std::string path = directory / "mutant.safetensors";
  for (int round = 0; round < 2000; ++round) {
    std::string text = RawSafetensors(good, "x");
    for (uint32_t change = 0; change <= random() % 3; ++change) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    text.resize(text.size() - random() % 3);
    ASSERT_TRUE(WriteTextFile(path, text).ok());
    const auto located = Locate(path);
    if (located.ok()) continue;
    ASSERT_EQ(located.error().message.find('\n'), std::string::npos) << located.error().message;
  }
}

}  // namespace
}  // namespace shardproof::oracle
