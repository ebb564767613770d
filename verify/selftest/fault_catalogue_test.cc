// Faults where they can strike, each place in turn: every call of every kind, every stage, every
// collective. What comes of each is judged as the fault states it; a place where it does not strike
// ends a row, and a row in which nothing was struck is a failure.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>

#include "verify/case/case.h"
#include "verify/engine/verification.h"
#include "verify/fault/fault.h"
#include "verify/launch/subject.h"
#include "verify/oracle/safetensors_writer.h"
#include "verify/process/scratch_directory.h"

namespace shardproof {
namespace {

constexpr int64_t kCallsMax = 400;  // a row that is longer does not end
constexpr uint64_t kEndWithinMs = 10000;

enum class Outcome { kAsStated, kNeverStruck, kWrong };

/// A model of two uneven tensors and a buffer on two ranks.
constexpr const char* kModel = R"("model": {"files": 2, "tensors": [
  {"name": "a.weight", "dtype": "F32", "shape": [5, 3]},
  {"name": "a.table", "kind": "buffer", "dtype": "BF16", "shape": [7]},
  {"name": "b.weight", "dtype": "BF16", "shape": [4, 6]}]}, "mesh": [{"name": "dp_shard", "size": 2}])";

Case CaseOf(const std::string& more) {
  auto parsed = ParseCaseText(
      fmt::format(R"({{"schema": 1, "why": "faults, place by place", "as_stated": true, {}{}}})",
                  kModel, more));
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message);
  return parsed.value();
}

/// Loads, shards, saves and restores.
Case Loading(const std::string& transport) {
  return CaseOf(fmt::format(R"(, "transport": "{}")", transport));
}

/// Takes steps and saves after each, a part of the work being the host's.
Case Training(const std::string& transport, const std::string& format) {
  return CaseOf(fmt::format(
      R"(, "transport": "{}", "steps": 3, "training": {{"save_every": 1, "keep": 1,
         "offload": 0.5, "format": "{}"}})",
      transport, format));
}

/// The same with a parameter that has two names, and none of two saves to go back to.
Case TiedTraining(const std::string& transport) {
  Case test_case = Training(transport, "dcp");
  test_case.training.save_every = 0;
  TensorCase tied = test_case.model.tensors[0];
  tied.name = "c.weight";
  test_case.model.tensors.push_back(tied);
  test_case.model.ties = {{"a.weight", "c.weight"}};
  return test_case;
}

Outcome Try(Case test_case, const std::vector<FaultCase>& faults) {
  const std::string name = fmt::format("{}@{}", faults[0].id, faults[0].where);
  test_case.faults = faults;
  static const auto scratch = ScratchDirectory::Make();
  if (!scratch.ok()) {
    ADD_FAILURE() << scratch.error().message;
    return Outcome::kWrong;
  }
  const std::string directory = scratch.value()->path() + "/run";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory(directory);
  const auto launcher = test_case.transport == "sim" ? MakeSimLauncher(true) : MakeForkLauncher();
  VerifyOptions options;
  options.subject.name = kReference;
  options.directory = directory;
  options.measures_memory = false;
  const auto result = Verify(test_case, *launcher, options);
  if (!result.ok()) {
    ADD_FAILURE() << name << ": " << result.error().message;
    return Outcome::kWrong;
  }
  for (const PropertyResult& property : result.value().properties) {
    if (property.id != "fault.every_fault_fires") continue;
    if (property.judgement.verdict() == Verdict::kInconclusive) return Outcome::kNeverStruck;
  }
  if (result.value().verdict == Verdict::kPass) return Outcome::kAsStated;
  std::string why = result.value().verdict == Verdict::kFail ? "" : "inconclusive";
  for (const Finding* finding : result.value().Findings()) why += "\n  " + finding->message;
  ADD_FAILURE() << name << ": not as stated: " << why;
  return Outcome::kWrong;
}

Outcome Try(const Case& test_case, const std::string& id, const std::string& where) {
  return Try(test_case, {{id, where}});
}

