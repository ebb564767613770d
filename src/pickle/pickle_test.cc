// Pickles written by hand, opcode by opcode: what is read, and that what would act is refused.
#include "src/pickle/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace shardproof::pickle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::string_literals;

std::string TextOfPickle(const std::string& body) {
  const auto pickle = ReadPickle("\x80\x04" + body, "p");
  EXPECT_TRUE(pickle.ok()) << pickle.error().message;
  if (!pickle.ok()) return "";
  const auto text = TextOf(pickle.value().root());
  EXPECT_TRUE(text.ok()) << text.error().message;
  return text.ok() ? text.value() : "";
}

std::string ErrorOf(const std::string& bytes) {
  const auto pickle = ReadPickle(bytes, "p");
  EXPECT_FALSE(pickle.ok());
  if (pickle.ok()) return "";
  EXPECT_TRUE(pickle.error().code == ErrorCode::kBadInput ||
              pickle.error().code == ErrorCode::kUnsupported);
  EXPECT_THAT(pickle.error().message, Not(HasSubstr("\n")));
  return pickle.error().message;
}

std::string ErrorOfBody(const std::string& body) { return ErrorOf("\x80\x04" + body); }

TEST(Pickle, ReadsNumbersTextsAndContainers) {
  EXPECT_EQ(TextOfPickle("N."), "None");
  EXPECT_EQ(TextOfPickle("\x88."), "True");
  EXPECT_EQ(TextOfPickle("K\x07."), "7");
  EXPECT_EQ(TextOfPickle("M\x01\x02."), "513");
  EXPECT_EQ(TextOfPickle("J\xff\xff\xff\xff."), "-1");
  EXPECT_EQ(TextOfPickle("\x8a\x01\x80."), "-128");
  EXPECT_EQ(TextOfPickle("\x8a\x02\xff\x00."s), "255");
  EXPECT_EQ(TextOfPickle("\x8a\x00."s), "0");
  EXPECT_EQ(TextOfPickle("G\x3f\xf8\0\0\0\0\0\0."s), "1.5");
  EXPECT_EQ(TextOfPickle("G\x40\0\0\0\0\0\0\0."s), "2.0");
  EXPECT_EQ(TextOfPickle("\x8c\x03"
                         "abc."),
            "'abc'");
  EXPECT_EQ(TextOfPickle("X\x02\0\0\0hi."s), "'hi'");
  EXPECT_EQ(TextOfPickle("C\x02\x00\xff."s), "b'\\x00\\xff'");
  EXPECT_EQ(TextOfPickle(")."), "()");
  EXPECT_EQ(TextOfPickle("K\x01\x85."), "(1,)");
  EXPECT_EQ(TextOfPickle("K\x01K\x02K\x03\x87."), "(1, 2, 3)");
  EXPECT_EQ(TextOfPickle("](K\x01K\x02"
                         "e."),
            "[1, 2]");
  EXPECT_EQ(TextOfPickle("](K\x01"
                         "eK\x02"
                         "a."),
            "[1, 2]");
  EXPECT_EQ(TextOfPickle("}(K\x01NK\x02\x89u."), "{1: None, 2: False}");
  EXPECT_EQ(TextOfPickle("\x8f(K\x01\x90."), "{1}");
  EXPECT_EQ(TextOfPickle("(K\x01K\x02t."), "(1, 2)");
}

/// A list of so many references to one tuple of 4,000 numbers, and of so many numbers after them.
std::string Repeated(int tuples, int numbers) {
  std::string body = "](("s;
  for (int i = 0; i < 4000; ++i) body += "K\x07";
  body += "t\x94";
  for (int i = 1; i < tuples; ++i) body += "h\x00"s;
  for (int i = 0; i < numbers; ++i) body += "K\x07";
  return body + "e.";
}

TEST(Pickle, WritesAsManyPartsAsAreAllowedAndNoMore) {
  // 1 + 3,999 * 4,001 are 16,000,000.
  EXPECT_EQ(TextOfPickle(Repeated(3999, 0)).size(), 2u + 3999 * (2 + 4000 * 3) - 2);
  const auto pickle = ReadPickle("\x80\x04" + Repeated(3999, 1), "p");
  ASSERT_TRUE(pickle.ok()) << pickle.error().message;
  const auto text = TextOf(pickle.value().root());
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.error().message, HasSubstr("more than 16000000 parts"));
}

