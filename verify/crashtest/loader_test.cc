#include "verify/crashtest/loader.h"

#include <gtest/gtest.h>

namespace shardproof::crashtest {
namespace {

using std::chrono::milliseconds;

Loading LoadBy(const std::string& script, milliseconds deadline = milliseconds(10000)) {
  const auto loader = MakeCommandLoader({"sh", "-c", script}, deadline);
  const auto loading = loader->Load("/some/where", {"command", "", {}});
  EXPECT_TRUE(loading.ok()) << loading.error().message;
  return loading.ok() ? loading.value() : Loading{};
}

TEST(CommandLoader, AnswersWhatTheCommandSays) {
  const Loading loaded = LoadBy("echo {} and {}; echo noise >&2");
  EXPECT_EQ(loaded.end, Loading::End::kLoaded);
  EXPECT_EQ(loaded.answer, "/some/where and /some/where\n");
}

TEST(CommandLoader, ARefusalHasTheLastLineAsItsReason) {
  const Loading refused = LoadBy("echo first >&2; echo 'no header ' >&2; echo >&2; exit 3");
  EXPECT_EQ(refused.end, Loading::End::kRefused);
  EXPECT_EQ(refused.line, "no header");
  EXPECT_EQ(LoadBy("exit 1").line, "");
}

TEST(CommandLoader, OneThatIsKilledOrNeverEndsHasDied) {
  EXPECT_EQ(LoadBy("kill -SEGV $$").end, Loading::End::kDied);
  EXPECT_EQ(LoadBy("kill -SEGV $$").line, "signal 11");
  EXPECT_EQ(LoadBy("sleep 60", milliseconds(50)).end, Loading::End::kDied);
}

TEST(CommandLoader, OneThatCannotBeStartedIsAnError) {
  const auto loader = MakeCommandLoader({"/no/such/loader", "{}"}, milliseconds(1000));
  EXPECT_FALSE(loader->Load("/some/where", {}).ok());
}

TEST(PythonLoader, APythonThatCannotLoadIsAnError) {
  // Not a Python at all: it says nothing that is understood.
  const auto silent = MakePythonLoader("true", "/no/such/package", milliseconds(1000));
  ASSERT_FALSE(silent.ok());
  EXPECT_EQ(silent.error().message, "true ended without an answer");
}

TEST(What, IsToldInWords) {
  EXPECT_EQ((What{"dcp", "", {}}).Text(), ". by torch.distributed.checkpoint.load");
  EXPECT_EQ((What{"torch", "a/b", {"x.pt", "y.pt"}}).Text(), "a/b/x.pt, a/b/y.pt by torch.load");
}

}  // namespace
}  // namespace shardproof::crashtest