/// Why a fault cannot strike on this machine.
std::string WhyNot(const std::string& id) {
  Case test_case;
  test_case.faults = {{id, ""}};
  return WhyCannotStrike(test_case);
}

#define SKIP_WHERE_IT_CANNOT(id) \
  if (const std::string why = WhyNot(id); !why.empty()) GTEST_SKIP() << "skipped: " << why

/// Goes from place to place until one is never reached. \returns how many were struck.
int64_t Row(const Case& test_case, const std::string& id,
            const std::function<std::string(int64_t)>& place) {
  int64_t struck = 0;
  for (; struck < kCallsMax; ++struck) {
    const Outcome outcome = Try(test_case, id, place(struck));
    if (outcome == Outcome::kNeverStruck) return struck;
    if (outcome == Outcome::kWrong) break;
  }
  EXPECT_LT(struck, kCallsMax) << id << ": strikes without end";
  return struck;
}

/// Every call of rank 0 and of the last.
int64_t EveryCall(const Case& test_case, const std::string& id) {
  int64_t struck = 0;
  for (const int rank : {0, 1}) {
    struck += Row(test_case, id, [&](int64_t call) { return fmt::format("{}:{}", call, rank); });
  }
  return struck;
}

/// Those that strike the n-th call of a kind, and of which ranks may end.
std::vector<std::string> FaultsOfCalls() {
  std::vector<std::string> ids;
  for (const Fault& fault : AllFaults()) {
    if (fault.where == kTriggerHelp && MayEnd(fault.model)) ids.push_back(fault.id);
  }
  return ids;
}

std::string NameOfTest(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

class EveryCallTest : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryCallTest, OfALoadAndASaveAndOfATrainingJob) {
  int64_t struck = 0;
  for (const Case& test_case : {Loading("sim"), Training("sim", "dcp")}) {
    struck += EveryCall(test_case, GetParam());
  }
  EXPECT_GT(struck, 0);
  std::printf("%s struck at %d places\n", GetParam().c_str(), static_cast<int>(struck));
}

INSTANTIATE_TEST_SUITE_P(Faults, EveryCallTest, ::testing::ValuesIn(FaultsOfCalls()), NameOfTest);

TEST(Nightly, EveryCallOfATrainingJobThatSavesSafetensors) {
  int64_t struck = 0;
  for (const std::string& id : FaultsOfCalls()) {
    struck += EveryCall(Training("sim", "safetensors"), id);
  }
  EXPECT_GT(struck, 0);
  std::printf("struck at %d places\n", static_cast<int>(struck));
}

/// Ids of those that strike the reference, and of which `wanted` holds.
std::vector<std::string> FaultsWith(const std::function<bool(const Fault&)>& wanted) {
  std::vector<std::string> ids;
  for (const Fault& fault : AllFaults()) {
    if (fault.arm && wanted(fault)) ids.push_back(fault.id);
  }
  return ids;
}

class StatedPlacesTest : public ::testing::TestWithParam<std::string> {};

/// The same load of a source in DCP's format.
Case LoadingDcp() {
  Case test_case = Loading("sim");
  test_case.model.format = "dcp";
  return test_case;
}

/// A model that a config.json describes, without a file of its tensors.
Case FromConfig() {
  static const auto scratch = ScratchDirectory::Make();
  const std::string directory = scratch.value()->path();
  std::ofstream(directory + "/config.json") << R"({"architectures": ["LlamaForCausalLM"],
      "vocab_size": 17, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
      "num_attention_heads": 2, "rope_scaling": {"rope_type": "linear", "factor": 2.0}})";
  Case test_case = Loading("sim");
  test_case.model = {.checkpoint = directory, .from_scratch = true};
  return test_case;
}

