// Cases survive the round trip, and every refusal names the field, what was expected and found.
#include "verify/case/case_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace shardproof {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json SmallCase() {
  return json::parse(R"({
    "schema": 1, "why": "smallest", "seed": 18446744073709551615,
    "model": {"tensors": [
      {"name": "embed.weight", "dtype": "BF16", "shape": [8, 3]},
      {"name": "head.weight", "dtype": "BF16", "shape": [8, 3]},
      {"name": "rope.inv_freq", "kind": "buffer", "dtype": "F32", "shape": [4],
       "persistent": false, "rope": {"rope_type": "default", "rope_theta": 10000.0}}],
      "ties": [["embed.weight", "head.weight"]], "missing": ["embed.weight"],
      "unexpected": ["extra"]},
    "mesh": [{"name": "dp_shard", "size": 4}]})");
}

std::string Refusal(const json& value) {
  const Result<Case> parsed = ParseCase(value);
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.error().code, ErrorCode::kBadInput);
  return parsed.error().message;
}

// SmallCase with one place changed.
std::string RefusalWith(const std::string& pointer, const json& value) {
  json changed = SmallCase();
  changed[json::json_pointer(pointer)] = value;
  return Refusal(changed);
}

TEST(CaseJson, FillsDefaultsAndKeepsWhatIsGiven) {
  const Case c = ParseCase(SmallCase()).value();
  EXPECT_EQ(c.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(c.WorldSize(), 4);
  EXPECT_EQ(c.strategy, "rank0-broadcast");
  EXPECT_EQ(c.model.tensors[2].rope->theta, 10000.0);
  EXPECT_FALSE(c.model.tensors[2].persistent);
}

TEST(CaseJson, RoundTripsEveryField) {
  Case c = ParseCase(SmallCase()).value();
  c.model.tensors[0].attributes = {{"tensor_model_parallel", "True"}};
  for (const size_t tied : {0, 1}) {
    c.model.tensors[tied].init = "ones";
    c.model.tensors[tied].requires_grad = false;
  }
  c.model.tensors[2].built_real = true;
  c.model.files = 3;
  c.strategy = "plain";
  c.bucket_bytes = 1;
  c.max_file_bytes = 4096;
  c.leftovers = true;
  c.as_stated = true;
  c.resume_mesh = {{"dp_shard", 2}, {"tp", 3}};
  c.faults = {{"checkpoint/write/enospc", "rank 2"}};
  c.bug = "loading.skips_last_rank";
  c.host_slack_bytes = 0;
  c.deadline_ms = 1;
  const json first = CaseToJson(c);
  const Result<Case> again = ParseCase(json::parse(first.dump()));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(CaseToJson(again.value()), first);
  EXPECT_EQ(again.value().model.tensors[0].attributes, c.model.tensors[0].attributes);
  EXPECT_EQ(again.value().resume_mesh[1].name, "tp");
}

TEST(CaseJson, RoundTripsACheckpointModel) {
  json value = SmallCase();
  value["model"] = {{"checkpoint", "models/tiny"}, {"missing", {"lm_head.weight"}}};
  const Case c = ParseCase(value).value();
  EXPECT_EQ(CaseToJson(ParseCase(CaseToJson(c)).value()), CaseToJson(c));
}

TEST(CaseJson, ReadsTheFormerNameOfADevice) {
  json value = SmallCase();
  value["device"] = "apart";
  const Result<Case> read = ParseCase(value);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read.value().device, "isolated");
  EXPECT_EQ(CaseToJson(read.value())["device"], "isolated");
  EXPECT_THAT(RefusalWith("/device", "beside"), HasSubstr("/device: expected one of"));
}

TEST(CaseJson, RefusesUnknownFieldsAtEveryLevelAndListsTheKnown) {
  EXPECT_THAT(RefusalWith("/meshh", 1), HasSubstr("unknown field \"meshh\", expected one of"));
  EXPECT_THAT(RefusalWith("/model/tensors/1/dtyp", 1),
              HasSubstr("/model/tensors/1: unknown field"));
  EXPECT_THAT(RefusalWith("/model/tier", 1), HasSubstr("/model: unknown field \"tier\""));
  EXPECT_THAT(RefusalWith("/mesh/0/count", 1), HasSubstr("/mesh/0: unknown field"));
  EXPECT_THAT(RefusalWith("/faults", {{{"id", "a"}, {"when", 1}}}),
              HasSubstr("/faults/0: unknown"));
}

