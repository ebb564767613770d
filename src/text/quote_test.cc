#include "src/text/quote.h"

#include <gtest/gtest.h>

namespace shardproof::text {
namespace {

TEST(Quote, IsMadePrintable) {
  EXPECT_EQ(Quote("a\nb\x1b"), "'a\\nb\\x1b'");
  EXPECT_EQ(Quote("\u2028"), "'\\xe2\\x80\\xa8'");
  EXPECT_EQ(Quote("\u00e9"), "'\u00e9'");
}

TEST(Quote, IsCutWhereItIsTooLongForALine) {
  const std::string most(160, 'a');
  EXPECT_EQ(Quote(most), "'" + most + "'");
  EXPECT_EQ(Quote(most + "a"), "'" + most + "...'");
}

}  // namespace
}  // namespace shardproof::text