/// The same with an adapter's folder, which alone holds tensors.
Case WithAdapter() {
  Case test_case = FromConfig();
  test_case.model.adapter = test_case.model.checkpoint + "/adapter";
  std::filesystem::create_directory(test_case.model.adapter);
  std::ofstream(test_case.model.adapter + "/adapter_config.json") << R"({"peft_type": "LORA",
      "r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "o_proj"], "bias": "none"})";
  std::vector<oracle::PlannedTensor> tensors;
  for (const std::string module : {"q_proj", "o_proj"}) {
    const std::string prefix = "base_model.model.model.layers.0.self_attn." + module;
    tensors.push_back(
        oracle::PlannedBytes(prefix + ".lora_A.weight", "F32", {2, 8}, std::string(64, '\x3e')));
    tensors.push_back(
        oracle::PlannedBytes(prefix + ".lora_B.weight", "F32", {8, 2}, std::string(64, '\x3d')));
  }
  EXPECT_TRUE(
      oracle::WriteSafetensors(test_case.model.adapter + "/adapter_model.safetensors", tensors)
          .ok());
  return test_case;
}

TEST(Damage, OfAnAdapterIsRefused) {
  const Case test_case = WithAdapter();
  for (const std::string edit :
       {"cut", "tail", "length", "dtype", "shape", "offset", "number", "twice", "gone"}) {
    for (const int n : {0, 1, 42, 1003}) {
      const std::string where = fmt::format("{}:{}", edit, n);
      EXPECT_EQ(Try(test_case, "file/damage", where), Outcome::kAsStated) << where;
    }
  }
}

/// The case that a fault can strike.
Case CaseFor(const Fault& fault, const std::string& where) {
  const Case usual = Loading("sim");
  if (fault.check(usual, {}, where).ok()) return usual;
  for (const Case& other : {Loading("gloo"), LoadingDcp(), FromConfig()}) {
    if (fault.check(other, {}, where).ok()) return other;
  }
  return usual;
}