TEST(Pickle, SharesWhatItRemembers) {
  EXPECT_EQ(TextOfPickle("](K\x01"
                         "e\x94"
                         "0h\0h\0\x86."s),
            "([1], [1])");
  EXPECT_EQ(TextOfPickle("]q\x05K\x01"
                         "a0h\x05."),
            "[1]");
  EXPECT_THAT(ErrorOfBody("Nh\x05."), HasSubstr("memo 5 to be set"));
}

TEST(Pickle, MakesObjectsOfNamesInItsTable) {
  EXPECT_EQ(TextOfPickle("ctorch\nSize\n(K\x02K\x03t\x85R."), "(2, 3)");
  EXPECT_EQ(TextOfPickle("ccollections\nOrderedDict\n)R(\x8c\x01"
                         "aK\x01u."),
            "{'a': 1}");
  EXPECT_EQ(TextOfPickle("\x8c\x05torch\x8c\x07"
                         "float32\x93."),
            "torch.float32");
  EXPECT_EQ(TextOfPickle("cpathlib\nPosixPath\n\x8c\x01"
                         "a\x85R."),
            "pathlib.PosixPath('a')");
  EXPECT_EQ(TextOfPickle("c_codecs\nencode\n\x8c\x04"
                         "a\xc3\xbfz\x8c\x06latin1\x86R."),
            "b'a\\xffz'");
}

TEST(Pickle, RefusesWhatWouldAct) {
  for (const char* name :
       {"os\nsystem", "posix\nsystem", "builtins\neval", "builtins\nexec", "builtins\n__import__",
        "subprocess\nPopen", "torch\nload", "torch.storage\n_load_from_bytes", "runpy\nrun_path",
        "builtins\ngetattr.x", "torch.hub\nload", "numpy\nload", "operator\nattrgetter"}) {
    const std::string body = "c"s + name + "\n\x8c\x04true\x85R.";
    EXPECT_THAT(ErrorOfBody(body),
                AllOf(HasSubstr("offset 2"), HasSubstr("neither imported nor called")))
        << name;
  }
  EXPECT_THAT(ErrorOfBody("\x8c\x02os\x8c\x06system\x93."), HasSubstr("'os.system'"));
  EXPECT_THAT(ErrorOfBody("i_os\nsystem\n."), HasSubstr("an opcode that checkpoints need"));
  EXPECT_THAT(ErrorOfBody("\x82\x01."), HasSubstr("0x82"));
  // getattr reaches anything: only a name of the table, and a text.
  EXPECT_THAT(ErrorOfBody("cbuiltins\ngetattr\n]\x8c\x05"
                          "clear\x86R."),
              HasSubstr("a name of this table"));
  EXPECT_THAT(ErrorOfBody("ctorch\nfloat32\n)R."), HasSubstr("a name that may be called"));
  EXPECT_THAT(ErrorOfBody("K\x01)R."), HasSubstr("a name to call"));
  // What getattr gave is a name that no table has: it cannot be called.
  EXPECT_THAT(ErrorOfBody("cbuiltins\ngetattr\nccollections\nOrderedDict\n\x8c\x05"
                          "clear\x86R)R."),
              HasSubstr("a name that may be called, found 'collections.OrderedDict.clear'"));
}

std::string OpaqueText(const std::string& body) {
  const auto pickle = ReadPickle("\x80\x04" + body, "p", UnknownNames::kKeep);
  if (!pickle.ok()) return pickle.error().message;
  std::string text = TextOf(pickle.value().root()).value();
  for (const auto& [name, count] : pickle.value().opaque()) {
    text += " | " + name + " " + std::to_string(count);
  }
  return text;
}

