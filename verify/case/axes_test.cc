#include "verify/case/axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/case/case_json.h"

namespace shardproof {
namespace {

using ::testing::HasSubstr;

const std::vector<AxisCase> kMesh = {
    {"ep", 4, {"dp_shard", "cp"}}, {"dp_shard", 4}, {"tp", 3}, {"cp", 2}};

TEST(Axes, ThoseThatAreLaidOverOthersDoNotMultiplyTheWorld) {
  EXPECT_EQ(RanksOf(kMesh), 24);
  EXPECT_EQ(WorldAxes(kMesh), (std::vector<AxisCase>{{"dp_shard", 4}, {"tp", 3}, {"cp", 2}}));
  EXPECT_EQ(LaidOver(kMesh), (std::vector<AxisCase>{{"ep", 4, {"dp_shard", "cp"}}}));
  EXPECT_EQ(MeshText(kMesh), "dp_shard 4 x tp 3 x cp 2, ep 4 over dp_shard and cp");
  EXPECT_EQ(RanksOf({{"a", int64_t{1} << 40}, {"b", int64_t{1} << 40}}), 0);
}

TEST(Axes, OneThatIsLaidOverOthersIsTheirInnerPart) {
  const std::vector<AxisCase> world = WorldAxes(kMesh);
  EXPECT_EQ(RestOf(world, kMesh[0]), (AxisCase{"dp_shard_cp_mod_ep", 2}));
  // Of dp_shard 3, tp 1, cp 0 the place among 8 is 6, wherever it is on tp.
  EXPECT_EQ(CoordinatesOver(world, {3, 1, 0}, kMesh[0]), (std::pair<int64_t, int64_t>(1, 2)));
  EXPECT_EQ(CoordinatesOver(world, {0, 2, 1}, kMesh[0]), (std::pair<int64_t, int64_t>(0, 1)));
}

std::string FaultOf(const AxisCase& axis, std::vector<AxisCase> mesh = {{"dp", 4}, {"tp", 2}}) {
  mesh.push_back(axis);
  return AxisFault(mesh, axis);
}

TEST(Axes, WhatIsWrongWithOneIsSaidOfIt) {
  EXPECT_EQ(FaultOf({"ep", 2, {"dp"}}), "");
  EXPECT_EQ(FaultOf({"ep", 8, {"tp", "dp"}}), "");
  EXPECT_EQ(FaultOf({"ep", 3, {"dp"}}),
            "axis ep: expected a size that divides the 4 ranks of dp, found 3");
  EXPECT_EQ(FaultOf({"ep", 0, {"dp"}}),
            "axis ep: expected a size that divides the 4 ranks of dp, found 0");
  EXPECT_EQ(FaultOf({"ep", 2, {"nothing"}}),
            "axis ep is laid over nothing, which is no axis of the mesh: expected one of dp, tp");
  EXPECT_EQ(FaultOf({"ep", 2, {"ep"}}), "axis ep is laid over itself");
  EXPECT_EQ(FaultOf({"ep", 2, {"dp", "dp"}}), "axis ep is laid over dp twice");
  EXPECT_THAT(FaultOf({"x", 2, {"ep"}}, {{"dp", 4}, {"ep", 2, {"dp"}}}),
              HasSubstr("which is laid over others itself: expected one of dp"));
  EXPECT_THAT(FaultOf({"ep", 2, {"dp"}}, {{"dp", 4}, {"dp_mod_ep", 2}}),
              HasSubstr("axis dp_mod_ep has the name of what axis ep leaves of dp"));
  EXPECT_THAT(FaultOf({"ep", 2, {"x"}}, {}), HasSubstr("the mesh has none that multiplies"));
  const int64_t many = int64_t{1} << 40;
  EXPECT_THAT(FaultOf({"ep", 2, {"a", "b"}}, {{"a", many}, {"b", many}}),
              HasSubstr("more ranks than can be counted"));
}

std::string RefusalOf(const char* subject, const char* mesh) {
  const auto parsed = ParseCaseText(std::string(R"({"schema": 1, "subject": ")") + subject +
                                    R"(", "model": {"checkpoint": "dir"}, "mesh": )" + mesh + "}");
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(Axes, OfACaseAreThoseOfASubject) {
  const char* mesh = R"([{"name": "dp", "size": 4}, {"name": "ep", "size": 2, "over": ["dp"]}])";
  EXPECT_EQ(RefusalOf("s.py", mesh), "");
  const char* known =
      R"([{"name": "dp_shard", "size": 4}, {"name": "ep", "size": 2, "over": ["dp_shard"]}])";
  EXPECT_THAT(RefusalOf("reference", known),
              HasSubstr("/mesh/1/over: axis ep is laid over dp_shard, which only subjects"));
  EXPECT_THAT(RefusalOf("s.py", R"([{"name": "ep", "size": 2, "over": ["dp"]}])"),
              HasSubstr("/mesh/0/over: axis ep is laid over dp, which is no axis"));
  EXPECT_THAT(RefusalOf("s.py", R"([{"name": "dp", "size": 4}, {"name": "dp", "size": 2,
                                     "over": ["dp"]}])"),
              HasSubstr("given twice"));
  EXPECT_THAT(RefusalOf("s.py", R"([{"name": "dp", "size": 1024}, {"name": "tp", "size": 1024},
                                    {"name": "ep", "size": 2, "over": ["dp"]}])"),
              HasSubstr("at most 1024 ranks, found more at axis tp"));
}

}  // namespace
}  // namespace shardproof
