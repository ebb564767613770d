// Quantised weights beside a config that says how: sound ones, and each with one thing wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "verify/audit/audit.h"
#include "verify/oracle/fixture_files.h"

namespace shardproof {
namespace {

using oracle::BytesOf;
using oracle::PlannedBytes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A tensor whose elements all have these bytes; or, of more bytes, these.
struct Made {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string element;
};

const std::string kOne = BytesOf<float>({1});
const std::string kOneE4m3 = "\x38";

class UnitsTest : public ::testing::Test {
 protected:
  /// What is wrong with a checkpoint of these tensors and this quantization_config.
  std::vector<std::string> Damage(const std::string& config, const std::vector<Made>& tensors) {
    std::vector<oracle::PlannedTensor> planned;
    for (const Made& made : tensors) {
      int64_t count = 1;
      for (const int64_t size : made.shape) count *= size;
      std::string bytes = made.element;
      if (made.element.size() == static_cast<size_t>(oracle::FindDtype(made.dtype)->bytes)) {
        bytes.clear();
        for (int64_t i = 0; i < count; ++i) bytes += made.element;
      }
      planned.push_back(PlannedBytes(made.name, made.dtype, made.shape, bytes));
    }
    EXPECT_TRUE(oracle::WriteSafetensors(scratch_ / "model.safetensors", planned).ok());
    EXPECT_TRUE(oracle::WriteTextFile(scratch_ / "config.json",
                                      R"({"quantization_config": )" + config + "}")
                    .ok());
    const auto audited = Audit(scratch_.path());
    EXPECT_TRUE(audited.ok());
    if (!audited.ok()) return {audited.error().message};
    audited_ = audited.value();
    EXPECT_THAT(audited_.quantisation, HasSubstr("config.json"));
    return audited_.damage;
  }

  oracle::TemporaryDirectory scratch_;
  AuditResult audited_;  ///< the last
};

/// A dialect: its config, a sound unit, and the tensors of it that must be there.
struct Sound {
  std::string config;
  std::vector<Made> tensors;
  std::vector<size_t> required;  ///< indices of parts
  std::vector<size_t> of_shape;  ///< indices of tensors whose shape is known
};

std::string Compressed(const std::string& format, const std::string& weights,
                       const std::string& more = R"("targets": ["Linear"])") {
  return R"({"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {"g": {)"
         R"("format": ")" +
         format + R"(", "weights": {)" + weights + "}, " + more + "}}}";
}

const std::string kGptqConfig = R"({"quant_method": "gptq", "bits": 4, "group_size": 32})";
const std::string kFp8Config = R"({"quant_method": "fp8", "weight_block_size": [4, 8],
                                   "modules_to_not_convert": ["lm_head"]})";
const std::string kNvfp4Config =
    R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head*"]})";

