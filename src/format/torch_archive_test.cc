#include "src/format/torch_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "src/format/torch_item.h"

namespace shardproof {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPickle = "\x80\x02N.";

Result<ReadItem> Open(const std::string& bytes) {
  return OpenTorchItem(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(),
                       [] { return std::string("where"); });
}

/// Adds to the little-endian number of `width` bytes at `at`.
void AddTo(std::string& bytes, size_t at, size_t width, uint64_t more) {
  uint64_t number = 0;
  std::memcpy(&number, &bytes[at], width);
  number += more;
  std::memcpy(&bytes[at], &number, width);
}

TEST(TorchArchive, OpensWhatIsSavedAndRefusesAnEntryThatItHasTwice) {
  const TorchItem item = TorchItem::OfValue(kPickle);
  std::string bytes = item.Head(0) + item.Tail(0);
  const auto opened = Open(bytes);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened.value().pickle, kPickle);

  // The directory's first entry, once more at its end.
  const size_t first = bytes.find("PK\x01\x02");
  const size_t second = bytes.find("PK\x01\x02", first + 1);
  const size_t end = bytes.rfind("PK\x05\x06");
  ASSERT_NE(second, std::string::npos);
  const std::string entry = bytes.substr(first, second - first);
  bytes.insert(end, entry);
  AddTo(bytes, bytes.size() - 12, 2, 1);
  AddTo(bytes, bytes.size() - 10, 4, entry.size());
  const auto refused = Open(bytes);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(refused.error().message, HasSubstr("where: expected an archive"));
}

}  // namespace
}  // namespace shardproof
