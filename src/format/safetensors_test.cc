#include "src/format/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace shardproof {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// A header's length, the header, the data.
std::string File(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + data;
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype,
                     shape, offsets);
}

/// One U8 tensor of `count` elements, all 'x'.
std::string Bytes(const std::string& name, int count) {
  return File("{" + Entry(name, "U8", std::to_string(count), fmt::format("0,{}", count)) + "}",
              std::string(count, 'x'));
}

class OpenSourceTest : public testing::Test {
 protected:
  OpenSourceTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "shardproof-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~OpenSourceTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << text;
  }
  void Index(const std::string& weight_map) {
    Write(kIndex, R"({"metadata":{},"weight_map":)" + weight_map + "}");
  }
  Result<Source> Open() { return OpenSource(*files_, directory_); }

  /// The message of the refusal, which must blame the input in one line that names the directory.
  std::string Refusal() {
    const auto source = Open();
    if (source.ok()) return "accepted";
    EXPECT_EQ(source.error().code, ErrorCode::kBadInput) << source.error().message;
    EXPECT_THAT(source.error().message, HasSubstr(directory_));
    EXPECT_EQ(source.error().message.find('\n'), std::string::npos);
    return source.error().message;
  }
  std::string RefusalOf(const std::string& file) {
    Write(kSingle, file);
    return Refusal();
  }
  std::string RefusalOf(const std::string& header, const std::string& data) {
    return RefusalOf(File(header, data));
  }

  std::string directory_;
  std::shared_ptr<FileSystem> files_ = MakePosixFileSystem();
};

TEST_F(OpenSourceTest, ReadsOneFile) {
  Write(kSingle,
        File(R"({"__metadata__":{"format":"pt"},)" + Entry("w", "F32", "1,2", "2,10") + "," +
                 Entry("none", "F32", "3,0", "2,2") + "," + Entry("b", "BF16", "", "0,2") + "}",
             "aaABCDEFGH"));
  const auto opened = Open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Source& source = opened.value();
  ASSERT_EQ(source.tensors.size(), 3u);
  const SourceTensor& w = source.tensors.at("w");
  EXPECT_EQ(w.dtype, at::kFloat);
  EXPECT_EQ(w.shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(w.length, 8u);
  EXPECT_EQ(std::memcmp(source.BytesOf(w), "ABCDEFGH", 8), 0);
  EXPECT_TRUE(source.tensors.at("b").shape.empty());
  EXPECT_EQ(source.tensors.at("none").length, 0u);
  EXPECT_TRUE(source.mapped());
}

TEST_F(OpenSourceTest, ReadsAFileWithoutTensors) {
  for (const char* header : {R"({"__metadata__":{"a":"b"}})", R"({"__metadata__":{}})", "{}  "}) {
    Write(kSingle, File(header, ""));
    const auto source = Open();
    ASSERT_TRUE(source.ok()) << source.error().message;
    EXPECT_TRUE(source.value().tensors.empty());
  }
}

TEST_F(OpenSourceTest, ReadsShardsByTheirIndex) {
  Write("one.safetensors", Bytes("a", 3));
  Write("two.safetensors", Bytes("b", 5));
  Index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  const auto source = Open();
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source.value().files.size(), 2u);
  EXPECT_EQ(source.value().tensors.at("b").length, 5u);
  EXPECT_EQ(std::memcmp(source.value().BytesOf(source.value().tensors.at("b")), "xxxxx", 5), 0);
}

TEST_F(OpenSourceTest, PrefersOneFileToAnIndexAsTransformersDoes) {
  Write(kSingle, Bytes("single", 1));
  Write("one.safetensors", Bytes("indexed", 1));
  Index(R"({"indexed":"one.safetensors"})");
  const auto source = Open();
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_TRUE(source.value().tensors.contains("single"));
}