TEST(CaseJson, RefusesMissingFields) {
  for (const char* name : {"schema", "model", "mesh"}) {
    json value = SmallCase();
    value.erase(name);
    EXPECT_THAT(Refusal(value), HasSubstr(std::string("field \"") + name + "\" is missing"));
  }
  for (const char* name : {"name", "dtype", "shape"}) {
    json value = SmallCase();
    value["model"]["tensors"][0].erase(name);
    EXPECT_THAT(Refusal(value), HasSubstr("/model/tensors/0: field"));
  }
}

TEST(CaseJson, RefusesWrongTypes) {
  EXPECT_THAT(RefusalWith("/schema", "1"), HasSubstr("/schema: expected an integer"));
  EXPECT_THAT(RefusalWith("/schema", 2), HasSubstr("from 1 to 1, found 2"));
  EXPECT_THAT(RefusalWith("/seed", -1), HasSubstr("/seed: expected an integer from 0"));
  EXPECT_THAT(RefusalWith("/seed", 1.5), HasSubstr("found 1.5"));
  EXPECT_THAT(RefusalWith("/seed", 1e300), HasSubstr("/seed: expected an integer"));
  EXPECT_THAT(RefusalWith("/why", 3), HasSubstr("/why: expected a string, found 3"));
  EXPECT_THAT(RefusalWith("/subject", ""),
              HasSubstr("/subject: expected \"reference\" or the path"));
  EXPECT_THAT(RefusalWith("/model", 3), HasSubstr("/model: expected an object, found 3"));
  EXPECT_THAT(RefusalWith("/mesh", json::object()), HasSubstr("expected an array"));
  EXPECT_THAT(RefusalWith("/mesh/0", 4), HasSubstr("/mesh/0: expected an object"));
  EXPECT_THAT(RefusalWith("/model/tensors/0/persistent", "no"),
              HasSubstr("expected true or false"));
  EXPECT_THAT(RefusalWith("/model/tensors/0/attributes", {{"a", 1}}),
              HasSubstr("/model/tensors/0/attributes/a: expected a string"));
  EXPECT_THAT(RefusalWith("/model/ties/0", "a"), HasSubstr("expected an array of names"));
  EXPECT_THAT(RefusalWith("/model/ties/0/1", 1), HasSubstr("/model/ties/0/1: expected a string"));
  EXPECT_THAT(Refusal(json::array()), HasSubstr("document: expected an object"));
  EXPECT_THAT(Refusal(json()), HasSubstr("expected an object, found null"));
}

TEST(CaseJson, RefusesStridesThatDoNotFitTheShape) {
  const char* at = "/model/tensors/0/strides";  // its shape is [8, 3]
  EXPECT_THAT(RefusalWith(at, 3), HasSubstr("expected an array"));
  EXPECT_THAT(RefusalWith(at, {1}), HasSubstr("/strides: expected one a dim, 2, found 1"));
  EXPECT_THAT(RefusalWith(at, {0, 8}), HasSubstr("/strides/0: expected an integer from 1"));
  EXPECT_THAT(RefusalWith(at, {1, 7}),
              HasSubstr("expected a stride of at least 8 for 3 elements, found 7"));
  EXPECT_THAT(RefusalWith(at, {2, 2}), HasSubstr("elements would share memory"));
  EXPECT_THAT(RefusalWith(at, {int64_t{1} << 40, 1}), HasSubstr("found more"));
  json value = SmallCase();
  value["model"]["tensors"][0]["strides"] = {2, 16};
  value["model"]["tensors"][1]["strides"] = {2, 16};  // it is tied to that one
  const auto parsed = ParseCase(value);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(CaseToJson(parsed.value())["model"]["tensors"][0]["strides"], json({2, 16}));
}