const std::vector<Sound> kDialects = {
    {kFp8Config,
     {{"l.weight", "F8_E4M3", {6, 20}, kOneE4m3}, {"l.weight_scale_inv", "F32", {2, 3}, kOne}},
     {1},
     {1}},
    {kFp8Config,
     {{"e.gate_up_proj", "F8_E4M3", {2, 6, 20}, kOneE4m3},
      {"e.gate_up_proj_scale_inv", "F32", {2, 2, 3}, kOne}},
     {1},
     {1}},
    {R"({"quant_method": "fbgemm_fp8"})",
     {{"l.weight", "F8_E4M3", {6, 20}, kOneE4m3}, {"l.weight_scale", "F32", {6, 1}, kOne}},
     {1},
     {1}},
    {R"({"quant_algo": "FP8"})",
     {{"l.weight", "F8_E4M3", {6, 20}, kOneE4m3},
      {"l.weight_scale", "F32", {}, kOne},
      {"l.input_scale", "F32", {}, kOne}},
     {1},
     {1}},
    {kNvfp4Config,
     {{"l.weight", "U8", {6, 16}, "\x11"},
      {"l.weight_scale", "F8_E4M3", {6, 2}, kOneE4m3},
      {"l.weight_scale_2", "F32", {}, kOne},
      {"l.input_scale", "F32", {}, kOne}},
     {1, 2},
     {1, 2}},
    {Compressed("int-quantized", R"("num_bits": 8, "strategy": "channel", "symmetric": false)"),
     {{"l.weight", "I8", {6, 20}, "\x01"},
      {"l.weight_scale", "F32", {6, 1}, kOne},
      {"l.weight_zero_point", "I8", {6, 1}, "\x01"}},
     {1, 2},
     {1}},
    {Compressed("pack-quantized", R"("num_bits": 4, "strategy": "group", "group_size": 16)"),
     {{"l.weight_packed", "I32", {6, 4}, "1111"},
      {"l.weight_scale", "F32", {6, 2}, kOne},
      {"l.weight_shape", "I64", {2}, BytesOf<int64_t>({6, 32})}},
     {1, 2},
     {1, 2}},
    {Compressed("nvfp4-pack-quantized", R"("num_bits": 4, "strategy": "tensor_group")"),
     {{"l.weight_packed", "U8", {6, 16}, "\x11"},
      {"l.weight_scale", "F8_E4M3", {6, 2}, kOneE4m3},
      {"l.weight_global_scale", "F32", {1}, kOne}},
     {1, 2},
     {1, 2}},
    {Compressed("mxfp4-pack-quantized", R"("num_bits": 4, "strategy": "group")"),
     {{"l.weight_packed", "U8", {6, 32}, "\x11"}, {"l.weight_scale", "U8", {6, 2}, "\x7f"}},
     {1},
     {1}},
    {Compressed("mxfp8-quantized", R"("num_bits": 8, "strategy": "group", "group_size": 32,
                                        "scale_dtype": "torch.uint8")"),
     {{"l.weight", "F8_E4M3", {6, 64}, kOneE4m3}, {"l.weight_scale", "U8", {6, 2}, "\x7f"}},
     {1},
     {1}},
    {R"({"quant_method": "mxfp4"})",
     {{"e.down_proj_blocks", "U8", {2, 6, 2, 16}, "\x11"},
      {"e.down_proj_scales", "U8", {2, 6, 2}, "\x7f"}},
     {1},
     {1}},
    {R"({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"})",
     {{"l.qweight", "I32", {64, 2}, "1111"},
      {"l.scales", "F32", {2, 16}, kOne},
      {"l.qzeros", "I32", {2, 2}, "1111"}},
     {1, 2},
     {1, 2}},
    {kGptqConfig,
     {{"l.qweight", "I32", {8, 16}, "1111"},
      {"l.scales", "F32", {2, 16}, kOne},
      {"l.qzeros", "I32", {2, 2}, "1111"},
      {"l.g_idx", "I32", {64}, "1111"}},
     {1, 2},
     {1, 2, 3}},
    {R"({"quant_method": "bitsandbytes", "load_in_8bit": true})",
     {{"l.weight", "I8", {6, 20}, "\x01"}, {"l.SCB", "F32", {6}, kOne}},
     {1},
     {1}},
};

TEST_F(UnitsTest, SoundOnesHaveNoFinding) {
  for (const Sound& sound : kDialects)
    EXPECT_THAT(Damage(sound.config, sound.tensors), IsEmpty()) << sound.config;
}

TEST_F(UnitsTest, APartThatIsMissingIsNamed) {
  for (const Sound& sound : kDialects) {
    for (const size_t part : sound.required) {
      std::vector<Made> tensors = sound.tensors;
      tensors.erase(tensors.begin() + static_cast<ptrdiff_t>(part));
      EXPECT_THAT(Damage(sound.config, tensors),
                  ElementsAre(AllOf(HasSubstr("expected '" + sound.tensors[part].name),
                                    HasSubstr("found none"))))
          << sound.config;
    }
  }
}

TEST_F(UnitsTest, APartOfAnotherShapeIsNamed) {
  for (const Sound& sound : kDialects) {
    for (const size_t part : sound.of_shape) {
      std::vector<Made> tensors = sound.tensors;
      std::vector<int64_t>& shape = tensors[part].shape;
      if (shape.empty()) shape = {2};
      shape.back() += 2;
      EXPECT_THAT(Damage(sound.config, tensors),
                  ElementsAre(HasSubstr("tensor '" + tensors[part].name + "': expected [")))
          << sound.config;
    }
  }
}

