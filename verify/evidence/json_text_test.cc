// What is written is the JSON that a library reads back to the same values.
#include "verify/evidence/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

namespace shardproof {
namespace {

using nlohmann::json;

TEST(JsonText, MembersAndElementsAreSeparated) {
  JsonText out;
  out.Begin('{')
      .Begin("empty", '[')
      .End(']')
      .Begin("none", '{')
      .End('}')
      .Add("a", 1)
      .Begin("list", '[');
  out.Add("x")
      .Begin('{')
      .Add("b", true)
      .Add("c", false)
      .End('}')
      .Begin('[')
      .End(']')
      .AddRaw("null")
      .End(']');
  out.Add("names", std::vector<std::string>{"p", "q"})
      .Add("options", std::map<std::string, std::string>{{"k", "v"}});
  out.Add("nested", std::vector<std::vector<int64_t>>{{1, 2}, {}, {3}}).End('}');
  EXPECT_EQ(out.text(), R"({"empty":[],"none":{},"a":1,"list":["x",{"b":true,"c":false},[],null],)"
                        R"("names":["p","q"],"options":{"k":"v"},"nested":[[1,2],[],[3]]})");
}

TEST(JsonText, TextIsReadBackAsItWas) {
  std::string all;  // of ASCII, and some beyond it
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  for (const std::string& text :
       {std::string(), std::string("model.layers.0.weight"), all, std::string("[{:,"),
        std::string("\"quoted\\"), std::string("größe \u4e2d"), std::string(1, '\0')}) {
    JsonText out;
    out.Begin('{').Add(text, text).Add("next", text).End('}');
    const json read = json::parse(out.text());
    EXPECT_EQ(read, (json{{text, text}, {"next", text}})) << out.text();
    EXPECT_EQ(out.text().find('\n'), std::string::npos);
  }
}

TEST(JsonText, BytesThatAreNoTextAreReplaced) {
  JsonText out;
  out.Begin('[').Add("a\xff").Add("\xc3").End(']');
  EXPECT_EQ(json::parse(out.text()), (json{"a\ufffd", "\ufffd"}));
}

TEST(JsonText, NumbersAreExact) {
  const std::vector<double> reals = {0.1, -0.0, 1.0, 1e300,
                                     std::numeric_limits<double>::denorm_min()};
  JsonText out;
  out.Begin('[')
      .Add(INT64_MIN)
      .Add(INT64_MAX)
      .Add(UINT64_MAX)
      .Add(int64_t{-1})
      .Add(0)
      .Add(reals)
      .End(']');
  const json read = json::parse(out.text());
  EXPECT_EQ(read[0].get<int64_t>(), INT64_MIN);
  EXPECT_EQ(read[1].get<int64_t>(), INT64_MAX);
  EXPECT_EQ(read[2].get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(read[3].get<int64_t>(), -1);
  EXPECT_EQ(read[4].get<int64_t>(), 0);
  EXPECT_EQ(read[5].get<std::vector<double>>(), reals);
  EXPECT_TRUE(std::signbit(read[5][1].get<double>()));
}

}  // namespace
}  // namespace shardproof