TEST(CaseJson, RefusesUnknownNamesAndListsTheKnown) {
  EXPECT_THAT(RefusalWith("/model/tensors/0/dtype", "F31"), HasSubstr("C64, found \"F31\""));
  EXPECT_THAT(RefusalWith("/model/tensors/0/dtype", "F31"), HasSubstr("one of BOOL, U8"));
  EXPECT_THAT(RefusalWith("/model/tensors/0/kind", "weight"), HasSubstr("parameter or buffer"));
  EXPECT_THAT(RefusalWith("/model/tensors/0/init", "normal"), HasSubstr("uniform, ones or zeros"));
  EXPECT_THAT(RefusalWith("/strategy", "magic"), HasSubstr("each-reads-own or plain"));
  EXPECT_THAT(RefusalWith("/mesh/0/name", "dp_shrad"), HasSubstr("dp_shard, dp_replicate"));
}

TEST(CaseJson, RefusesMeshesThatAreEmptyOrTooLarge) {
  EXPECT_THAT(RefusalWith("/mesh", json::array()), HasSubstr("at least one axis"));
  EXPECT_THAT(RefusalWith("/mesh/0/size", 0),
              HasSubstr("/mesh/0/size: expected an integer from 1"));
  EXPECT_THAT(RefusalWith("/mesh/0/size", -4), HasSubstr("found -4"));
  EXPECT_THAT(RefusalWith("/mesh/0/size", 1025), HasSubstr("to 1024, found 1025"));
  EXPECT_THAT(RefusalWith("/mesh/0/size", 18446744073709551615u), HasSubstr("found 1844674407"));
  EXPECT_THAT(RefusalWith("/mesh/1", {{"name", "tp"}, {"size", 257}}), HasSubstr("at most 1024"));
  EXPECT_THAT(RefusalWith("/mesh/1", {{"name", "dp_shard"}, {"size", 1}}),
              HasSubstr("given twice"));
  EXPECT_THAT(RefusalWith("/resume_mesh", {{{"name", "tp"}, {"size", 0}}}),
              HasSubstr("/resume_mesh/0/size"));
}

TEST(CaseJson, RefusesImpossibleShapesAndByteCounts) {
  EXPECT_THAT(RefusalWith("/model/tensors/0/shape/0", -1), HasSubstr("/shape/0: expected"));
  EXPECT_THAT(RefusalWith("/model/tensors/0/shape", {1ll << 40, 1ll << 40}),
              HasSubstr("overflows"));
  EXPECT_THAT(RefusalWith("/model/tensors/0/shape", {1ll << 40, 2}), HasSubstr("found more"));
  EXPECT_THAT(RefusalWith("/model/tensors/0/shape/0", 1ll << 41), HasSubstr("found 219902"));
  EXPECT_THAT(RefusalWith("/model/tensors/0/shape", json(std::vector<int>(17, 1))),
              HasSubstr("at most 16 dims"));
  EXPECT_THAT(RefusalWith("/bucket_bytes", 0), HasSubstr("/bucket_bytes"));
  EXPECT_THAT(RefusalWith("/bucket_bytes", 1ull << 51), HasSubstr("/bucket_bytes"));
  EXPECT_THAT(RefusalWith("/max_file_bytes", -1), HasSubstr("/max_file_bytes"));
  EXPECT_THAT(RefusalWith("/host_slack_bytes", 1ull << 63), HasSubstr("/host_slack_bytes"));
  EXPECT_THAT(RefusalWith("/deadline_ms", 0), HasSubstr("/deadline_ms"));
  EXPECT_THAT(RefusalWith("/model/files", 0), HasSubstr("/model/files"));
}

TEST(CaseJson, RefusesModelsThatContradictThemselves) {
  EXPECT_THAT(RefusalWith("/model", json::object()), HasSubstr("found neither"));
  EXPECT_THAT(RefusalWith("/model/checkpoint", "dir"), HasSubstr("found both"));
  EXPECT_THAT(RefusalWith("/model", {{"checkpoint", ""}}), HasSubstr("path of a directory"));
  EXPECT_THAT(RefusalWith("/model", {{"checkpoint", "d"}, {"ties", json::array()}}),
              HasSubstr("unknown field \"ties\""));
  EXPECT_THAT(RefusalWith("/model/tensors", json::array()), HasSubstr("at least one tensor"));
  EXPECT_THAT(RefusalWith("/model/tensors/1/name", "embed.weight"), HasSubstr("is given twice"));
  EXPECT_THAT(RefusalWith("/model/tensors/2/name", "embed.weight.x"),
              HasSubstr("makes \"embed.weight\" a module"));
  EXPECT_THAT(RefusalWith("/model/tensors/0/persistent", false), HasSubstr("expected true for"));
}