TEST_P(StatedPlacesTest, OfALoadAndASave) {
  const Fault fault = FindFault(GetParam()).value();
  SKIP_WHERE_IT_CANNOT(fault.id);
  for (const std::string& where : fault.tried_at) {
    EXPECT_EQ(Try(CaseFor(fault, where), fault.id, where), Outcome::kAsStated) << where;
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, StatedPlacesTest,
                         ::testing::ValuesIn(FaultsWith([](const Fault& fault) {
                           return !fault.tried_at.empty();
                         })),
                         NameOfTest);

TEST(Damage, OfWhatArrivesIsSeen) {
  const int64_t struck = EveryCall(Loading("sim"), "comm/flip");
  EXPECT_GT(struck, 4);
}

/// Bytes of all that is saved: of parameters, tied ones too, of the optimizer and of generators.
TEST(Damage, OfASaveIsRecoveredOrRefused) {
  for (const Case& test_case : {Loading("sim"), Training("sim", "dcp"),
                                Training("sim", "safetensors"), TiedTraining("sim")}) {
    for (int64_t byte = 0; byte < 1200; byte += 61) {
      const std::string where = std::to_string(byte);
      EXPECT_EQ(Try(test_case, "file/rot", where), Outcome::kAsStated) << where;
    }
  }
}

/// Every file of a save, of each format, and of older ones beside it.
TEST(Damage, OfAFileOfASaveIsRecoveredOrRefused) {
  Case several = Training("sim", "dcp");
  several.steps = 4;
  several.training.keep = 3;
  Case adapted = WithAdapter();
  adapted.steps = 2;
  adapted.training.format = "safetensors";
  for (const Case& test_case : {Loading("sim"), WithAdapter(), several, adapted,
                                Training("sim", "safetensors"), TiedTraining("sim")}) {
    for (const char* edit : {"gone", "cut", "tail", "flip"}) {
      for (int64_t n = 0; n < 9; ++n) {
        const std::string where = fmt::format("{}:{}", edit, n + 9 * 8 * 61 * n);
        EXPECT_EQ(Try(test_case, "file/damage-save", where), Outcome::kAsStated) << where;
      }
    }
  }
  for (int64_t n = 0; n < 12; ++n) {
    for (const char* edit : {"latest-gone", "latest-cut", "latest-flip", "latest-older"}) {
      const std::string where = fmt::format("{}:{}", edit, n * 11);
      EXPECT_EQ(Try(several, "file/damage-save", where), Outcome::kAsStated) << where;
    }
    const std::string newest = fmt::format("flip:{}", n * 1009);
    for (const std::string older : {"gone:2@1", "cut:1@1", "tail:4@1", "flip:77@1"}) {
      EXPECT_EQ(Try(several, {{"file/damage-save", newest}, {"file/damage-save", older}}),
                Outcome::kAsStated)
          << newest << " " << older;
    }
  }
}

TEST(Delay, OfADisk) {
  for (const int rank : {0, 1}) {
    const std::string where = fmt::format("0:{}", rank);
    EXPECT_EQ(Try(Loading("sim"), "file/slow", where), Outcome::kAsStated) << where;
    EXPECT_EQ(Try(Training("gloo", "dcp"), "file/slow", where), Outcome::kAsStated) << where;
  }
}

/// Faults that strike the reference are tried by calls, at a moment, or where they state; no
/// reference makes the calls of the others: selftest.interpose* has them.
TEST(Catalogue, TriesEveryFault) {
  const std::vector<std::string> tried = FaultsWith([](const Fault& fault) {
    return fault.where == kTriggerHelp || fault.at_a_moment || !fault.tried_at.empty();
  });
  EXPECT_EQ(tried, FaultsWith([](const Fault&) { return true; }));
  for (const Fault& fault : AllFaults()) EXPECT_TRUE(fault.arm || fault.in_subject) << fault.id;
}

/// Before every collective of every rank.
void BeforeEveryCollective(const std::string& id) {
  for (const Case& test_case : {Loading("sim"), Training("sim", "dcp")}) {
    for (const int rank : {0, 1}) {
      EXPECT_GT(Row(test_case, id, [&](int64_t n) { return fmt::format("{}@#{}", rank, n); }), 5);
    }
  }
}

TEST(EveryCollective, KilledBeforeIt) { BeforeEveryCollective("rank/kill"); }
TEST(EveryCollective, LeftBeforeIt) { BeforeEveryCollective("rank/leave"); }

/// As it is for four ranks over real processes, which end within `deadline_ms`: some are no
/// neighbours of the one that is lost.
Case OnFourRanks(Case test_case, uint64_t deadline_ms) {
  test_case.mesh = {{"dp_replicate", 2}, {"dp_shard", 2}};
  test_case.deadline_ms = deadline_ms;
  return test_case;
}

void AtPlaces(const Case& test_case, const std::string& id,
              const std::vector<std::string>& places) {
  for (const std::string& where : places) {
    EXPECT_EQ(Try(test_case, id, where), Outcome::kAsStated) << where;
  }
}

/// At every stage that a job reaches, on every rank, over real processes.
void AtEveryStage(const std::string& id, const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    for (const char* stage :
         {"built", "loaded", "sharded", "materialized", "ready", "saved", "restored"}) {
      AtPlaces(OnFourRanks(Loading("gloo"), kEndWithinMs), id, {fmt::format("{}@{}", rank, stage)});
    }
    for (const char* stage : {"stepped@1", "saved@1", "stepped@2", "saved@2", "stepped@3"}) {
      AtPlaces(OnFourRanks(Training("gloo", "dcp"), kEndWithinMs), id,
               {fmt::format("{}@{}", rank, stage)});
    }
  }
}

class MomentTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MomentTest, OfTheExample) {
  const Fault fault = FindFault(GetParam()).value();
  SKIP_WHERE_IT_CANNOT(fault.id);
  const bool trains = fault.example.where.find("stepped") != std::string::npos;
  AtPlaces(OnFourRanks(trains ? Training("gloo", "dcp") : Loading("gloo"), kEndWithinMs), fault.id,
           {fault.example.where});
}

INSTANTIATE_TEST_SUITE_P(Faults, MomentTest, ::testing::ValuesIn(FaultsWith([](const Fault& fault) {
                           return fault.at_a_moment;
                         })),
                         NameOfTest);

/// Time that a rank waits for one that is cut off passes in full.
constexpr uint64_t kCutOffEndWithinMs = 4000;

