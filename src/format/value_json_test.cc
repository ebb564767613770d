#include "src/format/value_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/pickle/pickle_writer.h"

namespace shardproof {
namespace {

using pickle::PickleWriter;
using ::testing::HasSubstr;

/// What a value becomes in JSON, and then in Python's notation.
std::string ThereAndBack(const std::string& bytes, std::string* json = nullptr) {
  const auto read = pickle::ReadPickle(bytes, "it");
  EXPECT_TRUE(read.ok());
  const auto written = JsonOfValue(read.value().root());
  if (!written.ok()) return written.error().message;
  const std::string text = written.value().dump();
  if (json != nullptr) *json = text;
  const auto again = PickleOfJson(nlohmann::json::parse(text), "it");
  if (!again.ok()) return again.error().message;
  const auto back = pickle::ReadPickle(again.value(), "it");
  EXPECT_TRUE(back.ok());
  const auto shown = pickle::TextOf(back.value().root());
  return shown.ok() ? shown.value() : shown.error().message;
}

template <typename Put>
std::string Pickled(Put put) {
  PickleWriter out;
  put(out);
  return out.Finish();
}

TEST(ValueJson, KeepsEveryKindOfValue) {
  std::string json;
  EXPECT_EQ(ThereAndBack(Pickled([](PickleWriter& out) {
                           out.EmptyList();
                           out.Mark();
                           out.None();
                           out.Bool(true);
                           out.Integer(-7);
                           out.Integer(std::numeric_limits<int64_t>::min());
                           out.Integer(std::numeric_limits<int64_t>::max());
                           out.Text("a'\n");
                           out.Mark();
                           out.Float(0.9);
                           out.Tuple();
                           out.EmptyTuple();
                           out.EmptyDict();
                           out.Mark();
                           out.Integer(1);
                           out.Text("x");
                           out.SetItems();
                           out.Appends();
                         }),
                         &json),
            "[None, True, -7, -9223372036854775808, 9223372036854775807, 'a\\'\\x0a', (0.9,), (), "
            "{1: 'x'}]");
  EXPECT_THAT(json, HasSubstr(R"({"tuple":[0.9]})"));
}

TEST(ValueJson, KeepsTheBitsOfFloats) {
  for (const double value :
       {0.0, -0.0, 1.0, 1e22, 0.1, 1.0 / 3, 5e-324, std::numeric_limits<double>::max(), HUGE_VAL,
        -HUGE_VAL, std::nan("7")}) {
    const std::string bytes = Pickled([&](PickleWriter& out) { out.Float(value); });
    const auto read = pickle::ReadPickle(bytes, "it");
    ASSERT_TRUE(read.ok());
    const auto shown = pickle::TextOf(read.value().root());
    ASSERT_TRUE(shown.ok());
    EXPECT_EQ(ThereAndBack(bytes), shown.value());
  }
}

TEST(ValueJson, RefusesWhatHasNoForm) {
  EXPECT_THAT(ThereAndBack(Pickled([](PickleWriter& out) { out.Name("torch", "float32"); })),
              HasSubstr("has no form in JSON"));
  EXPECT_THAT(ThereAndBack(Pickled([](PickleWriter& out) {
                for (int i = 0; i < 60; ++i) {
                  out.EmptyList();
                  out.Mark();
                }
                for (int i = 0; i < 60; ++i) out.Appends();
              })),
              HasSubstr("nests deeper"));
}

TEST(ValueJson, RefusesJsonThatItDidNotWrite) {
  for (const char* text :
       {R"({})", R"({"tuple": 1})", R"({"set": []})", R"({"tuple": [], "dict": []})",
        R"({"dict": [1]})", R"({"dict": [[1]]})", R"({"float": 1})", R"({"float": "7ff"})",
        R"({"float": "7ff000000000000g"})", R"([18446744073709551615])", R"([[{"x": 0}]])"}) {
    const auto made = PickleOfJson(nlohmann::json::parse(text), "values.json: 'lr'");
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_EQ(made.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(made.error().message, HasSubstr("values.json: 'lr': expected null, a boolean"));
  }
}

}  // namespace
}  // namespace shardproof
