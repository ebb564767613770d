// What nobody should write never crashes the reader.
#include "verify/evidence/reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "verify/evidence/fixture_rank.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST_F(EvidenceFiles, RefusesAnOptimizerOutsideItsStage) {
  const std::string record = R"({"record":"optimizer","groups":[],"strangers":[],"values":{}})"
                             "\n";
  EXPECT_THAT(ReadLines(record).damage, HasSubstr("within a stage of the optimizer"));
  const std::string stage = "{\"record\":\"stage\",\"name\":\"ready\",\"step\":0}\n";
  EXPECT_THAT(ReadLines(stage + record).damage, HasSubstr("within a stage of the optimizer"));
}

TEST(FindEvidenceTest, NamesTheLastRunOfADirectoryOfThem) {
  const std::string directory = fs::temp_directory_path() / fmt::format("runs_{}", getpid());
  for (const char* run : {"20260101-a", "20260102-b", "20260103-empty"}) {
    fs::create_directories(fs::path(directory) / run);
  }
  for (const char* run : {"20260101-a", "20260102-b"}) {
    std::ofstream(fs::path(directory) / run / "run.json") << "{}";
  }
  const auto found = FindEvidence(directory);
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message, HasSubstr("20260102-b is the last"));
  EXPECT_TRUE(FindEvidence(directory + "/20260101-a").ok());
  fs::remove_all(directory);
}

