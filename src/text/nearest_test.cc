#include "src/text/nearest.h"

#include <gtest/gtest.h>

namespace shardproof::text {
namespace {

TEST(Nearest, IsTheNameThatMostLikelyWasMeant) {
  EXPECT_EQ(Nearest("wrold", {"seed", "world", "word_count"}), "world");
  EXPECT_EQ(Nearest("world", {"wor", "worlds"}), "worlds");
}

TEST(Nearest, IsNoneOfThoseThatHaveLittleInCommonWithIt) {
  EXPECT_EQ(Nearest("world", {"seed", "mesh"}), "");
  EXPECT_EQ(Nearest("world", {}), "");
}

TEST(Nearest, OfATextThatIsTooLongForANameIsNotLookedFor) {
  const std::string name(1000, 'a');
  EXPECT_EQ(Nearest(name, {name + "a", name}), name);
  EXPECT_EQ(Nearest(name + "a", {name}), "");
  EXPECT_EQ(Nearest(name, {name + "a"}), "");
}

}  // namespace
}  // namespace shardproof::text
