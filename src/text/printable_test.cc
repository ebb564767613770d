#include "src/text/printable.h"

#include <gtest/gtest.h>

namespace shardproof {
namespace {

TEST(Printable, KeepsTextAndSpellsOutWhatIsNone) {
  const std::string text = "w.0 \u00a0 \u00e9 \u07ff \u0800 \uffdf \U0001f600 \U0010fffd";
  EXPECT_EQ(Printable(text), text);
  EXPECT_EQ(Printable("a\x1b[2J\x7f"), "a\\x1b[2J\\x7f");
  EXPECT_EQ(Printable("a\nb"), "a\\nb");
  EXPECT_EQ(Printable("a\nb", true), "a\nb");
}

TEST(Printable, SpellsOutBytesThatAreNotUtf8) {
  EXPECT_EQ(Printable("\xc1\x81"), "\\xc1\\x81");                    // longer than it need be
  EXPECT_EQ(Printable("\xe0\x9f\xbf"), "\\xe0\\x9f\\xbf");           // likewise
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // half of a pair
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond the last code
  EXPECT_EQ(Printable("\xc3"), "\\xc3");                             // cut short
  EXPECT_EQ(Printable("\xa9z"), "\\xa9z");                           // begins in the middle
}

TEST(Printable, SpellsOutWhatMovesACursorOrTurnsALineAround) {
  EXPECT_EQ(Printable("\u0085"), "\\xc2\\x85");
  EXPECT_EQ(Printable("\u200e\u2028\u2069"), "\\xe2\\x80\\x8e\\xe2\\x80\\xa8\\xe2\\x81\\xa9");
  EXPECT_EQ(Printable("\uffff"), "\\xef\\xbf\\xbf");
}

TEST(XmlEscaped, ReadsBackAsWhatItWas) {
  EXPECT_EQ(XmlEscaped("a<b> & \"c\"\n\x01"), "a&lt;b&gt; &amp; &quot;c&quot;&#10;\\x01");
}

TEST(ShellQuoted, IsOneWord) {
  EXPECT_EQ(ShellQuoted("--world=4"), "--world=4");
  EXPECT_EQ(ShellQuoted(""), "''");
  EXPECT_EQ(ShellQuoted("it's $HOME"), "'it'\\''s $HOME'");
}

TEST(Amounts, AreGroupedAndInTheRightNumber) {
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(Plural(1, "rank"), "1 rank");
  EXPECT_EQ(Plural(0, "rank"), "0 ranks");
}

TEST(Wrapped, BreaksAtSpacesAndIndentsWhatFollows) {
  EXPECT_EQ(Wrapped("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(Wrapped("one two three", 0, 2), "one two three");
  EXPECT_EQ(Wrapped("unbreakable word", 5, 1), "unbreakable\n word");
}

}  // namespace
}  // namespace shardproof