TEST(Pickle, KeepsWhatItDoesNotKnowWhereAsked) {
  EXPECT_EQ(OpaqueText("cdeepspeed.zero\nStage\nK\x03\x85R."),
            "deepspeed.zero.Stage(3) | deepspeed.zero.Stage 1");
  EXPECT_EQ(OpaqueText("cmy\nType\n."), "my.Type | my.Type 0");
  // An object with options, a state and items; and one that leads back to itself.
  EXPECT_EQ(OpaqueText("cmy\nC\n)}\x8c\x01"
                       "aK\x01s\x92(K\x05"
                       "e}b."),
            "my.C('a', 1, 5) with {} | my.C 1");
  EXPECT_EQ(OpaqueText("cmy\nC\n)\x81\x94}\x8c\x01"
                       "ch\0sb."s),
            "my.C() with {'c': my.C(...)} | my.C 1");
  EXPECT_EQ(OpaqueText("cbuiltins\nValueError\n\x8c\x01"
                       "x\x85R."),
            "builtins.ValueError('x') | builtins.ValueError 1");
  // What it made is not called either, nor what getattr finds in it.
  EXPECT_EQ(OpaqueText("cmy\nf\n)R)R."), "my.f() | my.f 2");
  EXPECT_EQ(OpaqueText("cbuiltins\ngetattr\ncmy\nC\n\x8c\x01"
                       "m\x86R)R."),
            "my.C.m() | my.C 0 | my.C.m 1");
  for (const char* name : {"os\nsystem", "posix\nsystem", "builtins\neval", "subprocess\nPopen",
                           "torch.hub\nload", "importlib.util\nfind_spec", "builtins\nopen",
                           "__builtin__\napply", "builtins\nobject.x"}) {
    EXPECT_THAT(OpaqueText("c"s + name + "\n\x8c\x04true\x85R."),
                HasSubstr("neither imported nor called"))
        << name;
  }
}

TEST(Pickle, RefusesClaimsBeyondItsBytes) {
  EXPECT_THAT(ErrorOfBody("\x8e\xff\xff\xff\xff\xff\xff\xff\x7f"
                          "a."),
              HasSubstr("bytes of an argument"));
  EXPECT_THAT(ErrorOfBody("\x95\xff\xff\xff\xff\xff\xff\xff\xff"
                          "N."),
              HasSubstr("a frame of at most"));
  EXPECT_THAT(ErrorOfBody("Nr\xff\xff\xff\xff."), HasSubstr("a memo index below"));
  EXPECT_THAT(ErrorOfBody("\x8a\xff\x01."), HasSubstr("255 bytes of an argument"));
  EXPECT_THAT(ErrorOfBody("X\xff\xff\xff\xff"
                          "a."),
              HasSubstr("bytes of an argument"));
  EXPECT_THAT(ErrorOfBody("cabc"), HasSubstr("ends with its line"));
}

TEST(Pickle, RefusesWhatIsCutShortOrHasNoShape) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("found nothing"));
  EXPECT_THAT(ErrorOf("N."), HasSubstr("protocol 2 to 5"));
  EXPECT_THAT(ErrorOf("\x80\x06N."), HasSubstr("protocol 2 to 5, found 6"));
  EXPECT_THAT(ErrorOfBody("N"), HasSubstr("a STOP, found the end"));
  EXPECT_THAT(ErrorOfBody("N.N"), HasSubstr("1 more bytes"));
  EXPECT_THAT(ErrorOfBody("."), HasSubstr("one value on the stack at STOP, found 0"));
  EXPECT_THAT(ErrorOfBody("NN."), HasSubstr("one value on the stack at STOP, found 2"));
  EXPECT_THAT(ErrorOfBody("(N."), HasSubstr("STOP"));
  EXPECT_THAT(ErrorOfBody("t."), HasSubstr("a mark"));
  EXPECT_THAT(ErrorOfBody("N\x86."), HasSubstr("a value on the stack"));
  EXPECT_THAT(ErrorOfBody("NNa."), HasSubstr("a list or set"));
  EXPECT_THAT(ErrorOfBody("](K\x01u."), HasSubstr("a dict to put items into"));
  EXPECT_THAT(ErrorOfBody("}(K\x01u."), HasSubstr("a value to every key"));
  EXPECT_THAT(ErrorOfBody("NNb."), HasSubstr("an object to give its state"));
  EXPECT_THAT(ErrorOfBody("\x8c\x02\xff\xfe."), HasSubstr("UTF-8"));
}