TEST_F(UnitsTest, ScalesWithoutTheirCodesAreNamed) {
  for (const Sound& sound : kDialects) {
    std::vector<Made> tensors(sound.tensors.begin() + 1, sound.tensors.end());
    EXPECT_THAT(Damage(sound.config, tensors),
                ElementsAre(HasSubstr("expected the codes '" + sound.tensors[0].name)))
        << sound.config;
  }
}

TEST_F(UnitsTest, ScalesThatAreNoScalesAreNamed) {
  std::vector<Made> tensors = kDialects[0].tensors;
  for (const auto& [value, message] :
       {std::pair{-1.0f, "element 0 is -1"}, std::pair{NAN, "element 0 is nan"},
        std::pair{0.0f, "that are not zero where codes are not, element 0 is 0"}}) {
    tensors[1].element = BytesOf<float>({value});
    EXPECT_THAT(Damage(kFp8Config, tensors),
                ElementsAre(AllOf(HasSubstr("l.weight_scale_inv"), HasSubstr(message))));
  }
  tensors[0].element = std::string(1, '\x80');  // a negative zero
  EXPECT_THAT(Damage(kFp8Config, tensors), IsEmpty());
  tensors = {{"l._weight_qdata", "F8_E4M3", {2, 4}, "\x7f"},  // NaN, as 0 / 0 is
             {"l._weight_scale", "F32", {2, 1}, BytesOf<float>({0})}};
  EXPECT_THAT(Damage(R"({"quant_method": "torchao"})", tensors),
              ElementsAre(HasSubstr("element 0 is 0")));
  tensors[1] = {"l._weight_scale", "F32", {3, 1}, kOne};
  EXPECT_THAT(Damage(R"({"quant_method": "torchao"})", tensors),
              ElementsAre(HasSubstr("sizes that divide those of 'l._weight_qdata' [2, 4]")));
  tensors = kDialects[4].tensors;
  tensors[1].element = std::string(1, '\0');
  EXPECT_THAT(Damage(kNvfp4Config, tensors), ElementsAre(HasSubstr("element 0 is 0")));
  tensors[1].element = std::string(5, '\0') + kOneE4m3 + std::string(6, '\0');  // rounded to 0
  EXPECT_THAT(Damage(kNvfp4Config, tensors), IsEmpty());
  tensors[1].element = std::string(1, '\0');
  tensors[0].element = "\x80";  // half of it is a negative zero
  EXPECT_THAT(Damage(kNvfp4Config, tensors), IsEmpty());
}

TEST_F(UnitsTest, WhatTheConfigExcludesAndWhatItDoesNotIsHeldAgainstTheFile) {
  std::vector<Made> tensors = kDialects[0].tensors;
  tensors.push_back({"lm_head.weight", "F32", {6, 20}, kOne});
  EXPECT_THAT(Damage(kFp8Config, tensors), IsEmpty());
  tensors[2] = {"lm_head.weight", "F8_E4M3", {6, 20}, kOneE4m3};
  tensors.push_back({"lm_head.weight_scale_inv", "F32", {2, 3}, kOne});
  EXPECT_THAT(Damage(kFp8Config, tensors),
              ElementsAre(HasSubstr("'lm_head.weight': expected it not to be quantised")));
  tensors = {{"a.0.l.weight", "F8_E4M3", {6, 20}, kOneE4m3},
             {"a.0.l.weight_scale_inv", "F32", {2, 3}, kOne},
             {"a.1.l.weight", "F32", {6, 20}, kOne},
             {"a.1.norm.weight", "F32", {6}, kOne}};
  EXPECT_THAT(Damage(kFp8Config, tensors),
              ElementsAre(HasSubstr("'a.1.l.weight': expected it to be quantised")));
  EXPECT_THAT(Damage(R"({"quant_method": "fp8", "weight_block_size": [4, 8],
                         "modules_to_not_convert": ["model.a.1.l"]})",
                     tensors),
              IsEmpty());
}

/// As its own is_match does: a name is that of the module, not of one that it is in.
TEST_F(UnitsTest, CompressedTensorsKeepsOnlyModulesThatItNames) {
  const std::string weights = R"("num_bits": 8, "type": "int", "strategy": "channel")";
  const std::vector<Made> tensors = {{"a.q.weight", "I8", {6, 20}, std::string(1, '\x01')},
                                     {"a.q.weight_scale", "F32", {6, 1}, kOne}};
  for (const auto& [kept, is_found] :
       {std::pair("a", false), {"a.q", true}, {"re:a.*", true}, {"re:b", false}}) {
    std::string config = Compressed("int-quantized", weights);
    config.replace(config.find("lm_head"), std::string("lm_head").size(), kept);
    EXPECT_EQ(Damage(config, tensors).size(), is_found ? 1 : 0) << kept;
  }
}