TEST_F(OpenSourceTest, RefusesEveryTruncation) {
  const std::string whole = File("{" + Entry("w", "F32", "2", "0,8") + "}", "12345678");
  ASSERT_EQ(RefusalOf(whole), "accepted");
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_NE(RefusalOf(whole.substr(0, size)), "accepted") << size << " bytes";
  }
  EXPECT_THAT(RefusalOf(whole + "x"), HasSubstr("1 data bytes belong to no tensor"));
}

TEST_F(OpenSourceTest, RefusesAHeaderLengthThatDoesNotFit) {
  for (const uint64_t length :
       {uint64_t{3}, uint64_t{100'000'001}, uint64_t{1} << 62, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, 8);
    EXPECT_THAT(RefusalOf(text + "{}"),
                HasSubstr(fmt::format("header length {} does not fit", length)));
  }
  EXPECT_THAT(RefusalOf("1234567"), HasSubstr("7 bytes, too short"));
  EXPECT_THAT(RefusalOf(""), HasSubstr("0 bytes, too short"));
}

TEST_F(OpenSourceTest, RefusesAHeaderThatIsNoObject) {
  EXPECT_THAT(RefusalOf("", ""), Not(HasSubstr("accepted")));
  EXPECT_THAT(RefusalOf("[]", ""), Not(HasSubstr("accepted")));
  EXPECT_THAT(RefusalOf("{", ""), HasSubstr("is not valid JSON"));
  EXPECT_THAT(RefusalOf("{} x", ""), HasSubstr("is not valid JSON"));
  EXPECT_THAT(RefusalOf("{\"a\xff\":1}", ""), HasSubstr("is not valid JSON"));
  EXPECT_THAT(RefusalOf(" {}", ""), Not(HasSubstr("accepted")));  // the format: begins with '{'
  EXPECT_THAT(RefusalOf("\xef\xbb\xbf{}", ""), Not(HasSubstr("accepted")));
}

TEST_F(OpenSourceTest, RefusesOverlapGapAndRange) {
  const auto two = [](const char* first, const char* second) {
    return "{" + Entry("a", "U8", "4", first) + "," + Entry("b", "U8", "4", second) + "}";
  };
  EXPECT_EQ(RefusalOf(two("0,4", "4,8"), std::string(8, 'x')), "accepted");
  EXPECT_EQ(RefusalOf(two("4,8", "0,4"), std::string(8, 'x')), "accepted");
  EXPECT_THAT(RefusalOf(two("0,4", "3,7"), std::string(7, 'x')), HasSubstr("tensors overlap"));
  EXPECT_THAT(RefusalOf(two("0,4", "0,4"), std::string(4, 'x')), HasSubstr("tensors overlap"));
  EXPECT_THAT(RefusalOf(two("0,4", "5,9"), std::string(9, 'x')), HasSubstr("leave a gap"));
  EXPECT_THAT(RefusalOf(two("1,5", "5,9"), std::string(9, 'x')), HasSubstr("leave a gap"));
  EXPECT_THAT(RefusalOf(two("0,4", "4,8"), std::string(7, 'x')), HasSubstr("outside the 7 data"));
  EXPECT_THAT(RefusalOf(two("0,4", "8,4"), std::string(8, 'x')), HasSubstr("outside"));
  EXPECT_THAT(
      RefusalOf("{" + Entry("a", "U8", "4", "0,4") + "," + Entry("n", "U8", "0", "2,2") + "}",
                "xxxx"),
      HasSubstr("overlap"));
}

