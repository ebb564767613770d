#include "verify/oracle/fixture_models.h"

namespace shardproof::oracle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kName[] = "model.rotary_emb.inv_freq";

/// The text's RoPE of a Llama of hidden size 8 with 4 heads.
RopeCase RopeOf(const std::string& more) {
  const auto model = Declare(Llama(more));
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? *Find(model.value(), kName).rope : RopeCase{.theta = -1};
}

/// The same with heads of `head_dim`, and `rope` as its rope_parameters.
std::string Wide(int head_dim, const std::string& rope, const std::string& more = "") {
  return Llama(
      fmt::format(R"(, "head_dim": {}, "rope_parameters": {{{}}}{})", head_dim, rope, more));
}

TEST(ReadRope, ThetaIsFoundWhereverItIsWritten) {
  const auto theta = [](const std::string& more) {
    const auto model = Declare(Llama(more));
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() ? Find(model.value(), kName).rope->theta : -1;
  };
  EXPECT_EQ(theta(R"(, "rope_theta": 500000)"), 500000);
  EXPECT_EQ(theta(R"(, "rope_theta": 5, "rope_parameters": {"rope_theta": 7.5})"), 7.5);
  EXPECT_EQ(theta(R"(, "rope_parameters": {"rope_type": "default"}, "rope_theta": 6.0)"), 6);
  EXPECT_EQ(theta(R"(, "rope_scaling": null, "rope_theta": 8)"), 8);
  EXPECT_EQ(theta(R"(, "rope_scaling": {"type": "default"})"), 10000);
}

TEST(ReadRope, EveryKindHasItsFields) {
  const auto rope = [](const std::string& text, const std::string& more = "") {
    const auto model = Declare(Wide(8, text, more));
    EXPECT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(Find(model.value(), kName).shape,
              Find(model.value(), "model.rotary_emb.original_inv_freq").shape);
    return *Find(model.value(), kName).rope;
  };
  const RopeCase linear = rope(R"("rope_type": "linear", "factor": 2)");
  EXPECT_EQ(linear.type, "linear");
  EXPECT_EQ(linear.factor, 2);
  EXPECT_EQ(linear.dim, 8);
  EXPECT_EQ(rope(R"("rope_type": "dynamic", "factor": 2)").factor, 1);
  const RopeCase yarn = rope(R"("rope_type": "yarn", "factor": 4, "beta_fast": 16,
      "truncate": false, "original_max_position_embeddings": 77)");
  EXPECT_EQ(yarn.factor, 4);
  EXPECT_EQ(yarn.beta_fast, 16);
  EXPECT_EQ(yarn.beta_slow, 1);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_EQ(yarn.original_max_position_embeddings, 77);
  const RopeCase llama3 = rope(R"("rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192)");
  EXPECT_EQ(llama3.low_freq_factor, 1);
  EXPECT_EQ(llama3.high_freq_factor, 4);
  const RopeCase longrope = rope(
      R"("rope_type": "longrope", "short_factor": [1, 1.5, 2, 3], "long_factor": [9, 9, 9, 9])");
  EXPECT_THAT(longrope.short_factor, ElementsAre(1, 1.5, 2, 3));
  const RopeCase proportional =
      rope(R"("rope_type": "proportional", "partial_rotary_factor": 0.3)");
  EXPECT_EQ(proportional.rotated, 1);  // int(0.3 * 8 // 2)
  EXPECT_EQ(proportional.dim, 8);
  EXPECT_EQ(proportional.factor, 1);
}

TEST(ReadRope, TheOldSpellingWinsAndTypeIsAnOlderWord) {
  EXPECT_EQ(RopeOf(R"(, "rope_scaling": {"type": "linear", "factor": 3})").factor, 3);
  EXPECT_EQ(RopeOf(R"(, "rope_scaling": {"type": "linear", "factor": 3}, "rope_theta": 5)").theta,
            5);
  EXPECT_EQ(RopeOf(R"(, "rope_scaling": {"type": "yarn", "rope_type": "default"})").type,
            "default");
  EXPECT_EQ(RopeOf(R"(, "rope_scaling": {"rope_type": "linear", "factor": 3},
                      "rope_parameters": {"rope_type": "default"})")
                .type,
            "linear");
  EXPECT_EQ(RopeOf(R"(, "rope_scaling": {},
                      "rope_parameters": {"rope_type": "linear", "factor": 2})")
                .type,
            "linear");
}

TEST(ReadRope, TheOriginalContextIsLookedForInThreePlaces) {
  const auto origin = [](const std::string& in, const std::string& beside) {
    return RopeOf(fmt::format(R"(, "rope_parameters": {{"rope_type": "yarn", "factor": 2{}}}{})",
                              in, beside))
        .original_max_position_embeddings;
  };
  const std::string inner = R"(, "original_max_position_embeddings": 10)";
  const std::string outer = R"(, "original_max_position_embeddings": 20)";
  const std::string context = R"(, "max_position_embeddings": 30)";
  EXPECT_EQ(origin(inner, outer + context), 20);
  EXPECT_EQ(origin(inner, context), 10);
  EXPECT_EQ(origin("", context), 30);
  EXPECT_EQ(origin("", ""), 2048);
}

