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

/// A number as an archive has it.
std::string Bytes(uint64_t number, size_t width) {
  return std::string(reinterpret_cast<const char*>(&number), width);
}

TEST(TorchArchive, TakesFromItsOwnExtraFieldOnlyWhatHasNoRoomInAnEntry) {
  const TorchItem item = TorchItem::OfValue(kPickle);
  std::string bytes = item.Head(0) + item.Tail(0);
  const size_t entry = bytes.find("PK\x01\x02");
  uint64_t name_bytes = 0, header = 0;
  std::memcpy(&name_bytes, &bytes[entry + 28], 2);
  std::memcpy(&header, &bytes[entry + 42], 4);
  // Of the three numbers that may be there, the sizes stay in the entry. Another's field comes
  // first.
  const std::string extra =
      Bytes(0x4246, 2) + Bytes(8, 2) + Bytes(7, 8) + Bytes(1, 2) + Bytes(8, 2) + Bytes(header, 8);
  bytes.replace(entry + 42, 4, Bytes(0xffffffff, 4));
  bytes.insert(entry + 46 + name_bytes, extra);
  AddTo(bytes, entry + 30, 2, extra.size());
  AddTo(bytes, bytes.size() - 10, 4, extra.size());
  const auto opened = Open(bytes);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened.value().pickle, kPickle);
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