TEST_F(OpenSourceTest, RefusesSizesThatDisagreeOrOverflow) {
  const auto one = [](const char* dtype, const char* shape, const char* offsets) {
    return "{" + Entry("w", dtype, shape, offsets) + "}";
  };
  const std::string data(8, 'x');
  EXPECT_EQ(RefusalOf(one("F32", "2", "0,8"), data), "accepted");
  EXPECT_THAT(RefusalOf(one("F64", "2", "0,8"), data), HasSubstr("takes 16 bytes"));
  EXPECT_THAT(RefusalOf(one("F32", "1", "0,8"), data), HasSubstr("data_offsets span 8"));
  // 2^62 * 4 + 8 wraps to 8 in 64 bits; so do other products.
  for (const char* shape : {"4611686018427387906", "4294967296,4294967296,2", "9223372036854775807",
                            "4611686018427387904,4,2", "3037000500,3037000500,4"}) {
    EXPECT_THAT(RefusalOf(one("F32", shape, "0,8"), data), HasSubstr("more than 2^63")) << shape;
  }
  for (const char* shape : {"-1", "1.0", "9223372036854775808", "99999999999999999999", "true",
                            "null", "\"2\"", "[2]", "{}"}) {
    EXPECT_THAT(RefusalOf(one("F32", shape, "0,8"), data), HasSubstr("holds what is no size"))
        << shape;
  }
  for (const char* offsets :
       {"0", "", "0,4,8", "-8,0", "0,8.0", "\"0\",\"8\"", "null,8", "0,18446744073709551616",
        "18446744073709551608,18446744073709551615"}) {
    EXPECT_THAT(RefusalOf(one("F32", "2", offsets), data), HasSubstr("data_offsets")) << offsets;
  }
}

TEST_F(OpenSourceTest, RefusesDuplicateKeysAndIncompleteEntries) {
  const std::string w = Entry("w", "U8", "1", "0,1");
  EXPECT_THAT(RefusalOf("{" + w + "," + w + "}", "x"), HasSubstr("key 'w' occurs twice"));
  EXPECT_THAT(
      RefusalOf(R"({"w":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", "x"),
      HasSubstr("key 'shape' occurs twice"));
  EXPECT_THAT(RefusalOf("{" + Entry("w", "F33", "1", "0,1") + "}", "x"),
              HasSubstr("dtype 'F33' is unknown: known are F32, BF16"));
  for (const char* entry : {"1", "null", "[]", "{}", R"({"dtype":"U8","shape":[1]})",
                            R"({"dtype":8,"shape":[1],"data_offsets":[0,1]})",
                            R"({"dtype":"U8","shape":1,"data_offsets":[0,1]})",
                            R"({"dtype":"U8","shape":[1],"data_offsets":{"0":1}})"}) {
    EXPECT_THAT(RefusalOf(fmt::format(R"({{"w":{}}})", entry), "x"),
                HasSubstr("expected an object of dtype, shape and data_offsets"))
        << entry;
  }
  for (const char* metadata : {"1", "[]", R"({"a":1})", R"({"a":{}})", "null"}) {
    EXPECT_THAT(RefusalOf(fmt::format(R"({{"__metadata__":{}}})", metadata), ""),
                HasSubstr("__metadata__"))
        << metadata;
  }
}

TEST_F(OpenSourceTest, RefusesDeepNestingWithoutFallingOver) {
  constexpr int kDepth = 2'000'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  EXPECT_NE(RefusalOf(R"({"w":{"dtype":"U8","shape":)" + deep + R"(,"data_offsets":[0,1]}})", "x"),
            "accepted");
  EXPECT_NE(RefusalOf(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":)" + deep + "}}", "x"),
            "accepted");
  EXPECT_NE(RefusalOf(R"({"__metadata__":)" + deep + "}", ""), "accepted");
  std::filesystem::remove(directory_ + "/" + kSingle);
  Index(R"({"w":)" + deep + "}");
  EXPECT_NE(Refusal(), "accepted");
}

TEST_F(OpenSourceTest, ComplainsInOneShortLineWhateverTheNames) {
  EXPECT_NE(RefusalOf(R"({"line\nbreak":1})", ""), "accepted");
  EXPECT_NE(RefusalOf(R"({"w":{"dtype":"a\nb","shape":[],"data_offsets":[0,0]}})", ""), "accepted");
  EXPECT_NE(RefusalOf(R"({"a\nb":1,"a\nb":1})", ""), "accepted");
}