TEST(CutOff, BlackHoled) {
  SKIP_WHERE_IT_CANNOT("net/blackhole");
  AtPlaces(OnFourRanks(Loading("gloo"), kCutOffEndWithinMs), "net/blackhole",
           {"1@sharded", "0@ready"});
  AtPlaces(OnFourRanks(Training("gloo", "dcp"), kCutOffEndWithinMs), "net/blackhole",
           {"3@saved@2"});
}

TEST(CutOff, OneOfTwoIsBlackHoled) {
  SKIP_WHERE_IT_CANNOT("net/blackhole");
  Case loading = Loading("gloo");
  loading.deadline_ms = kCutOffEndWithinMs;
  AtPlaces(loading, "net/blackhole", {"1@materialized"});
}

TEST(CutOff, Reset) {
  AtPlaces(OnFourRanks(Loading("gloo"), kCutOffEndWithinMs), "net/reset", {"1@sharded", "2@saved"});
  AtPlaces(OnFourRanks(Training("gloo", "dcp"), kCutOffEndWithinMs), "net/reset", {"0@stepped@1"});
}

TEST(Nightly, ReachedByNobodyAtEveryStage) {
  SKIP_WHERE_IT_CANNOT("net/blackhole");
  for (const char* id : {"net/blackhole", "net/reset"}) {
    for (const int rank : {0, 1}) {
      for (const char* stage :
           {"built", "loaded", "sharded", "materialized", "ready", "saved", "restored"}) {
        AtPlaces(OnFourRanks(Loading("gloo"), kEndWithinMs), id,
                 {fmt::format("{}@{}", rank, stage)});
      }
      for (const char* stage : {"stepped@1", "saved@1", "stepped@2", "saved@2", "stepped@3"}) {
        AtPlaces(OnFourRanks(Training("gloo", "dcp"), kEndWithinMs), id,
                 {fmt::format("{}@{}", rank, stage)});
      }
    }
  }
}

TEST(EveryStage, OutOfMemoryAtIt) {
  SKIP_WHERE_IT_CANNOT("memory/oom-kill");
  AtPlaces(OnFourRanks(Loading("gloo"), kEndWithinMs), "memory/oom-kill",
           {"0@built", "1@loaded", "2@ready", "1@saved", "3@restored"});
  AtPlaces(OnFourRanks(Training("gloo", "dcp"), kEndWithinMs), "memory/oom-kill",
           {"1@stepped@1", "0@saved@2"});
}

TEST(EveryStage, StoreGoneAtIt) {
  AtPlaces(OnFourRanks(Loading("gloo"), kEndWithinMs), "store/gone",
           {"0@built", "1@sharded", "0@ready", "1@saved", "0@restored"});
  AtPlaces(OnFourRanks(Training("gloo", "dcp"), kEndWithinMs), "store/gone", {"1@stepped@2"});
}

TEST(EveryStage, KilledAtItWhereTheStoreIsGone) {
  for (const char* where : {"1@ready", "0@saved"}) {
    EXPECT_EQ(Try(OnFourRanks(Loading("gloo"), kEndWithinMs),
                  {{"rank/kill", where}, {"store/gone", "1@sharded"}}),
              Outcome::kAsStated)
        << where;
  }
}

/// Allocations of a rank, evenly spread: `places` of them, after as many calls as it makes are
/// known.
void EvenlySpread(const Case& test_case, int64_t places) {
  int64_t made = 256;  // or somewhat more
  while (Try(test_case, "memory/new", std::to_string(made)) == Outcome::kAsStated) made *= 2;
  EXPECT_GT(made, 1000);
  int64_t struck = 0;
  for (int64_t i = 0; i < places; ++i) {
    const Outcome outcome = Try(test_case, "memory/new", std::to_string(made * i / places + i % 7));
    EXPECT_NE(outcome, Outcome::kWrong);
    struck += outcome == Outcome::kAsStated ? 1 : 0;
  }
  EXPECT_GE(struck, places / 2 - 1);
  std::printf("memory/new struck at %d places of %d looked at, up to allocation %d\n",
              static_cast<int>(struck), static_cast<int>(places), static_cast<int>(made));
}