TEST_F(EvidenceFiles, ReadsMeshesAndGroups) {
  const std::string head =
      R"({"record":"mesh","id":0,"axes":[{"name":"efsdp","size":2}],"coordinates":[1]})"
      "\n"
      R"({"record":"groups","id":0,"whole":[0,1],"alike":[0],"members":[0,1]})"
      "\n";
  std::string tensor = Tensor(0);
  tensor.insert(tensor.find(",\"owned\""), R"(,"mesh":0,"groups":0)");
  const RankEvidence rank = ReadLines(head + tensor);
  EXPECT_EQ(rank.damage, "");
  ASSERT_EQ(rank.descriptors.size(), 1u);
  EXPECT_EQ(rank.meshes.at(0).axes.at(0).name, "efsdp");
  EXPECT_EQ(rank.Groups(rank.descriptors[0])->whole, (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(rank.groups[0].stated);
}

TEST_F(EvidenceFiles, RefusesMeshesAndGroupsThatAreNotThere) {
  std::string tensor = Tensor(0);
  tensor.insert(tensor.find(",\"owned\""), R"(,"groups":0)");
  EXPECT_THAT(ReadLines(tensor).damage, HasSubstr("/groups: expected an id below 0, found 0"));
  EXPECT_THAT(ReadLines(R"({"record":"mesh","id":1,"axes":[],"coordinates":[]})"
                        "\n")
                  .damage,
              HasSubstr("expected 0, the next one, found 1"));
  EXPECT_THAT(ReadLines(R"({"record":"mesh","id":0,"axes":[],"coordinates":[0]})"
                        "\n")
                  .damage,
              HasSubstr("expected one for each of 0 axes"));
  EXPECT_THAT(ReadLines(R"({"record":"groups","id":0,"whole":[1],"alike":[0],"members":[0]})"
                        "\n")
                  .damage,
              HasSubstr("expected sorted ranks with rank 0 in each list"));
}

TEST_F(EvidenceFiles, TruncatedAtEveryByteReadsWithoutAClose) {
  WriteSmallRank(directory_);
  const std::string facts = Slurp(Facts());
  for (size_t size = 0; size < facts.size(); ++size) {
    Spill(Facts(), facts.substr(0, size));
    const RankEvidence rank = Read();
    EXPECT_FALSE(rank.closed) << size;
    EXPECT_EQ(rank.damage, "") << size;
    for (size_t i = 0; i < rank.stages.size(); ++i) {
      if (rank.stages[i].complete) continue;
      EXPECT_EQ(i + 1, rank.stages.size());  // only the last one, with only what was written in it
      EXPECT_LE(rank.stages[i].tensors.size(), 2u);
    }
  }
}

TEST_F(EvidenceFiles, ChangedBytesAreReadOrReported) {
  WriteSmallRank(directory_);
  const std::string facts = Slurp(Facts());
  const std::string measures = Slurp(Measures());
  for (size_t i = 0; i < facts.size(); i += 3) {
    for (const char value : {'\0', '\xff', '"', '9'}) {
      std::string changed = facts;
      changed[i] = value;
      Spill(Facts(), changed);
      (void)Read();
    }
  }
  Spill(Facts(), facts);
  for (size_t i = 0; i < measures.size(); i += 3) {
    std::string changed = measures;
    changed[i] = '\x80';
    Spill(Measures(), changed);
    if (i + 1 < measures.size()) {
      EXPECT_THAT(Read().damage, HasSubstr("measures.jsonl:")) << i;
    }
  }
}

TEST_F(EvidenceFiles, MeasuresMayBeAbsent) {
  WriteSmallRank(directory_);
  fs::remove(Measures());
  const RankEvidence rank = Read();
  EXPECT_EQ(rank.damage, "");
  EXPECT_TRUE(rank.closed);
  EXPECT_FALSE(rank.memory.has_value());
}

TEST_F(EvidenceFiles, ReadsWhatIsHeldAtAStage) {
  WriteSmallRank(directory_);
  const std::string measures = Slurp(Measures());
  const std::string least =
      R"({"record":"held","stage":"ready","time_ms":1.5,"anonymous_bytes":7,"shared_bytes":8,)"
      R"("file_bytes":9)";
  Spill(Measures(),
        measures + least + "}\n" + least +
            R"(,"step":3,"locked_bytes":1,"pinned_bytes":2,"proportional":{"anonymous_bytes":3,)"
            R"("shared_bytes":4,"file_bytes":5},"peak":{"anonymous_bytes":70,"shared_bytes":80,)"
            R"("time_ms":1,"interval_ms":10,"stacks_bytes":150,"stacks":[["a.py:1 f"],[]]},)"
            R"("tensors":[{"of":"other","device":"cpu","bytes":6,"anonymous_bytes":5}],)"
            R"("devices":[{"device":"cuda:0","allocated_bytes":1,"reserved_bytes":2,)"
            R"("peak_allocated_bytes":3,"peak_reserved_bytes":4}],"who":[{"by":"holder",)"
            R"("what":"w","bytes":1,"count":2,"stack":["b.py:2 g"]}]})"
            "\n");
  const RankEvidence rank = Read();
  EXPECT_EQ(rank.damage, "");
  ASSERT_EQ(rank.held.size(), 2u);
  EXPECT_EQ(rank.held[0].Key(), "ready");
  EXPECT_FALSE(rank.held[0].peak || rank.held[0].proportional || rank.held[0].pinned);
  const HeldRecord& held = rank.held[1];
  EXPECT_EQ(held.Key(), "ready@3");
  EXPECT_EQ(held.host.file, 9u);
  EXPECT_EQ(held.pinned, 2u);
  EXPECT_EQ(held.proportional->shared, 4u);
  EXPECT_EQ(held.peak->stacks.at(0).at(0), "a.py:1 f");
  EXPECT_EQ(held.tensors.at(0).anonymous, 5u);
  EXPECT_EQ(held.devices.at(0).peak_allocated, 3u);
  EXPECT_EQ(held.who.at(0).stack.at(0), "b.py:2 g");
  Spill(Measures(), least + R"(,"tensors":[{"of":"nobody","device":"cpu","bytes":6}]})" + "\n");
  EXPECT_THAT(Read().damage, HasSubstr("/tensors/0/of: expected one of"));
}

TEST_F(EvidenceFiles, SaysWhereTheFirstDamageIs) {
  const std::string stage = "{\"record\":\"stage\",\"name\":\"loaded\",\"step\":0}\n";
  const std::string end =
      "{\"record\":\"stage_end\",\"name\":\"loaded\",\"step\":0,\"tensors\":1}\n";
  const std::pair<std::string, std::string> kDamages[] = {
      {"garbage\n", ":2: not JSON"},
      {"\n", ":2: not JSON"},
      {"[]\n", ":2: document: expected an object"},
      {"{}\n", "field \"record\" is missing"},
      {"{\"record\":\"tensr\"}\n", "unknown record \"tensr\""},
      {"{\"record\":7}\n", "/record: expected a string, found 7"},
      {Head(), "expected \"rank\" first and only once"},
      {Tensor(1), "/id: expected 0, the next one, found 1"},
      {Tensor(0) + StateLine(0), ":3: document: expected a state within a stage"},
      {stage + StateLine(0), "/tensor: expected an id below 0, found 0"},
      {stage + StateLine(-1), "/tensor: expected an integer from 0"},
      {Tensor(0) + stage + StateLine(0) + StateLine(0), "given twice"},
      {stage + stage, "expected stage loaded to end first"},
      {stage + end, "/tensors: expected 0, as many as there are states, found 1"},
      {end, "expected the end of the open stage"},
      {stage + "{\"record\":\"gone\",\"name\":\"w\"}\n", "expected a name of an earlier stage"},
      {"{\"record\":\"end\",\"lines\":9}\n", "/lines: expected 2, this line's number, found 9"},
      {"{\"record\":\"end\"}\n{\"record\":\"end\"}\n", "expected nothing after"},
      {"{\"record\":\"keys\",\"missing\":[1],\"unexpected\":[]}\n",
       "/missing/0: expected a string"},
      {"{\"record\":\"error\",\"code\":\"x\",\"stage\":\"\",\"message\":\"\",\"pid\":1}\n",
       "unknown field \"pid\""},
      {std::string(100000, '[') + "\n", "not JSON"},
      {std::string(2000, '[') + std::string(2000, ']') + "\n", "too deep"},
      {"{\"record\":\"collective\",\"sequence\":1e400,\"op\":\"b\"}\n", "not JSON"},
      {"{\"record\":\"collective\",\"sequence\":99999999999999999999,\"op\":\"b\"}\n", "not JSON"},
      {"{\"record\":\"collective\",\"sequence\":9999999999999999999,\"op\":\"b\"}\n",
       "/sequence: expected an integer"},
      {"{\"record\":\"collective\",\"sequence\":1,\"op\":\"b\",\"op\":\"b\"}\n",
       "expected every key once, found \"op\" given twice"},
  };
  for (const auto& [lines, message] : kDamages) {
    const RankEvidence rank = ReadLines(lines);
    EXPECT_THAT(rank.damage, HasSubstr(message)) << lines.substr(0, 200);
    EXPECT_THAT(rank.damage, HasSubstr("values/rank_0.facts.jsonl:"));
    EXPECT_FALSE(rank.closed);
  }
}

TEST_F(EvidenceFiles, RefusesDescriptorsThatPropertiesCouldNotSurvive) {
  const auto damage = [&](const std::string& shape, const std::string& run) {
    return ReadLines(
               R"({"record":"tensor","id":0,"name":"w","kind":"buffer","dtype":"F32","shape":)" +
               shape + R"(,"owned":[)" + run + "]}\n")
        .damage;
  };
  EXPECT_EQ(damage("[4]", R"({"start":0,"length":1,"count":4,"stride":1})"), "");
  EXPECT_THAT(damage("[281474976710656,65536]", ""), HasSubstr("/shape: expected at most"));
  EXPECT_THAT(damage("[-1]", ""), HasSubstr("/shape/0"));
  EXPECT_THAT(damage("[4]", R"({"start":1,"length":4})"), HasSubstr("within 4 elements"));
  EXPECT_THAT(damage("[4]", R"({"start":0,"length":1,"count":1152921504606846976,"stride":0})"),
              HasSubstr("within 4 elements"));
  EXPECT_THAT(damage("[4]", R"({"start":18446744073709551615,"length":2})"), HasSubstr("within 4"));
}

TEST_F(EvidenceFiles, ReadsTheFormerNameOfADevice) {
  const RankEvidence rank =
      ReadLines(Tensor(0) + "{\"record\":\"stage\",\"name\":\"s\",\"step\":0}\n" +
                R"({"record":"state","name":"w","tensor":0,"device":"apart","is_meta":false,)"
                R"("content":"none"})"
                "\n");
  ASSERT_EQ(rank.damage, "");
  EXPECT_EQ(rank.stages.at(0).tensors.at("w").device, "isolated");
}

TEST_F(EvidenceFiles, RefusesStatesThatDoNotParse) {
  const auto damage = [&](const std::string& fields) {
    return ReadLines(Tensor(0) + "{\"record\":\"stage\",\"name\":\"s\",\"step\":0}\n" +
                     R"({"record":"state","name":"w","tensor":0,"device":"cpu","is_meta":false,)" +
                     fields + "}\n")
        .damage;
  };
  EXPECT_EQ(damage(R"("content":"none")"), "");
  EXPECT_THAT(damage(R"("content":"maybe")"), HasSubstr("none, undefined or defined"));
  EXPECT_THAT(damage(R"("content":"defined")"), HasSubstr("field \"digest\" is missing"));
  EXPECT_THAT(damage(R"("content":"none","digest":"12")"), HasSubstr("32 hexadecimal digits"));
  EXPECT_THAT(damage(R"("content":"none","block_bytes":4096,"blocks":"xy")"), HasSubstr("/blocks"));
  EXPECT_THAT(damage(R"("content":"none","blocks":"")"), HasSubstr("\"block_bytes\" is missing"));
  EXPECT_THAT(damage(R"("content":"none","bytes":[{"start":0,"hex":"0g"}])"),
              HasSubstr("/bytes/0/hex"));
}

TEST_F(EvidenceFiles, StopsCarryingStatesThatWouldFillMemory) {
  std::string lines = Tensor(0);
  for (int step = 0; step < 100; ++step) {
    lines += fmt::format("{{\"record\":\"stage\",\"name\":\"s\",\"step\":{}}}\n", step);
    if (step == 0) lines += StateLine(0);
    lines += fmt::format("{{\"record\":\"stage_end\",\"name\":\"s\",\"step\":{},\"tensors\":1}}\n",
                         step);
  }
  Spill(Facts(), Head() + lines);
  Spill(Measures(), "");
  RankEvidence rank;
  rank.world_size = 2;
  uint64_t budget_bytes = 5000;
  ReadRank(Stem(), "values/rank_0", budget_bytes, rank);
  EXPECT_THAT(rank.damage, HasSubstr("fit into memory"));
  EXPECT_LT(rank.stages.size(), 25u);
}

TEST_F(EvidenceFiles, MissingStreamsAreDamageOfThatRankOnly) {
  WriteSmallRank(directory_);
  Evidence run;
  run.test_case.model.checkpoint = "models/tiny";
  run.test_case.mesh = {{"dp_shard", 2}};
  run.phases.resize(2);
  run.phases[0] = {.phase = Phase::kValues, .strategy = "plain", .mesh = run.test_case.mesh};
  run.phases[0].ranks.resize(2);
  run.phases[0].ranks[1].rank = 1;
  run.phases[0].ranks[1].exit = "signal 9";
  run.phases[0].ranks[1].stderr_tail = "Killed \xff";
  run.phases[1] = {.phase = Phase::kMemory,
                   .strategy = "plain",
                   .mesh = run.test_case.mesh,
                   .skipped = "no GPU"};
  ASSERT_TRUE(WriteRun(directory_, run).ok());
  const Evidence evidence = ReadEvidence(directory_).value();
  EXPECT_EQ(evidence.test_case.model.checkpoint, "models/tiny");
  EXPECT_EQ(evidence.Phase(Phase::kValues)->WorldSize(), 2);
  EXPECT_EQ(evidence.phases[0].ranks[0].damage, "");
  EXPECT_TRUE(evidence.phases[0].ranks[0].closed);
  EXPECT_EQ(evidence.phases[0].ranks[1].exit, "signal 9");
  EXPECT_THAT(evidence.phases[0].ranks[1].damage, HasSubstr("rank_1.facts.jsonl: No such file"));
  EXPECT_EQ(evidence.Phase(Phase::kMemory)->skipped, "no GPU");
  EXPECT_EQ(evidence.Phase(Phase::kResume), nullptr);
  EXPECT_THAT(evidence.oracle.source.error, HasSubstr("no oracle.json"));
}

TEST_F(EvidenceFiles, RefusesRunFilesThatAreWrong) {
  EXPECT_THAT(ReadEvidence(directory_).error().message, HasSubstr("run.json: No such file"));
  ASSERT_EQ(::mkfifo((directory_ + "/run.json").c_str(), 0600), 0);
  EXPECT_THAT(ReadEvidence(directory_).error().message, HasSubstr("run.json: is no regular file"));
  ASSERT_EQ(::unlink((directory_ + "/run.json").c_str()), 0);
  const std::string head = R"({"schema":1,"case":{"schema":1,"model":{"checkpoint":"d"},)"
                           R"("mesh":[{"name":"tp","size":1}]},)";
  const auto phase = [](const std::string& name, const std::string& rest) {
    return R"("phases":[{"name":")" + name + R"(","mode":"values","strategy":"plain","mesh":[],)" +
           rest + "}]}";
  };
  const std::string ranks = R"("world_size":1,"ranks":[])";
  const std::pair<std::string, std::string> kRuns[] = {
      {"", "not JSON"},
      {"[]", "expected an object"},
      {R"({"schema":2,"case":{},"phases":[]})", "/schema"},
      {R"({"schema":1,"case":{},"phases":[]})", "/case: document: field \"schema\" is missing"},
      {R"({"schema":1,"case":7,"phases":[]})", "/case: expected an object, found 7"},
      {head + phase("../etc", ranks),
       "/phases/0/name: there is no phase '../etc': expected one of values, plain"},
      {head + phase("load", ranks), "there is no phase 'load'"},
      {head + phase("memory", ranks), "/phases/0/mode: expected memory, as of phase memory"},
      {head + phase("values", R"("world_size":99999999,"ranks":[])"), "from 0 to 65536"},
      {head + phase("values", R"("world_size":1,"ranks":[{"rank":1,"exit":"ok"}])"), "from 0 to 0"},
  };
  for (const auto& [text, message] : kRuns) {
    Spill(directory_ + "/run.json", text);
    const Result<Evidence> read = ReadEvidence(directory_);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(read.error().message, HasSubstr(message));
    EXPECT_THAT(read.error().message, HasSubstr("run.json"));
  }
}

TEST_F(EvidenceFiles, HundredMegabytesReadInSeconds) {
  {
    auto writer = EvidenceWriter::Create(directory_ + "/values", 0).value();
    ASSERT_TRUE(writer->Rank(Header()).ok());
    TensorState state = Value(writer->Describe(Weight()));
    state.blocks.blocks.assign(1024, Digest(1, 2));
    for (int step = 0; step < 10; ++step) {
      StageRecord stage{.name = "stepped", .step = step, .complete = true};
      for (int t = 0; t < 320; ++t) {
        state.digest = Digest(step, t);
        stage.tensors[fmt::format("t{}", t)] = state;
      }
      ASSERT_TRUE(writer->Stage(stage).ok());
    }
    ASSERT_TRUE(writer->End().ok());
  }
  EXPECT_GT(fs::file_size(Facts()), 100'000'000u);
  const auto start = std::chrono::steady_clock::now();
  const RankEvidence rank = Read();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_TRUE(rank.closed) << rank.damage;
  // A shared machine may be slow; a quadratic reader would take minutes.
  EXPECT_LT(seconds.count(), 30.0);
  std::printf("[          ] read in %.2f s\n", seconds.count());
}

}  // namespace
}  // namespace shardproof