TEST_F(OpenSourceTest, RefusesAnIndexThatLeavesTheDirectory) {
  Write("one.safetensors", Bytes("a", 1));
  std::filesystem::create_directory(directory_ + "/sub");
  Write("sub/one.safetensors", Bytes("a", 1));
  for (const std::string& name :
       {std::string("../one.safetensors"), std::string(".."), std::string("."), std::string(""),
        directory_ + "/one.safetensors", std::string("sub/../one.safetensors"),
        std::string("one.safetensors\\u0000.txt")}) {
    Index(fmt::format(R"({{"a":"{}"}})", name));
    EXPECT_THAT(Refusal(), HasSubstr("expected the name of a file below")) << name;
  }
  for (const char* name : {"1", "null", "{}", "[\"one.safetensors\"]"}) {
    Index(fmt::format(R"({{"a":{}}})", name));
    EXPECT_THAT(Refusal(), HasSubstr("expected the name of a file")) << name;
  }
}

TEST_F(OpenSourceTest, RefusesAnIndexThatDisagreesWithItsFiles) {
  Write("one.safetensors", Bytes("a", 1));
  Write("two.safetensors", Bytes("b", 1));
  Index(R"({"a":"one.safetensors","b":"three.safetensors"})");
  EXPECT_THAT(Refusal(), HasSubstr("'three.safetensors', which is not there"));
  Index(R"({"a":"one.safetensors","c":"two.safetensors"})");
  EXPECT_THAT(Refusal(), HasSubstr("'c'"));
  Index(R"({"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"})");
  EXPECT_THAT(Refusal(), HasSubstr("'c'"));
  Index(R"({"a":"two.safetensors","b":"one.safetensors"})");
  EXPECT_THAT(Refusal(), HasSubstr("'a'"));
  Write("two.safetensors", Bytes("a", 1));
  Index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  EXPECT_THAT(Refusal(), HasSubstr("'a' is in another file too"));
  Write(kIndex, R"({"metadata":{}})");
  EXPECT_THAT(Refusal(), HasSubstr("weight_map"));
  Write(kIndex, R"({"weight_map":{"a":"one.safetensors","a":"one.safetensors"}})");
  EXPECT_THAT(Refusal(), HasSubstr("occurs twice"));
  Write(kIndex, "not JSON");
  EXPECT_THAT(Refusal(), HasSubstr("is not valid JSON"));
}

TEST_F(OpenSourceTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(Refusal(), HasSubstr("has neither"));
  std::filesystem::create_directory(directory_ + "/" + kSingle);
  EXPECT_THAT(Refusal(), HasSubstr("is not a regular file"));
  std::filesystem::remove(directory_ + "/" + kSingle);
  ASSERT_EQ(::mkfifo((directory_ + "/" + kSingle).c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("is not a regular file"));
}

TEST_F(OpenSourceTest, ADescriptionKeepsNamesShapesAndDtypes) {
  Write(kSingle, File("{" + Entry("caf\xc3\xa9 \\u0000\\n", "F8_E4M3", "2,3", "0,6") + "," +
                          Entry("s", "U64", "", "6,14") + "}",
                      std::string(14, 'x')));
  const auto source = Open();
  ASSERT_TRUE(source.ok()) << source.error().message;
  const auto copy = SourceFromDescription(DescribeSource(source.value()));
  ASSERT_TRUE(copy.ok());
  EXPECT_FALSE(copy.value().mapped());
  ASSERT_EQ(copy.value().tensors.size(), 2u);
  for (const auto& [name, tensor] : source.value().tensors) {
    ASSERT_TRUE(copy.value().tensors.contains(name));
    const SourceTensor& other = copy.value().tensors.at(name);
    EXPECT_EQ(other.dtype, tensor.dtype);
    EXPECT_EQ(other.shape, tensor.shape);
    EXPECT_EQ(other.length, tensor.length);
  }
  EXPECT_FALSE(SourceFromDescription("").ok());
}

}  // namespace
}  // namespace shardproof