TEST(Pickle, TakesWhatCallsAreGiven) {
  EXPECT_EQ(TextOfPickle("ccollections\nOrderedDict\n\x8c\x01"
                         "aK\x01\x86\x85\x85R."),
            "{'a': 1}");
  EXPECT_EQ(TextOfPickle("ccollections\nOrderedDict\n}(\x8c\x01"
                         "aK\x01u\x85R."),
            "{'a': 1}");
  EXPECT_EQ(TextOfPickle("ccollections\ndefaultdict\ncbuiltins\nlist\n}(\x8c\x01"
                         "aK\x01u\x86R."),
            "{'a': 1}");
  EXPECT_THAT(ErrorOfBody("ccollections\nOrderedDict\nK\x01\x85R."),
              HasSubstr("pairs to collections.OrderedDict"));
  // Protocol 2 spells it otherwise.
  EXPECT_EQ(TextOfPickle("c__builtin__\ncomplex\nK\x01K\x02\x86R."), "builtins.complex(1, 2)");
}

TEST(Pickle, ASetHasNoOrder) {
  EXPECT_EQ(TextOfPickle("\x8f(K\x03K\x01K\x02\x90."), TextOfPickle("\x8f(K\x02K\x03K\x01\x90."));
}

TEST(Pickle, AnObjectHasOneState) {
  const std::string name = "cargparse\nNamespace\n)R";
  EXPECT_EQ(TextOfPickle(name + "}b."), "argparse.Namespace() with {}");
  EXPECT_THAT(ErrorOfBody(name + "}b}b."), HasSubstr("two of argparse.Namespace"));
  EXPECT_THAT(ErrorOfBody("ctorch._utils\n_rebuild_tensor_v2\n)R)b."),
              HasSubstr("an object to give its state"));
  EXPECT_THAT(ErrorOfBody("cargparse\nNamespace\n)RNa."), HasSubstr("a list or set"));
}

TEST(Pickle, NestingHasAnEnd) {
  const auto deep =
      ReadPickle("\x80\x04" + std::string(2'000'000, ']') + std::string(1'999'999, 'a') + ".", "p");
  ASSERT_TRUE(deep.ok());
  EXPECT_THAT(TextOf(deep.value().root()).error().message, HasSubstr("nests deeper than 100"));
  const auto itself = ReadPickle("\x80\x04]\x94h\0a."s, "p");
  ASSERT_TRUE(itself.ok());
  EXPECT_THAT(TextOf(itself.value().root()).error().message, HasSubstr("nests deeper than 100"));
}

TEST(Pickle, SharingDoesNotMultiply) {
  // Each list has the one before it ten times: 10^40 parts, in 41 values.
  std::string body = "]\x94";
  for (int i = 0; i < 40; ++i) {
    body += "](";
    for (int k = 0; k < 10; ++k) body += "h" + std::string(1, static_cast<char>(i));
    body += "e\x94";
  }
  const auto pickle = ReadPickle("\x80\x04(" + body + "l.", "p");
  ASSERT_TRUE(pickle.ok()) << pickle.error().message;
  EXPECT_THAT(TextOf(pickle.value().root()).error().message, HasSubstr("more than 16000000 parts"));
  // A call that copies: torch.Size of one long tuple, over and over.
  std::string copies = "(" + std::string(1'000'000, 'N') +
                       "t\x94"
                       "0(";
  for (int i = 0; i < 2000; ++i) copies += "ctorch\nSize\nh" + "\0"s + "\x85R";
  EXPECT_THAT(ErrorOfBody(copies + "l."), HasSubstr("items"));
}

TEST(Pickle, AnyBytesAreReadOrRefused) {
  std::mt19937_64 draw(1);
  const std::string known =
      "()t]}.0NKMJGXcRbuae\x94\x93\x8c\x85\x86\x87\x81hqr\x8f\x90\x88\x89\n1254";
  for (int i = 0; i < 200'000; ++i) {
    std::string bytes = "\x80\x04";
    const size_t length = draw() % 40;
    for (size_t k = 0; k < length; ++k) {
      bytes.push_back(draw() % 8 == 0 ? static_cast<char>(draw()) : known[draw() % known.size()]);
    }
    const auto pickle = ReadPickle(bytes + ".", "p");
    if (pickle.ok()) (void)TextOf(pickle.value().root());
  }
}

}  // namespace
}  // namespace shardproof::pickle