TEST(ReadRope, PartOfAHeadIsRotatedWhereTheKindKnowsIt) {
  const auto count = [](const std::string& rope, const std::string& more = "") {
    const auto model = Declare(Wide(10, rope, more));
    EXPECT_TRUE(model.ok()) << model.error().message;
    return Find(model.value(), kName).shape[0];
  };
  const std::string linear = R"("rope_type": "linear", "factor": 2)";
  EXPECT_EQ(count(linear + R"(, "partial_rotary_factor": 0.4)"), 2);
  EXPECT_EQ(count(linear, R"(, "partial_rotary_factor": 0.4)"), 2);
  EXPECT_EQ(count(linear + R"(, "partial_rotary_factor": 0.5)"), 3);  // 5 dims, rounded up
  EXPECT_EQ(count(R"("partial_rotary_factor": 0.4)"), 5);
  EXPECT_EQ(count(R"("rope_type": "proportional", "partial_rotary_factor": 0.4)"), 5);
}

TEST(ReadRope, RefusesUnknownKindsAndWhatAKindLacks) {
  const auto error = [](const std::string& rope) { return ErrorOf(Wide(10, rope)); };
  EXPECT_THAT(error(R"("rope_type": "su")"),
              HasSubstr("rope_parameters: rope_type: expected one of the known kinds of RoPE: "
                        "default, linear, dynamic, yarn, longrope, llama3 or proportional, found "
                        "string 'su'"));
  EXPECT_THAT(error(R"("type": "mrope")"), HasSubstr("type: expected one of the known"));
  EXPECT_THAT(error(R"("rope_type": 3)"), HasSubstr("rope_type: expected a string"));
  for (const char* kind : {"linear", "dynamic", "yarn", "llama3"}) {
    const std::string named = fmt::format(R"("rope_type": "{}")", kind);
    EXPECT_THAT(error(named), HasSubstr("factor: expected a number above 0")) << kind;
    EXPECT_THAT(error(named + R"(, "factor": -1)"), HasSubstr("found -1")) << kind;
  }
  const std::string llama3 = R"("rope_type": "llama3", "factor": 8, "low_freq_factor": 1)";
  EXPECT_THAT(error(llama3), HasSubstr("high_freq_factor: expected a number"));
  EXPECT_THAT(error(llama3 + R"(, "high_freq_factor": 1)"), HasSubstr("another number"));
  const std::string longrope = R"("rope_type": "longrope", "long_factor": [1, 2, 3, 4, 5])";
  EXPECT_THAT(error(longrope), HasSubstr("short_factor: expected 5 numbers, one a frequency, found "
                                         "nothing"));
  EXPECT_THAT(error(longrope + R"(, "short_factor": [1, 2])"), HasSubstr("found 2"));
  EXPECT_THAT(error(longrope + R"(, "short_factor": [1, 2, 3, 4, "5"])"),
              HasSubstr("short_factor[4]: expected a number"));
  EXPECT_THAT(error(longrope + R"(, "short_factor": 7)"), HasSubstr("an array of numbers"));
}

TEST(ReadRope, RefusesValuesThatCannotBe) {
  const auto error = [](const std::string& rope) { return ErrorOf(Wide(10, rope)); };
  EXPECT_THAT(error(R"("full_attention": {"rope_theta": 1})"), HasSubstr("full_attention"));
  EXPECT_THAT(error(R"("rope_theta": 1e39)"), HasSubstr("rope_theta: expected a number"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "rope_theta": -1)")), HasSubstr("rope_theta: expected a number"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "rope_theta": "10000")")), HasSubstr("found string '10000'"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "rope_scaling": [1])")), HasSubstr("rope_scaling: expected an "
                                                                    "object"));
  EXPECT_THAT(error(R"("partial_rotary_factor": 1.5)"), HasSubstr("a number from 0 to 1"));
  const std::string yarn = R"("rope_type": "yarn", "factor": 2)";
  EXPECT_THAT(error(yarn + R"(, "partial_rotary_factor": 0.5)"), HasSubstr("an even number"));
  EXPECT_THAT(error(yarn + R"(, "partial_rotary_factor": 0.1)"), HasSubstr("leaves 2 dims or"));
  EXPECT_THAT(error(yarn + R"(, "rope_theta": 1)"), HasSubstr("above 1 for yarn"));
  EXPECT_THAT(error(yarn + R"(, "truncate": 1)"), HasSubstr("true or false"));
  EXPECT_THAT(error(yarn + R"(, "original_max_position_embeddings": 0)"), HasSubstr("found 0"));
  EXPECT_THAT(error(R"("rope_type": "dynamic", "factor": 2, "partial_rotary_factor": 0.2)"),
              HasSubstr("more than 2 dims"));
}

}  // namespace
}  // namespace shardproof::oracle
