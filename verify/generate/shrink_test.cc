#include "verify/generate/shrink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "verify/case/case_json.h"
#include "verify/case/fixture_fields.h"
#include "verify/generate/generate.h"

namespace shardproof {
namespace {

/// The first simpler case of which `wanted` holds, until none is left.
Case Smallest(Case test_case, const std::function<bool(const Case&)>& wanted) {
  for (int steps = 0; steps < 10000; ++steps) {
    bool found = false;
    for (Case& simpler : SimplerCases(test_case)) {
      if (!wanted(simpler)) continue;
      test_case = std::move(simpler);
      found = true;
      break;
    }
    if (!found) return test_case;
  }
  ADD_FAILURE() << "there is no end to simpler cases";
  return test_case;
}

TEST(SimplerCases, AreValidAndOther) {
  for (uint64_t index = 0; index < 100; ++index) {
    const Case from = GenerateCase({}, 4, index);
    for (const Case& simpler : SimplerCases(from)) {
      EXPECT_NE(CaseToJson(simpler), CaseToJson(from));
      const auto parsed = ParseCase(CaseToJson(simpler));
      EXPECT_TRUE(parsed.ok()) << parsed.error().message;
    }
  }
}

TEST(SimplerCases, OfAnAxisThatIsLaidOverOthersAreValid) {
  Case from = GenerateCase({}, 4, 1);
  from.subject = "s.py";
  from.transport = "gloo";
  from.faults.clear();
  from.resume_mesh.clear();
  from.mesh = {{"dp_shard", 4}, {"tp", 2}, {"ep", 4, {"dp_shard", "tp"}}};
  const auto smallest = [&](const auto& wanted) { return Smallest(from, wanted).mesh; };
  const auto has_ep = [](const Case& c) { return !c.mesh.empty() && !c.mesh.back().over.empty(); };
  EXPECT_EQ(smallest([](const Case&) { return true; }), (std::vector<AxisCase>{{"dp_shard", 1}}));
  EXPECT_EQ(smallest(has_ep),
            (std::vector<AxisCase>{{"dp_shard", 1}, {"tp", 1}, {"ep", 1, {"dp_shard", "tp"}}}));
  for (const Case& simpler : SimplerCases(from)) EXPECT_TRUE(ParseCase(CaseToJson(simpler)).ok());
}

/// A generated case; now and then with what no generated case has, though a row says how it
/// shrinks.
Case CaseToShrink(uint64_t index) {
  Case from = GenerateCase({}, 4, index);
  from.device_bytes = index % 3 == 0 ? 1 << 20 : 0;
  if (index % 5 == 0) from.options["lazy"] = "1";
  if (index % 7 == 0) from.faults = {{"rank/kill", "0@built"}};
  from.as_stated = index % 14 == 0;
  TrainingCase& training = from.training;  // what is seldom drawn
  if (training.unfreeze_after > 0 && from.steps > training.unfreeze_after + 1)
    training.unfrozen_steps = 1;
  return from;
}

/// Of one case: that what its rows say can be shrunk is simpler in one of these.
void ExpectShrunkFields(Case& from, std::vector<Case> simpler, std::set<std::string>& shrunk) {
  for (const FieldOfCase& field : FieldsOf(from)) {
    const FieldShrink how = field.row->shrink;
    const bool is_tried = std::any_of(simpler.begin(), simpler.end(), [&](Case& c) {
      const FieldOfCase tried = FieldAt(c, field.path);
      return how == FieldShrink::kToDefault ? IsUsual(tried) : !IsSame(tried, field);
    });
    // One of which the mesh can be no smaller has none.
    if (IsUsual(field) || (field.path == "mesh" && from.WorldSize() == 1)) continue;
    if (field.path == "model/tensors") continue;
    EXPECT_EQ(is_tried, how != FieldShrink::kNever) << field.path << " of " << CaseToJson(from);
    if (is_tried) shrunk.insert(field.path);
  }
}

TEST(SimplerCases, AreTriedOfEveryFieldWhoseRowSaysSo) {
  std::set<std::string> shrunk;
  for (uint64_t index = 0; index < 150; ++index) {
    Case from = CaseToShrink(index);
    ExpectShrunkFields(from, SimplerCases(from), shrunk);
  }
  Case c;
  for (const FieldOfCase& field : FieldsOf(c)) {
    const bool is_tried = field.row->shrink != FieldShrink::kNever;
    EXPECT_EQ(shrunk.contains(field.path), is_tried && field.path != "model/tensors") << field.path;
  }
}

TEST(SimplerCases, EndInOneRankAndOneScalar) {
  for (uint64_t index = 0; index < 100; ++index) {
    const Case smallest = Smallest(GenerateCase({}, 4, index), [](const Case&) { return true; });
    EXPECT_EQ(smallest.WorldSize(), 1);
    ASSERT_EQ(smallest.model.tensors.size(), 1u);
    const TensorCase& tensor = smallest.model.tensors[0];
    EXPECT_EQ(tensor.dtype, "F32");
    EXPECT_TRUE(tensor.shape.empty()) << CaseToJson(smallest).dump();
    EXPECT_TRUE(tensor.stored.empty());
    EXPECT_EQ(tensor.name.find('.'), std::string::npos) << tensor.name;
    EXPECT_TRUE(smallest.resume_mesh.empty());
    EXPECT_EQ(smallest.strategy, GenerateCase({}, 4, index).strategy);
  }
}

TEST(SimplerCases, KeepWhatIsAskedFor) {
  const auto tied = [](const Case& c) { return !c.model.ties.empty() && c.WorldSize() >= 2; };
  int tried = 0;
  for (uint64_t index = 0; index < 300; ++index) {
    const Case from = GenerateCase({}, 4, index);
    if (!tied(from)) continue;
    ++tried;
    const Case smallest = Smallest(from, tied);
    EXPECT_EQ(smallest.WorldSize(), 2);
    EXPECT_EQ(smallest.model.tensors.size(), 2u);
  }
  EXPECT_GT(tried, 20);
}

/// The smallest case with a fault of which `wanted` holds, from one with these on four ranks.
std::vector<FaultCase> SmallestFaults(const std::vector<FaultCase>& faults,
                                      const std::function<bool(const Case&)>& wanted) {
  Case from = GenerateCase({}, 4, 0);
  from.mesh = {{"dp_shard", 4}};
  from.faults = faults;
  from.as_stated = true;
  return Smallest(from, wanted).faults;
}

bool Has(const Case& c, const std::string& id) {
  return std::any_of(c.faults.begin(), c.faults.end(),
                     [&](const FaultCase& f) { return f.id == id; });
}

TEST(SimplerCases, OfTwoFaultsKeepTheOneThatMatters) {
  const auto left =
      SmallestFaults({{"file/enospc", "7:3"}, {"rank/kill", "2@saved"}}, [](const Case& c) {
        return Has(c, "rank/kill") && c.faults.back().where.find('@') != std::string::npos;
      });
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].id, "rank/kill");
  EXPECT_EQ(left[0].where, "0@saved");
}

TEST(SimplerCases, StrikeRanksThatAreStillThereAndEarlierCalls) {
  // Where the place is needed as it is, the fault has to come along when ranks become fewer.
  const auto is_on_second = [](const Case& c) {
    return c.WorldSize() >= 2 && Has(c, "comm/drop") &&
           c.faults[0].where == "5:" + std::to_string(c.WorldSize() - 1);
  };
  EXPECT_EQ(SmallestFaults({{"comm/drop", "5:3"}}, is_on_second).at(0).where, "5:1");
  const auto is_late = [](const Case& c) {
    return Has(c, "rank/kill") && c.faults[0].where.starts_with("0@#") &&
           std::stoi(c.faults[0].where.substr(3)) >= 3;
  };
  EXPECT_EQ(SmallestFaults({{"rank/kill", "0@#40"}}, is_late).at(0).where, "0@#3");
  const auto is_kill = [](const Case& c) {
    return Has(c, "rank/kill") && c.faults[0].where.starts_with("0@stepped");
  };
  EXPECT_EQ(SmallestFaults({{"rank/kill", "0@stepped@2"}}, is_kill).at(0).where, "0@stepped");
}

}  // namespace
}  // namespace shardproof
