#include "verify/maps/turn.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace shardproof::maps {
namespace {

template <typename Element>
void TurnsAllSizes() {
  constexpr uint64_t kMost = kStretchBytes / sizeof(Element);
  for (uint64_t count = 1; count <= kMost; count += count < 20 ? 1 : 11) {
    for (uint64_t columns = 1; columns < 70; columns += columns < 20 ? 1 : 7) {
      std::vector<Element> rows(count * columns), out(columns * kMost), expected = out;
      for (uint64_t i = 0; i < rows.size() * sizeof(Element); ++i)
        reinterpret_cast<uint8_t*>(rows.data())[i] = static_cast<uint8_t>(i * 7 + i / 256);
      for (uint64_t r = 0; r < count; ++r) {
        for (uint64_t c = 0; c < columns; ++c) expected[c * kMost + r] = rows[r * columns + c];
      }
      Turn<Element>(reinterpret_cast<const char*>(rows.data()), count, columns,
                    reinterpret_cast<char*>(out.data()), kMost);
      ASSERT_EQ(out, expected) << sizeof(Element) << ": " << count << " by " << columns;
    }
  }
}

TEST(Turn, IsRightForEachWidthAndSize) {
  TurnsAllSizes<uint8_t>();
  TurnsAllSizes<uint16_t>();
  TurnsAllSizes<uint32_t>();
  TurnsAllSizes<uint64_t>();
  TurnsAllSizes<std::array<uint64_t, 2>>();
}

}  // namespace
}  // namespace shardproof::maps