TEST(CaseJson, RefusesRopesWithoutFrequencies) {
  const std::string rope = "/model/tensors/2/rope";
  EXPECT_THAT(RefusalWith("/model/tensors/2/persistent", true), HasSubstr("non-persistent F32"));
  EXPECT_THAT(RefusalWith(rope, json::object()), HasSubstr("\"rope_type\" is missing"));
  EXPECT_THAT(RefusalWith(rope + "/rope_type", "yarm"), HasSubstr("llama3 or proportional"));
  for (const char* name :
       {"rope_theta", "factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow"}) {
    EXPECT_THAT(RefusalWith(rope + "/" + name, -1.0), HasSubstr("finite number above 0")) << name;
    EXPECT_THAT(RefusalWith(rope + "/" + name, 0), HasSubstr("finite number above 0")) << name;
  }
  EXPECT_THAT(RefusalWith(rope + "/rope_type", "yarn"), HasSubstr("above 0 for yarn"));
  EXPECT_THAT(RefusalWith(rope + "/rope_type", "longrope"), HasSubstr("expected 4 factors"));
  EXPECT_THAT(RefusalWith(rope + "/dim", 9), HasSubstr("gives 4 frequencies, found 9"));
  EXPECT_EQ(RefusalWith(rope + "/dim", 7), "accepted");
  EXPECT_THAT(RefusalWith(rope + "/rotated", 5), HasSubstr("at most 4"));
  EXPECT_THAT(RefusalWith(rope + "/short_factor", {"a"}), HasSubstr("expected a number"));
}

TEST(CaseJson, RefusesStoredKeysThatDoNotMakeTheTensor) {
  const std::string stored = "/model/tensors/0/stored";  // BF16 [8, 3]
  const auto key = [](const char* name, std::vector<int64_t> shape) {
    return json{{"key", name}, {"shape", shape}};
  };
  const auto ways = [](std::vector<json> keys) { return json::array({json(keys)}); };
  EXPECT_EQ(RefusalWith(stored, ways({key("a", {4, 3}), key("b", {2, 2, 3})})), "accepted");
  EXPECT_THAT(RefusalWith(stored, ways({key("a", {4, 3})})), HasSubstr("48 bytes in all"));
  EXPECT_THAT(RefusalWith(stored, ways({})), HasSubstr("found 0 keys"));
  EXPECT_THAT(RefusalWith(stored, ways({key("a", {4, 3}), key("a", {4, 3})})), HasSubstr("twice"));
  EXPECT_THAT(RefusalWith(stored, ways({key("head.weight", {8, 3})})), HasSubstr("also a key"));
  EXPECT_THAT(RefusalWith(stored, ways({key("", {8, 3})})), HasSubstr("an empty one"));
  EXPECT_THAT(RefusalWith(stored, json::array({3})), HasSubstr("an array of keys"));
  EXPECT_THAT(RefusalWith(stored, ways({key("a", {int64_t{1} << 40, 1 << 20})})),
              HasSubstr("at most"));
  EXPECT_THAT(RefusalWith("/model/tensors/2/stored", ways({key("a", {4})})),
              HasSubstr("no checkpoint keeps"));
}

TEST(CaseJson, RefusesNamesThatNoTensorCanHave) {
  for (const char* name : {"", ".a", "a.", "a..b", "__metadata__", "a\x1b[2J"}) {
    EXPECT_THAT(RefusalWith("/model/tensors/2/name", name), HasSubstr("/model/tensors/2/name"));
  }
  EXPECT_THAT(RefusalWith("/model/tensors/2/name", std::string(1025, 'a')), HasSubstr("1025"));
}