TEST(AnyAllocation, OfALoadAndASave) {
  SKIP_WHERE_IT_CANNOT("memory/new");
  EvenlySpread(Loading("gloo"), 16);
}

TEST(AnyAllocation, OfATrainingJob) {
  SKIP_WHERE_IT_CANNOT("memory/new");
  EvenlySpread(Training("gloo", "dcp"), 10);
}

TEST(Nightly, EveryAllocation) {
  SKIP_WHERE_IT_CANNOT("memory/new");
  EvenlySpread(Loading("gloo"), 1500);
  EvenlySpread(Training("gloo", "safetensors"), 600);
}

TEST(EveryStage, KilledAtIt) { AtEveryStage("rank/kill", {0, 3}); }
TEST(EveryStage, LeftAtIt) { AtEveryStage("rank/leave", {0, 2}); }
TEST(EveryStage, SlowAtIt) { AtEveryStage("rank/slow", {1}); }
TEST(EveryStage, StoppedAtIt) { AtEveryStage("rank/stop", {1}); }

TEST(Nightly, OtherRanksAtEveryStage) {
  AtEveryStage("rank/kill", {1, 2});
  AtEveryStage("rank/leave", {1, 3});
  AtEveryStage("rank/slow", {0});
  AtEveryStage("rank/stop", {0});
}

/// What ranks do, each of them at each place, in one table: seconds until all ranks had ended.
class TableOfRanks {
 public:
  TableOfRanks() {
    std::string line = fmt::format("{:<18}", "seconds to the end");
    for (const std::string& id : kIds) {
      for (const int rank : kRanks) line += fmt::format("{:>14}", fmt::format("{} {}", id, rank));
    }
    std::printf("%s\n", line.c_str());
  }

  /// One row. \returns how many were struck; the others never came there.
  int Row(const Case& test_case, const std::string& name, const std::string& place) {
    std::string line = fmt::format("{:<18}", name);
    int struck = 0;
    for (const std::string& id : kIds) {
      for (const int rank : kRanks) {
        const auto begun = std::chrono::steady_clock::now();
        const Outcome outcome = Try(test_case, id, fmt::format("{}@{}", rank, place));
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun;
        struck += outcome == Outcome::kNeverStruck ? 0 : 1;
        line += fmt::format("{:>14}", outcome == Outcome::kWrong ? "WRONG"
                                      : outcome == Outcome::kNeverStruck
                                          ? "-"
                                          : fmt::format("{:.2f}", passed.count()));
      }
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    return struck;
  }

  int Columns() const { return static_cast<int>(kIds.size() * kRanks.size()); }

 private:
  const std::vector<std::string> kIds = {"rank/kill", "rank/stop", "rank/leave", "rank/slow"};
  const std::vector<int> kRanks = {0, 1};
};

/// A rank that stops costs all of it, and there are many.
constexpr uint64_t kTableEndWithinMs = 6000;

TEST(Nightly, EveryRankAndMoment) {
  TableOfRanks table;
  const auto rows = [&](Case test_case, const std::string& what,
                        const std::vector<std::string>& stages) {
    test_case.deadline_ms = kTableEndWithinMs;
    for (const std::string& stage : stages) {
      EXPECT_EQ(table.Row(test_case, what + " " + stage, stage), table.Columns()) << stage;
    }
    int64_t collective = 0;
    while (collective < kCallsMax) {
      const std::string place = fmt::format("#{}", collective);
      if (table.Row(test_case, what + " " + place, place) == 0) break;
      ++collective;
    }
    EXPECT_GT(collective, 5) << what;
    EXPECT_LT(collective, kCallsMax) << what;
  };
  rows(Loading("gloo"), "load",
       {"built", "loaded", "sharded", "materialized", "ready", "saved", "restored"});
  rows(Training("gloo", "dcp"), "train",
       {"stepped@1", "saved@1", "stepped@2", "saved@2", "stepped@3"});
}

}  // namespace
}  // namespace shardproof