TEST_F(UnitsTest, WhatAQuantiserLeftInIsNamed) {
  std::vector<Made> tensors = kDialects[4].tensors;
  tensors.push_back({"l.input_quantizer._amax", "F32", {}, kOne});
  EXPECT_THAT(Damage(kNvfp4Config, tensors),
              ElementsAre(HasSubstr("tensor 'l.input_quantizer._amax'")));
}

TEST_F(UnitsTest, AShapeThatItsCodesCannotHaveIsNamed) {
  const Sound& packed = kDialects[6];
  for (const std::string& shape :
       {BytesOf<int64_t>({6, 33}), BytesOf<int64_t>({5, 32}), BytesOf<int64_t>({6, 0})}) {
    std::vector<Made> tensors = packed.tensors;
    tensors[2].element = shape;
    EXPECT_THAT(Damage(packed.config, tensors),
                ElementsAre(HasSubstr("'l.weight_shape': expected the shape of a weight")));
  }
}

TEST_F(UnitsTest, BlocksOfBitsAndBytesAreThoseThatItsStateSays) {
  const std::string config = R"({"quant_method": "bitsandbytes", "load_in_4bit": true})";
  const std::string state = R"({"blocksize": 64, "shape": [8, 32]})";
  std::vector<Made> tensors = {{"l.weight", "BF16", {64, 1}, "\xff\x7f"},
                               {"l.weight.absmax", "F32", {4}, kOne},
                               {"l.weight.quant_map", "F32", {16}, kOne},
                               {"l.weight.quant_state.bitsandbytes__nf4",
                                "U8",
                                {static_cast<int64_t>(state.size())},
                                state}};
  EXPECT_THAT(Damage(config, tensors), IsEmpty());
  EXPECT_EQ(audited_.tensors[0].nan_count, 0u) << "codes are no floats";
  tensors[1].shape = {3};
  EXPECT_THAT(Damage(config, tensors), ElementsAre(HasSubstr("absmax': expected [4]")));
  tensors[1].shape = {4};
  tensors[0].shape = {63, 1};
  EXPECT_THAT(Damage(config, tensors), ElementsAre(HasSubstr("expected the 128 bytes")));
  tensors[0].shape = {64, 1};
  const std::string nested = R"({"blocksize": 64, "shape": [8, 32], "nested_blocksize": 2, )"
                             R"("nested_offset": 0.5})";
  tensors[1].dtype = "U8";
  tensors[1].element = "\x01";
  tensors[3].shape = {static_cast<int64_t>(nested.size())};
  tensors[3].element = nested;
  EXPECT_THAT(Damage(config, tensors),
              ElementsAre(HasSubstr("expected 'l.weight.nested_absmax' [2]"),
                          HasSubstr("nested_quant_map' [256]")));
  tensors.push_back({"l.weight.nested_absmax", "F32", {2}, kOne});
  tensors.push_back({"l.weight.nested_quant_map", "F32", {256}, kOne});
  EXPECT_THAT(Damage(config, tensors), IsEmpty());
  tensors[4].element = BytesOf<float>({-1});
  EXPECT_THAT(Damage(config, tensors), ElementsAre(HasSubstr("element 0 is -1")));
  tensors.resize(3);
  EXPECT_THAT(Damage(config, tensors), ElementsAre(HasSubstr("quant_state.bitsandbytes__nf4")));
}

TEST_F(UnitsTest, OfAMethodThatIsNotKnownThatIsSaid) {
  EXPECT_THAT(Damage(R"({"quant_method": "hqq"})",
                     {{"l.weight", "U8", {6, 16}, "\x11"}, {"l.scales", "F32", {6}, kOne}}),
              IsEmpty());
  EXPECT_THAT(audited_.quantisation, HasSubstr("hqq by config.json, which tensors belong"));
}

}  // namespace
}  // namespace shardproof