TEST(CaseJson, RefusesTiesAndKeysThatNameNoTensor) {
  EXPECT_THAT(RefusalWith("/model/ties/0/1", "nobody"), HasSubstr("found \"nobody\""));
  EXPECT_THAT(RefusalWith("/model/ties/0", {"embed.weight"}), HasSubstr("two names or more"));
  EXPECT_THAT(RefusalWith("/model/ties/1", {"embed.weight", "rope.inv_freq"}), HasSubstr("twice"));
  EXPECT_THAT(RefusalWith("/model/tensors/1/requires_grad", false),
              HasSubstr("tied tensors are one"));
  EXPECT_THAT(RefusalWith("/model/tensors/1/kind", "buffer"), HasSubstr("tied tensors are one"));
  EXPECT_THAT(RefusalWith("/model/tensors/1/shape", {3, 8}), HasSubstr("found BF16 and [3, 8]"));
  EXPECT_THAT(RefusalWith("/model/tensors/1/dtype", "F16"), HasSubstr("found F16"));
  EXPECT_THAT(RefusalWith("/model/missing/0", "nobody"), HasSubstr("/model/missing/0"));
  EXPECT_THAT(RefusalWith("/model/missing/1", "embed.weight"), HasSubstr("given twice"));
  EXPECT_THAT(RefusalWith("/model/unexpected/0", "head.weight"),
              HasSubstr("no tensor of the state dict"));
}

TEST(JsonText, RefusesDepthAndWhatIsNotJson) {
  simdjson::dom::parser parser;
  EXPECT_THAT(ParseJson(parser, std::string(2000, '[') + std::string(2000, ']')).error().message,
              HasSubstr("too deep"));
  const Error error = ParseJson(parser, "{\"a\": \"\xff\x1b\"}").error();
  EXPECT_THAT(error.message, HasSubstr("not JSON"));
  EXPECT_THAT(ParseJson(parser, "{\"a\": 1,\n \"b\" 2}").error().message,
              HasSubstr("line 2, column 6"));
  EXPECT_EQ(error.message.find('\x1b'), std::string::npos);
  for (const char* text :
       {"", "{", "[[", "nul", "{} {}", "[1,]", "\"\\ud800\"", "18446744073709551616"}) {
    EXPECT_FALSE(ParseJson(parser, text).ok()) << text;
  }
  EXPECT_TRUE(ParseJson(parser, R"({"a": {"b": 1}, "c": {"b": "]}{[\"["}})").ok());
}

TEST(JsonText, KeysThatAreGivenTwiceAreRefused) {
  simdjson::dom::parser parser;
  const JsonValue value =
      ParseJson(parser, R"({"a": 1, "b": {"c": "x", "c": "y"}, "a": 2})").value();
  Complaint of_fields;
  FieldReader fields(value, "", of_fields);
  int64_t number = 0;
  std::map<std::string, std::string> texts;
  fields.Required("a", number);
  EXPECT_TRUE(fields.Known("b"));
  EXPECT_TRUE(fields.ok());
  fields.Finish();
  EXPECT_EQ(of_fields.text(), "document: expected every key once, found \"a\" given twice");
  Complaint of_members;
  FieldReader(value, "", of_members).Required("b", texts);
  EXPECT_EQ(of_members.text(), "/b: expected every key once, found \"c\" given twice");
}

TEST(CaseFile, NamesTheFile) {
  EXPECT_THAT(ReadCaseFile("no/such.json").error().message,
              HasSubstr("no/such.json: No such file"));
  EXPECT_FALSE(ReadCaseFile(testing::TempDir()).ok());
  const std::string path = testing::TempDir() + "/case.json";
  std::ofstream(path) << SmallCase().dump();
  EXPECT_TRUE(ReadCaseFile(path).ok());
  std::ofstream(path) << "{";
  EXPECT_THAT(ReadCaseFile(path).error().message, HasSubstr(path));
  std::remove(path.c_str());
}

TEST(Case, WorldSizeOfAnOverflowingMeshIsZero) {
  Case c;
  EXPECT_EQ(c.WorldSize(), 1);
  c.mesh = {{"dp_shard", int64_t{1} << 40}, {"tp", int64_t{1} << 40}};
  EXPECT_EQ(c.WorldSize(), 0);
}

}  // namespace
}  // namespace shardproof
