#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "verify/oracle/fixture_files.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorCase Tensor(const std::string& name, const std::string& dtype, std::vector<int64_t> shape) {
  TensorCase tensor;
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  return tensor;
}

uint64_t Element(const std::string& bytes, uint64_t index, int width) {
  return LoadBits(bytes.data() + index * width, width);
}

// Worked out by hand from the formula of src/model/initial_value.h for seed 5, name "w".
TEST(InitialBytes, GivesTheFormulasValues) {
  const double scale = 0.02 * std::sqrt(3.0);
  const std::string f32 = InitialBytes(5, "w", "F32", {3}, "uniform", scale);
  EXPECT_EQ(f32, BytesOf<uint32_t>({0xbc30f875, 0xbd055b1f, 0x3cbba6d8}));
  EXPECT_EQ(InitialBytes(5, "w", "BF16", {3}, "uniform", scale),
            BytesOf<uint16_t>({0xbc31, 0xbd05, 0x3cbc}));
  const std::string f64 = InitialBytes(5, "w", "F64", {1}, "uniform", scale);
  EXPECT_EQ(std::bit_cast<double>(Element(f64, 0, 8)), std::bit_cast<float>(0xbc30f875u));
  EXPECT_EQ(InitialBytes(5, "w", "I16", {3}, "uniform", scale), BytesOf<int16_t>({54, 16, 56}));
  EXPECT_EQ(InitialBytes(5, "w", "F16", {2}, "ones", scale), BytesOf<uint16_t>({0x3c00, 0x3c00}));
  EXPECT_EQ(InitialBytes(5, "w", "I32", {1}, "ones", scale), BytesOf<int32_t>({1}));
  EXPECT_EQ(InitialBytes(5, "w", "F32", {2}, "zeros", scale), std::string(8, '\0'));
  EXPECT_NE(InitialBytes(5, "v", "F32", {3}, "uniform", scale), f32);
  EXPECT_NE(InitialBytes(6, "w", "F32", {3}, "uniform", scale), f32);
  // Complex: that of F32 and no imaginary part; exponents as whole numbers.
  std::string complex;
  for (size_t i = 0; i < 3; ++i) complex += f32.substr(4 * i, 4) + std::string(4, '\0');
  EXPECT_EQ(InitialBytes(5, "w", "C64", {3}, "uniform", scale), complex);
  EXPECT_EQ(InitialBytes(5, "w", "F8_E8M0", {3}, "uniform", scale), BytesOf<uint8_t>({54, 16, 56}));
  EXPECT_EQ(InitialBytes(5, "w", "F8_E4M3FNUZ", {3}, "uniform", scale), "");
}

class SyntheticTest : public ::testing::Test {
 protected:
  SyntheticTest() {
    case_.seed = 9;
    case_.model.tensors = {Tensor("a.weight", "BF16", {6, 4}), Tensor("b.weight", "F32", {5}),
                           Tensor("c.weight", "BF16", {6, 4}), Tensor("d.count", "I64", {}),
                           Tensor("e.mask", "BOOL", {3, 4}),   Tensor("f.gone", "F16", {3000}),
                           Tensor("g.inv_freq", "F32", {4}),   Tensor("h.fp8", "F8_E5M2", {4, 4})};
    case_.model.tensors[6].kind = "buffer";
    case_.model.tensors[6].persistent = false;
    case_.model.tensors[6].rope = RopeCase{};
    case_.model.ties = {{"a.weight", "c.weight"}};
    case_.model.missing = {"f.gone"};
    case_.model.unexpected = {"x.extra"};
  }

  CheckpointRecord Write() {
    const Status status = WriteSynthetic(case_, directory_.path());
    EXPECT_TRUE(status.ok()) << status.error().message;
    return ReadCheckpoint(directory_.path(), Locate(directory_.path()), {}, {});
  }

  Case case_;
  TemporaryDirectory directory_;
};

std::vector<std::string> Names(const CheckpointRecord& record) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : record.tensors) names.push_back(name);
  return names;
}

TEST_F(SyntheticTest, WritesWhatAStateDictHolds) {
  const CheckpointRecord record = Write();
  ASSERT_EQ(record.error, "");
  EXPECT_THAT(Names(record),
              ElementsAre("a.weight", "b.weight", "d.count", "e.mask", "h.fp8", "x.extra"));
  EXPECT_THAT(record.tensors.at("x.extra").shape, ElementsAre(4));
  EXPECT_EQ(record.tensors.at("a.weight").nan_count, 0u);
}

