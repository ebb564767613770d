#include "verify/formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "verify/oracle/fixture_files.h"

namespace shardproof::formats {
namespace {

using oracle::BytesOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;

std::string GgufText(const std::string& text) { return BytesOf<uint64_t>({text.size()}) + text; }

std::string GgufU16(const std::string& name, uint16_t number) {
  return GgufText(name) + BytesOf<uint32_t>({2}) + BytesOf<uint16_t>({number});
}

/// A file with one tensor of a number.
std::string GgufFile(const std::string& path, uint64_t count, const std::string& values) {
  std::string bytes = "GGUF" + BytesOf<uint32_t>({3}) + BytesOf<uint64_t>({1, count}) + values +
                      GgufText("w") + BytesOf<uint32_t>({1}) + BytesOf<uint64_t>({1}) +
                      BytesOf<uint32_t>({0}) + BytesOf<uint64_t>({0});
  bytes.resize((bytes.size() + 31) / 32 * 32);
  std::ofstream(path, std::ios::binary) << bytes << BytesOf<float>({1});
  return path;
}

TEST(Gguf, APartOfASplitModelIsNotCalledTheWhole) {
  const oracle::TemporaryDirectory scratch;
  const auto part = OpenGguf(
      GgufFile(scratch / "m.gguf", 2, GgufU16("split.no", 1) + GgufU16("split.count", 3)), nullptr);
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(part.value().tensors.size(), 1u);
  EXPECT_THAT(part.value().unjudged,
              ElementsAre(EndsWith("m.gguf: is part 2 of 3, of which the others are not read")));
  const auto whole = OpenGguf(
      GgufFile(scratch / "m.gguf", 2, GgufU16("split.no", 0) + GgufU16("split.count", 1)), nullptr);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_THAT(whole.value().unjudged, IsEmpty());
}

}  // namespace
}  // namespace shardproof::formats
