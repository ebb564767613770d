#include "verify/quantised/quantisation.h"

#include <gtest/gtest.h>

namespace shardproof {
namespace {

TEST(ModulePattern, FitsWhatItsWritersMean) {
  const std::string module = "model.layers.0.self_attn.q_proj";
  for (const char* text : {"re:.*q_proj", "re:.*self_attn.*", "re:model\\.layers\\.\\d+\\.",
                           "model", "self_attn", "model.*q_proj", "re:no|model"}) {
    EXPECT_TRUE(ModulePattern(text).Fits(module)) << text;
    EXPECT_TRUE(ModulePattern(text).MayFit(module)) << text;
  }
  for (const char* text : {"re:layers.*", "re:x.layers|q_proj$", "language_model.layers.*"}) {
    EXPECT_FALSE(ModulePattern(text).Fits(module)) << text;
  }
  for (const char* text : {"re:layers.*", "re:x.layers|q_proj$", "x.layers.0.self_attn.q_proj"})
    EXPECT_TRUE(ModulePattern(text).MayFit(module)) << text;
  for (const char* text : {"re:.*k_proj", "re:(", "re:", "", "q"}) {
    EXPECT_EQ(ModulePattern(text).Fits(module), std::string(text) == "re:") << text;
  }
}

TEST(ModulePattern, EndsForHostileOnes) {
  const std::string endless(400'000, 'x');
  EXPECT_TRUE(ModulePattern("re:.*q_proj").Fits(endless + ".q_proj"));
  EXPECT_FALSE(ModulePattern("re:(x*)*y").MayFit(endless));
  EXPECT_FALSE(ModulePattern("re:(x*)*y").MayFit(std::string(40, 'x')));
  EXPECT_FALSE(ModulePattern("re:(((x?){200}){200}){200}").MayFit("y."));
}

}  // namespace
}  // namespace shardproof