TEST_F(SyntheticTest, ValuesAreAFunctionOfSeedAndNameAndNotOfTheFiles) {
  const CheckpointRecord one = Write();
  case_.model.files = 3;
  const TemporaryDirectory sharded;
  ASSERT_TRUE(WriteSynthetic(case_, sharded.path()).ok());
  const CheckpointRecord three = ReadCheckpoint(sharded.path(), Locate(sharded.path()), {}, {});
  ASSERT_EQ(three.error, "");
  EXPECT_EQ(Names(three), Names(one));
  for (const auto& [name, tensor] : one.tensors) {
    EXPECT_EQ(three.tensors.at(name).digest, tensor.digest) << name;
  }
  EXPECT_TRUE(std::filesystem::exists(sharded / "model-00002-of-00003.safetensors"));
  case_.seed = 10;
  const TemporaryDirectory other;
  ASSERT_TRUE(WriteSynthetic(case_, other.path()).ok());
  EXPECT_NE(
      ReadCheckpoint(other.path(), Locate(other.path()), {}, {}).tensors.at("a.weight").digest,
      one.tensors.at("a.weight").digest);
}

TEST_F(SyntheticTest, NeighboursDifferAlongEveryDim) {
  const CheckpointRecord record = Write();
  for (const char* name : {"a.weight", "h.fp8"}) {
    const FileTensor& tensor = record.tensors.at(name);
    const std::string& bytes = tensor.bytes.at(0).bytes;
    const int width = FindDtype(tensor.dtype)->bytes;
    for (uint64_t i = 0; i + 4 < bytes.size() / width; ++i) {
      EXPECT_NE(Element(bytes, i, width), Element(bytes, i + 1, width)) << name << i;
      EXPECT_NE(Element(bytes, i, width), Element(bytes, i + 4, width)) << name << i;
    }
  }
  EXPECT_EQ(record.tensors.at("e.mask").bytes.at(0).bytes.substr(0, 4), std::string("\0\1\0\1", 4));
}

TEST_F(SyntheticTest, MoreFilesThanTensorsAndNoTensorsAreFine) {
  case_.model.files = 1'000'000'000;
  EXPECT_EQ(Write().tensors.size(), 6u);
  Case empty;
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteSynthetic(empty, directory.path()).ok());
  EXPECT_EQ(ReadCheckpoint(directory.path(), Locate(directory.path()), {}, {}).error, "");
}

TEST_F(SyntheticTest, RefusesWhatCannotBeWritten) {
  case_.model.tensors[0].dtype = "F99";
  EXPECT_THAT(WriteSynthetic(case_, directory_.path()).error().message, HasSubstr("'F99'"));
  case_.model.tensors[0].dtype = "F32";
  case_.model.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_THAT(WriteSynthetic(case_, directory_.path()).error().message, HasSubstr("2^63"));
  case_.model.tensors[0].shape = {1};
  case_.model.unexpected = {"b.weight"};
  EXPECT_FALSE(WriteSynthetic(case_, directory_.path()).ok());
  case_.model.unexpected.clear();
  case_.model.tensors[0].stored = {{{"a.0", {2}}}};
  EXPECT_THAT(WriteSynthetic(case_, directory_.path()).error().message, HasSubstr("its shape"));
  case_.model.tensors[0].stored = {{{"b.weight", {1}}}};
  EXPECT_THAT(WriteSynthetic(case_, directory_.path()).error().message, HasSubstr("'b.weight'"));
}

TEST_F(SyntheticTest, AStoredWayHoldsStretchesOfTheTensor) {
  const CheckpointRecord whole = Write();
  case_.model.tensors[0].stored = {{{"a.0", {2, 4}}, {"a.1", {4, 4}}}, {{"a", {24}}}};
  case_.model.tensors[5].stored = {{{"f.0", {3000}}}};
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteSynthetic(case_, directory.path()).ok());
  EXPECT_THAT(Names(ReadCheckpoint(directory.path(), Locate(directory.path()), {}, {})),
              ElementsAre("a.0", "a.1", "b.weight", "d.count", "e.mask", "h.fp8", "x.extra"));
  const CheckpointRecord parts =
      ReadCheckpoint(directory.path(), Locate(directory.path()), {}, case_.model.tensors);
  EXPECT_EQ(Names(parts), Names(whole));
  EXPECT_EQ(parts.tensors.at("a.weight").digest, whole.tensors.at("a.weight").digest);
  const auto consulted = Consult(case_, directory.path(), {});
  ASSERT_TRUE(consulted.ok()) << consulted.error().message;
  EXPECT_THAT(consulted.value().source.tensors.at("a.weight").keys, ElementsAre("a.0", "a.1"));
  EXPECT_EQ(consulted.value().declared.at("c.weight").dtype, "BF16");
  EXPECT_EQ(consulted.value().missing.size(), 1u);
}

