// What the writer writes, the reader reads back; what nobody should write never crashes the reader.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "verify/case/json_fields.h"
#include "verify/evidence/reader.h"
#include "verify/evidence/writer.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class EvidenceFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/evidence.XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string Stem() const { return directory_ + "/values/rank_0"; }
  std::string Facts() const { return Stem() + ".facts.jsonl"; }
  std::string Measures() const { return Stem() + ".measures.jsonl"; }

  static std::string Slurp(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  static void Spill(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

  RankEvidence Read(int64_t world_size = 2) const {
    RankEvidence rank;
    rank.world_size = world_size;
    uint64_t budget_bytes = 1u << 30;
    ReadRank(Stem(), "values/rank_0", budget_bytes, rank);
    return rank;
  }

  // Reads a facts stream made of a valid head and the given lines.
  RankEvidence ReadLines(const std::string& lines) const {
    Spill(Facts(), Head() + lines);
    Spill(Measures(), "");
    return Read();
  }

  static std::string Head() {
    return R"({"record":"rank","schema":1,"rank":0,"world_size":2,"mesh":[{"name":"dp_shard",)"
           R"("size":2}],"coordinates":[0],"subject":"s","mode":"values","strategy":"plain",)"
           R"("seed":1})"
           "\n";
  }

  static std::string Tensor(int id) {
    return fmt::format(R"({{"record":"tensor","id":{},"name":"w","kind":"parameter","dtype":"F32",)"
                       R"("shape":[4],"owned":[{{"start":0,"length":4}}]}})"
                       "\n",
                       id);
  }

  static std::string StateLine(int tensor) {
    return fmt::format(
        R"({{"record":"state","name":"w","tensor":{},"device":"cpu","is_meta":false,)"
        R"("content":"undefined"}})"
        "\n",
        tensor);
  }

  std::string directory_;
};

RankHeader Header() { return {0, 2, {{"dp_shard", 2}}, {0}, "reference", "values", "plain", 7}; }

TensorDescriptor Weight() {
  TensorDescriptor d;
  d.name = "layer.weight";
  d.kind = "parameter";
  d.dtype = "BF16";
  d.shape = {5, 3};
  d.local_shape = {3, 3};
  d.local_stride = {3, 1};
  d.placements = {{"strided_shard", 1, 2}, {"replicate", 0, 1}, {"shard", 1, 1}};
  d.owned = {{0, 9, 1, 0}, {9, 1, 2, 3}};
  d.alias_group = 4;
  d.identity = 9;
  d.requires_grad = true;
  d.attributes = {{"sequence_parallel", "True"}};
  return d;
}

TensorState Value(int64_t descriptor) {
  TensorState s;
  s.descriptor = descriptor;
  s.device = "cuda:0";
  s.content = Content::kDefined;
  s.digest = Digest(1, std::numeric_limits<uint64_t>::max());
  s.coverage = Digest(3, 4);
  s.nan_count = std::numeric_limits<uint64_t>::max();
  s.inf_count = 2;
  s.first_nonfinite = 11;
  s.blocks = {4096, 3, {Digest(5, 6), Digest(7, 8)}};
  s.bytes = {{2, std::string("\x00\xff\x10", 3)}};
  return s;
}

void ExpectEqual(const TensorState& a, const TensorState& b) {
  EXPECT_EQ(a.device, b.device);
  EXPECT_EQ(a.is_meta, b.is_meta);
  EXPECT_EQ(a.content, b.content);
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_EQ(a.coverage, b.coverage);
  EXPECT_EQ(a.nan_count, b.nan_count);
  EXPECT_EQ(a.inf_count, b.inf_count);
  EXPECT_EQ(a.first_nonfinite, b.first_nonfinite);
  EXPECT_EQ(a.blocks.block_bytes, b.blocks.block_bytes);
  EXPECT_EQ(a.blocks.first_block, b.blocks.first_block);
  EXPECT_EQ(a.blocks.blocks, b.blocks.blocks);
  ASSERT_EQ(a.bytes.size(), b.bytes.size());
  for (size_t i = 0; i < a.bytes.size(); ++i) EXPECT_EQ(a.bytes[i].bytes, b.bytes[i].bytes);
}

// Three stages: everything new; nothing changed; one name gone and another changed.
void WriteSmallRank(const std::string& directory) {
  auto writer = EvidenceWriter::Create(directory + "/values", 0).value();
  ASSERT_TRUE(writer->Rank(Header()).ok());
  TensorDescriptor meta = Weight();
  meta.owned = {};
  const int64_t unused = writer->Describe(meta);
  const int64_t weight = writer->Describe(Weight());
  EXPECT_NE(unused, weight);
  EXPECT_EQ(writer->Describe(Weight()), weight);
  StageRecord stage{.name = "loaded",
                    .complete = true,
                    .tensors = {{"layer.weight", Value(weight)}, {"b", Value(weight)}}};
  ASSERT_TRUE(writer->Stage(stage).ok());
  ASSERT_TRUE(writer->Collective({3, "broadcast", 0, "BF16", 15, {"layer.weight"}, {0, 2}}).ok());
  stage.name = "ready";
  stage.tensors["b"].storage_bytes = 4096;
  stage.tensors["b"].committed_bytes = 0;
  ASSERT_TRUE(writer->Stage(stage).ok());
  ASSERT_TRUE(writer
                  ->Fault({.id = "disk/eio",
                           .where = "rank 0",
                           .detail = "read of w",
                           .call = "read",
                           .error = "Input/output error",
                           .file = "f",
                           .byte = 9,
                           .tensors = {"v", "w"},
                           .rows = {1, 3}})
                  .ok());
  stage = {.name = "restored",
           .step = 2,
           .complete = true,
           .tensors = {{"layer.weight", Value(weight)}}};
  stage.tensors["layer.weight"].nan_count = 0;
  ASSERT_TRUE(writer->Stage(stage).ok());
  ASSERT_TRUE(writer->Error({"peer", "restored", "rank 1 vanished", "ConnectionError"}).ok());
  ASSERT_TRUE(writer->Keys({{"m"}, {"u"}}).ok());
  ASSERT_TRUE(writer->End().ok());
  ASSERT_TRUE(writer->Process(42, "node-3").ok());
  writer->SetStage("loaded");
  ASSERT_TRUE(writer->Memory({0.5, 1000, 300, ""}).ok());
  ASSERT_TRUE(writer->MemorySummary({1, 2, "loaded", 3, {}}).ok());
}

// What an optimizer keeps is carried forward by itself: the model's states stay beside it.
TEST_F(EvidenceFiles, KeepsModelAndOptimizerApart) {
  const std::string stage = "{\"record\":\"stage\",\"name\":\"stepped\",\"step\":1";
  const auto end = [](int tensors) {
    return fmt::format(
        "{{\"record\":\"stage_end\",\"name\":\"stepped\",\"step\":1,\"tensors\":{}}}\n", tensors);
  };
  const std::string rng = "{\"record\":\"rng\",\"cpu\":\"0123456789abcdef0123456789abcdef\"}\n";
  const std::string optimizer =
      R"({"record":"optimizer","groups":[{"options":{"lr":"0.1"},"parameters":["w"]}],)"
      R"("strangers":[{"group":0,"index":1,"was":"old","shape":[2,3]}],"values":{"w.step":"3"}})"
      "\n";
  const RankEvidence rank = ReadLines(Tensor(0) + stage + "}\n" + StateLine(0) + rng + end(1) +
                                      stage + ",\"of\":\"optimizer\"}\n" + optimizer + end(0));
  EXPECT_EQ(rank.damage, "");
  ASSERT_EQ(rank.stages.size(), 2u);
  EXPECT_EQ(rank.stages[1].Key(), "stepped@1.optimizer");
  EXPECT_EQ(rank.Stage("stepped@1")->tensors.size(), 1u);
  EXPECT_EQ(rank.Stage("stepped@1")->rng, "0123456789abcdef0123456789abcdef");
  const StageRecord& kept = *rank.Stage("stepped@1.optimizer");
  EXPECT_TRUE(kept.tensors.empty());
  ASSERT_TRUE(kept.optimizer.has_value());
  EXPECT_EQ(kept.optimizer->groups.at(0).options.at("lr"), "0.1");
  EXPECT_THAT(kept.optimizer->groups.at(0).parameters, ElementsAre("w"));
  EXPECT_EQ(kept.optimizer->strangers.at(0).was, "old");
  EXPECT_THAT(kept.optimizer->strangers.at(0).shape, ElementsAre(2, 3));
  EXPECT_EQ(kept.optimizer->values.at("w.step"), "3");
}

TEST_F(EvidenceFiles, RefusesAnOptimizerOutsideItsStage) {
  const std::string record = R"({"record":"optimizer","groups":[],"strangers":[],"values":{}})"
                             "\n";
  EXPECT_THAT(ReadLines(record).damage, HasSubstr("within a stage of the optimizer"));
  const std::string stage = "{\"record\":\"stage\",\"name\":\"ready\",\"step\":0}\n";
  EXPECT_THAT(ReadLines(stage + record).damage, HasSubstr("within a stage of the optimizer"));
}

TEST_F(EvidenceFiles, RoundTripEveryRecord) {
  WriteSmallRank(directory_);
  const RankEvidence rank = Read();
  EXPECT_EQ(rank.damage, "");
  EXPECT_TRUE(rank.closed);
  ASSERT_EQ(rank.descriptors.size(), 1u);  // the one that no state used is not written
  const TensorDescriptor& d = rank.descriptors[0];
  EXPECT_EQ(d.name, "layer.weight");
  EXPECT_EQ(d.placements[0].split_factor, 2);
  EXPECT_EQ(d.placements[2].dim, 1);
  EXPECT_EQ(d.owned[1].stride, 3u);
  EXPECT_EQ(d.OwnedElements(), 11u);
  EXPECT_EQ(d.ElementCount(), 15u);
  EXPECT_EQ(d.alias_group, 4);
  EXPECT_EQ(d.identity, 9);
  EXPECT_TRUE(d.requires_grad);
  EXPECT_EQ(d.attributes, Weight().attributes);
  EXPECT_EQ(d.local_stride, Weight().local_stride);

  ASSERT_EQ(rank.stages.size(), 3u);
  ExpectEqual(rank.Stage("loaded")->tensors.at("b"), Value(0));
  ExpectEqual(rank.Stage("ready")->tensors.at("layer.weight"), Value(0));
  EXPECT_EQ(rank.Stage("ready")->tensors.at("b").storage_bytes, 4096u);
  EXPECT_EQ(rank.Stage("ready")->tensors.at("b").committed_bytes, 0u);
  EXPECT_FALSE(rank.Stage("loaded")->tensors.at("b").storage_bytes.has_value());
  EXPECT_EQ(rank.Stage("restored@2")->step, 2);
  EXPECT_EQ(rank.Stage("restored@2")->tensors.size(), 1u);
  EXPECT_EQ(rank.Stage("restored@2")->tensors.at("layer.weight").nan_count, 0u);
  for (const StageRecord& stage : rank.stages) EXPECT_TRUE(stage.complete);

  EXPECT_EQ(rank.collectives.at(0).count, 15u);
  EXPECT_EQ(rank.collectives.at(0).root, 0);
  EXPECT_EQ(rank.collectives.at(0).group, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(rank.faults.at(0).detail, "read of w");
  EXPECT_EQ(rank.faults.at(0).call, "read");
  EXPECT_EQ(rank.faults.at(0).error, "Input/output error");
  EXPECT_EQ(rank.faults.at(0).file, "f");
  EXPECT_EQ(rank.faults.at(0).byte, 9u);
  EXPECT_EQ(rank.faults.at(0).tensors, (std::vector<std::string>{"v", "w"}));
  EXPECT_EQ(rank.faults.at(0).rows, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(rank.errors.at(0).message, "rank 1 vanished");
  EXPECT_EQ(rank.errors.at(0).type, "ConnectionError");
  EXPECT_EQ(rank.keys->missing, std::vector<std::string>{"m"});
  EXPECT_EQ(rank.host, "node-3");
  EXPECT_EQ(rank.process_id, 42);
  EXPECT_EQ(rank.memory->samples.at(0).stage, "loaded");
  EXPECT_EQ(rank.memory->samples.at(0).device_bytes, 300u);
  EXPECT_EQ(rank.memory->own_shard_bytes, 3u);
}

TEST_F(EvidenceFiles, FactsAreAlikeByteForByteAndHoldOnlyWhatChanged) {
  WriteSmallRank(directory_);
  WriteSmallRank(directory_ + "/again");
  const std::string facts = Slurp(Facts());
  EXPECT_EQ(facts, Slurp(directory_ + "/again/values/rank_0.facts.jsonl"));
  size_t states = 0;
  std::istringstream lines(facts);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line.rfind("{\"record\":\"", 0), 0u) << line;
    states += line.rfind("{\"record\":\"state\"", 0) == 0;
  }
  EXPECT_EQ(states, 3u);
  EXPECT_EQ(facts.find("node-3"), std::string::npos);
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
  run.phases[0] = {"values", "values", "plain", run.test_case.mesh, "", {}};
  run.phases[0].ranks.resize(2);
  run.phases[0].ranks[1].rank = 1;
  run.phases[0].ranks[1].exit = "signal 9";
  run.phases[0].ranks[1].stderr_tail = "Killed \xff";
  run.phases[1] = {"memory", "memory", "plain", run.test_case.mesh, "no GPU", {}};
  ASSERT_TRUE(WriteRun(directory_, run).ok());
  const Evidence evidence = ReadEvidence(directory_).value();
  EXPECT_EQ(evidence.test_case.model.checkpoint, "models/tiny");
  EXPECT_EQ(evidence.Phase("values")->WorldSize(), 2);
  EXPECT_EQ(evidence.phases[0].ranks[0].damage, "");
  EXPECT_TRUE(evidence.phases[0].ranks[0].closed);
  EXPECT_EQ(evidence.phases[0].ranks[1].exit, "signal 9");
  EXPECT_THAT(evidence.phases[0].ranks[1].damage, HasSubstr("rank_1.facts.jsonl: No such file"));
  EXPECT_EQ(evidence.Phase("memory")->skipped, "no GPU");
  EXPECT_EQ(evidence.Phase("resume"), nullptr);
  EXPECT_THAT(evidence.oracle.source.error, HasSubstr("no oracle.json"));
}

TEST_F(EvidenceFiles, RefusesRunFilesThatAreWrong) {
  EXPECT_THAT(ReadEvidence(directory_).error().message, HasSubstr("run.json: No such file"));
  ASSERT_EQ(::mkfifo((directory_ + "/run.json").c_str(), 0600), 0);
  EXPECT_THAT(ReadEvidence(directory_).error().message, HasSubstr("run.json: is no regular file"));
  ASSERT_EQ(::unlink((directory_ + "/run.json").c_str()), 0);
  const std::string head =
      R"({"schema":1,"case":{"schema":1,"model":{"checkpoint":"d"},"mesh":[{"name":"tp","size":1}]},)";
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
      {head + phase("../etc", ranks), "/phases/0/name: expected letters"},
      {head + phase("a", R"("world_size":99999999,"ranks":[])"), "from 0 to 65536"},
      {head + phase("a", R"("world_size":1,"ranks":[{"rank":1,"exit":"ok"}])"), "from 0 to 0"},
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

TEST_F(EvidenceFiles, OracleRoundTrips) {
  OracleRecord oracle;
  FileTensor tensor{"w",
                    "model.safetensors",
                    8,
                    "F32",
                    {2, 2},
                    Digest(1, 2),
                    Digest(3, 4),
                    1,
                    2,
                    3,
                    {4096, 0, {Digest(5, 6)}},
                    {{0, "abcd"}}};
  oracle.source.tensors["w"] = tensor;
  oracle.saved["values"].error = "cannot read";
  oracle.roots["train"] = {.error = "e",
                           .was_empty = false,
                           .latest = "step-00000002\n",
                           .names = {"latest", "step-00000002"},
                           .steps = {{"step-00000002", true, 3, {"one", "two"}}}};
  oracle.ties = {{"a", "b"}};
  oracle.derived["rope"] = {"rope default", {1.0f, 0.1f, -0.0f, INFINITY}, 2};
  oracle.missing["m"] = tensor;
  tensor.keys = {"w.0", "w.1"};
  oracle.source.tensors["packed"] = tensor;
  oracle.missing_allowed = {"m"};
  oracle.unexpected_allowed = {"u"};
  oracle.declared["w"].name = "w";
  oracle.declared["w"].shape = {2, 2};
  ASSERT_TRUE(WriteOracle(directory_, oracle).ok());
  const OracleRecord read = ReadOracle(directory_ + "/oracle.json").value();
  EXPECT_EQ(read.source.tensors.at("w").digest, tensor.digest);
  EXPECT_EQ(read.source.tensors.at("w").bytes.at(0).bytes, "abcd");
  EXPECT_EQ(read.source.tensors.at("w").first_nonfinite, 3u);
  EXPECT_EQ(read.source.tensors.at("w").name, "w");
  EXPECT_TRUE(read.source.tensors.at("w").keys.empty());
  EXPECT_EQ(read.source.tensors.at("packed").keys, tensor.keys);
  EXPECT_EQ(read.saved.at("values").error, "cannot read");
  const SavedRoot& root = read.roots.at("train");
  EXPECT_EQ(root.error, "e");
  EXPECT_FALSE(root.was_empty);
  EXPECT_EQ(root.latest, "step-00000002\n");
  EXPECT_EQ(root.names, oracle.roots["train"].names);
  EXPECT_EQ(root.steps.at(0).name, "step-00000002");
  EXPECT_TRUE(root.steps.at(0).sealed);
  EXPECT_EQ(root.steps.at(0).tensors, 3);
  EXPECT_EQ(root.steps.at(0).damage, oracle.roots["train"].steps[0].damage);
  EXPECT_EQ(read.ties, oracle.ties);
  EXPECT_EQ(read.derived.at("rope").values, oracle.derived["rope"].values);
  EXPECT_TRUE(std::signbit(read.derived.at("rope").values[2]));
  EXPECT_EQ(read.missing.at("m").blocks.blocks, tensor.blocks.blocks);
  EXPECT_EQ(read.missing_allowed, oracle.missing_allowed);
  EXPECT_EQ(read.declared.at("w").shape, oracle.declared["w"].shape);

  const std::string text = Slurp(directory_ + "/oracle.json");
  for (size_t size = 0; size + 2 < text.size(); size += 7) {
    Spill(directory_ + "/oracle.json", text.substr(0, size));
    EXPECT_FALSE(ReadOracle(directory_ + "/oracle.json").ok());
  }
}

TEST_F(EvidenceFiles, WriterRefusesCallsOutOfOrderAndSecondStreams) {
  auto writer = EvidenceWriter::Create(directory_ + "/values", 0).value();
  EXPECT_THAT(EvidenceWriter::Create(directory_ + "/values", 0).error().message,
              HasSubstr("rank_0.facts.jsonl: File exists"));
  ASSERT_TRUE(writer->Rank(Header()).ok());
  EXPECT_EQ(writer->Rank(Header()).error().code, ErrorCode::kInternal);
  EXPECT_FALSE(writer->State("w", {}).ok());
  EXPECT_FALSE(writer->EndStage().ok());
  ASSERT_TRUE(writer->BeginStage("a", 0).ok());
  EXPECT_FALSE(writer->BeginStage("b", 0).ok());
  EXPECT_THAT(writer->State("w", {}).error().message, HasSubstr("descriptor 0, of 0"));
}

TEST_F(EvidenceFiles, FullDiskIsBadInputAndNamesTheFile) {
  auto writer = EvidenceWriter::Create(directory_ + "/values", 0).value();
  ASSERT_TRUE(writer->Rank(Header()).ok());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = before;
  limit.rlim_cur = fs::file_size(Facts()) + 10;
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  const Status first = writer->Error({"failed", "s", "a message"});
  setrlimit(RLIMIT_FSIZE, &before);
  const Status second = writer->Error({"failed", "s", "a message"});
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(first.error().message, HasSubstr("rank_0.facts.jsonl"));
  EXPECT_THAT(first.error().message, HasSubstr("File too large"));
  EXPECT_FALSE(second.ok());  // a line after the torn one would be joined to it
  EXPECT_EQ(Read().damage, "");
}

TEST_F(EvidenceFiles, AtomicWriteLeavesTheOldFileOrTheNew) {
  const std::string path = directory_ + "/out.json";
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  ASSERT_TRUE(WriteFileAtomically(path, "new").ok());
  EXPECT_EQ(Slurp(path), "new");
  EXPECT_FALSE(WriteFileAtomically(directory_ + "/no/out.json", "x").ok());
  EXPECT_FALSE(WriteFileAtomically(directory_, "x").ok());
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory_)) ++files;
  EXPECT_EQ(files, 1u);
}

TEST_F(EvidenceFiles, MeasuresFromManyThreadsAreWholeLines) {
  auto writer = EvidenceWriter::Create(directory_ + "/values", 0).value();
  ASSERT_TRUE(writer->Rank(Header()).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        writer->SetStage(fmt::format("stage {}", i));
        (void)writer->Memory({1.0 * i, 1, 0, ""});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const RankEvidence rank = Read();
  EXPECT_EQ(rank.damage, "");
  EXPECT_EQ(rank.memory->samples.size(), 2000u);
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