TEST_F(SyntheticTest, ConsultRefusesASourceThatHoldsPartOfATensor) {
  case_.model.tensors[0].stored = {{{"a.0", {2, 4}}, {"a.1", {4, 4}}}};
  Write();
  case_.model.tensors[0].stored[0][0].key = "a.9";
  const auto consulted = Consult(case_, directory_.path(), {});
  ASSERT_FALSE(consulted.ok());
  EXPECT_EQ(consulted.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(consulted.error().message, HasSubstr("the first that is missing is 'a.9'"));
}

TEST_F(SyntheticTest, ConsultSaysWhatMustBe) {
  Write();
  const auto consulted = Consult(case_, directory_.path(), {{Phase::kValues, "f.gone", 5001, 3}});
  ASSERT_TRUE(consulted.ok()) << consulted.error().message;
  const OracleRecord& record = consulted.value();
  EXPECT_EQ(record.declared.size(), 8u);
  EXPECT_EQ(record.source.tensors.size(), 6u);
  EXPECT_THAT(record.ties, ElementsAre(ElementsAre("a.weight", "c.weight")));
  ASSERT_EQ(record.derived.size(), 1u);
  EXPECT_EQ(record.derived.at("g.inv_freq").values, DefaultInverseFrequencies(10000, 8));
  EXPECT_LE(record.derived.at("g.inv_freq").ulp_max, 2);
  EXPECT_EQ(record.derived.at("g.inv_freq").formula, "rope default, theta 10000, dim 8");
  ASSERT_EQ(record.missing.size(), 1u);
  const FileTensor& gone = record.missing.at("f.gone");
  EXPECT_EQ(gone.dtype, "F16");
  EXPECT_EQ(gone.blocks.blocks.size(), 2u);
  const std::string bytes =
      InitialBytes(9, "f.gone", "F16", {3000}, "uniform", 0.02 * std::sqrt(3.0));
  ASSERT_EQ(gone.bytes.size(), 1u);
  EXPECT_EQ(gone.bytes[0].start, 5001u);
  EXPECT_EQ(gone.bytes[0].bytes, bytes.substr(5001, 3));
  EXPECT_THAT(record.missing_allowed, ElementsAre("f.gone"));
  EXPECT_THAT(record.unexpected_allowed, ElementsAre("x.extra"));
}

TEST_F(SyntheticTest, DeclaredDtypeIsTheSourcesAlsoForTiedNames) {
  Write();
  case_.model.tensors[0].dtype = "F32";
  case_.model.tensors[2].dtype = "F32";
  const auto record = Consult(case_, directory_.path(), {});
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record.value().declared.at("a.weight").dtype, "BF16");
  EXPECT_EQ(record.value().declared.at("c.weight").dtype, "BF16");
  EXPECT_EQ(record.value().declared.at("b.weight").dtype, "F32");
}

TEST_F(SyntheticTest, ATieThatIsMissingAsAWholeIsInitialisedOnce) {
  case_.model.missing = {"a.weight", "c.weight"};
  Write();
  const auto record = Consult(case_, directory_.path(), {});
  ASSERT_TRUE(record.ok());
  ASSERT_EQ(record.value().missing.size(), 2u);
  EXPECT_EQ(record.value().missing.at("c.weight").digest,
            record.value().missing.at("a.weight").digest);
  case_.model.missing = {"a.weight"};
  const TemporaryDirectory other;
  ASSERT_TRUE(WriteSynthetic(case_, other.path()).ok());
  const auto partner = Consult(case_, other.path(), {});
  ASSERT_TRUE(partner.ok());
  EXPECT_EQ(partner.value().source.tensors.count("c.weight"), 1u);
  EXPECT_EQ(partner.value().missing.count("a.weight"), 0u);
}

TEST_F(SyntheticTest, ConsultRefusesBadSourcesAndCases) {
  EXPECT_FALSE(Consult(case_, directory_ / "absent", {}).ok());
  Write();
  case_.model.ties.push_back({"a.weight", "nobody"});
  EXPECT_THAT(Consult(case_, directory_.path(), {}).error().message, HasSubstr("'nobody'"));
  case_.model.ties.clear();
  case_.model.tensors[6].shape = {int64_t{1} << 40};
  EXPECT_THAT(Consult(case_, directory_.path(), {}).error().message, HasSubstr("rope"));
}

TEST(Consult, AHuggingFaceModelWithMissingKeysAndATie) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteTextFile(directory / "config.json",
                            R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 4,
      "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1,
      "tie_word_embeddings": true, "attention_bias": true})")
                  .ok());
  ASSERT_TRUE(WriteSafetensors(
                  directory / "model.safetensors",
                  {PlannedBytes("model.embed_tokens.weight", "F16", {4, 4}, std::string(32, 'x'))})
                  .ok());
  Case test_case;
  test_case.seed = 3;
  test_case.model.checkpoint = directory.path();
  const auto consulted = Consult(test_case, directory.path(), {});
  ASSERT_TRUE(consulted.ok()) << consulted.error().message;
  const OracleRecord& record = consulted.value();
  EXPECT_EQ(record.declared.at("lm_head.weight").dtype, "F16");
  EXPECT_EQ(record.missing.count("lm_head.weight"), 0u);
  EXPECT_EQ(record.derived.size(), 2u);
  EXPECT_EQ(record.missing.size(), 14u);
  EXPECT_EQ(record.missing.at("model.norm.weight").bytes.at(0).bytes,
            BytesOf({1.0f, 1.0f, 1.0f, 1.0f}));
  EXPECT_EQ(record.missing.at("model.layers.0.self_attn.q_proj.bias").digest, Digest());
}

}  // namespace
}  // namespace shardproof::oracle
