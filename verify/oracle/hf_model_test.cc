#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "verify/oracle/fixture_files.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSizes[] = R"("vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
    "num_hidden_layers": 1, "num_attention_heads": 4)";

Result<DeclaredModel> Declare(const std::string& config) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(WriteTextFile(directory / "config.json", config).ok());
  Case test_case;
  test_case.model.checkpoint = directory.path();
  return DeclareModel(test_case);
}

std::string Llama(const std::string& more) {
  return fmt::format(R"({{"architectures": ["LlamaForCausalLM"], {}{}}})", kSizes, more);
}

std::string Qwen3(const std::string& more) {
  return fmt::format(
      R"({{"architectures": ["Qwen3ForCausalLM"], {}, "num_key_value_heads": 2, "head_dim": 6{}}})",
      kSizes, more);
}

std::string ErrorOf(const std::string& config) {
  const auto model = Declare(config);
  if (model.ok()) return "";
  EXPECT_EQ(model.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(model.error().message, HasSubstr("config.json"));
  EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
  return model.error().message;
}

/// Name to shape, as text.
std::map<std::string, std::string> Shapes(const DeclaredModel& model) {
  std::map<std::string, std::string> shapes;
  for (const TensorCase& tensor : model.tensors) {
    std::string text;
    for (const int64_t size : tensor.shape) text += fmt::format("{} ", size);
    shapes[tensor.name] = text;
  }
  return shapes;
}

const TensorCase& Find(const DeclaredModel& model, const std::string& name) {
  for (const TensorCase& tensor : model.tensors) {
    if (tensor.name == name) return tensor;
  }
  static const TensorCase none;
  ADD_FAILURE() << "no tensor " << name;
  return none;
}

TEST(DeclareModel, LlamaHasTheTensorsOfItsModules) {
  const auto model = Declare(Llama(R"(, "num_key_value_heads": 2)"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::map<std::string, std::string> expected = {
      {"model.embed_tokens.weight", "11 8 "},
      {"model.layers.0.self_attn.q_proj.weight", "8 8 "},
      {"model.layers.0.self_attn.k_proj.weight", "4 8 "},
      {"model.layers.0.self_attn.v_proj.weight", "4 8 "},
      {"model.layers.0.self_attn.o_proj.weight", "8 8 "},
      {"model.layers.0.mlp.gate_proj.weight", "12 8 "},
      {"model.layers.0.mlp.up_proj.weight", "12 8 "},
      {"model.layers.0.mlp.down_proj.weight", "8 12 "},
      {"model.layers.0.input_layernorm.weight", "8 "},
      {"model.layers.0.post_attention_layernorm.weight", "8 "},
      {"model.norm.weight", "8 "},
      {"model.rotary_emb.inv_freq", "1 "},
      {"model.rotary_emb.original_inv_freq", "1 "},
      {"lm_head.weight", "11 8 "}};
  EXPECT_EQ(Shapes(model.value()), expected);
  EXPECT_TRUE(model.value().ties.empty());
  EXPECT_DOUBLE_EQ(model.value().init_scale, 0.02 * std::sqrt(3.0));
}

TEST(DeclareModel, Qwen3HasHeadNormsAndItsOwnHeadDim) {
  const auto model = Declare(Qwen3(R"(, "tie_word_embeddings": true, "mlp_bias": true)"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto shapes = Shapes(model.value());
  EXPECT_EQ(shapes.size(), 16u);
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.q_proj.weight"), "24 8 ");
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.k_proj.weight"), "12 8 ");
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.o_proj.weight"), "8 24 ");
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.q_norm.weight"), "6 ");
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.k_norm.weight"), "6 ");
  EXPECT_EQ(shapes.at("model.rotary_emb.inv_freq"), "3 ");
  EXPECT_THAT(model.value().ties,
              ElementsAre(ElementsAre("model.embed_tokens.weight", "lm_head.weight")));
}

TEST(DeclareModel, BiasesFollowTheirFields) {
  const auto model = Declare(Llama(R"(, "attention_bias": true, "mlp_bias": true)"));
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model.value().tensors.size(), 14u + 4 + 3);
  EXPECT_EQ(Find(model.value(), "model.layers.0.self_attn.o_proj.bias").init, "zeros");
  EXPECT_EQ(Find(model.value(), "model.layers.0.mlp.gate_proj.bias").shape[0], 12);
}

TEST(DeclareModel, KindsDtypesAndInitialValues) {
  const auto model = Declare(Llama(R"(, "torch_dtype": "bfloat16", "initializer_range": 0.5)"));
  ASSERT_TRUE(model.ok());
  const TensorCase& weight = Find(model.value(), "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(weight.dtype, "BF16");
  EXPECT_EQ(weight.init, "uniform");
  EXPECT_EQ(Find(model.value(), "model.norm.weight").init, "ones");
  const TensorCase& buffer = Find(model.value(), "model.rotary_emb.original_inv_freq");
  EXPECT_EQ(buffer.kind, "buffer");
  EXPECT_FALSE(buffer.persistent);
  EXPECT_EQ(buffer.dtype, "F32");
  EXPECT_EQ(buffer.rope_theta, 10000.0);
  EXPECT_DOUBLE_EQ(model.value().init_scale, 0.5 * std::sqrt(3.0));
  const auto both = Declare(Llama(R"(, "torch_dtype": "bfloat16", "dtype": "float16")"));
  EXPECT_EQ(both.value().tensors[0].dtype, "F16");
}

TEST(DeclareModel, ThetaIsFoundWhereverItIsWritten) {
  const auto theta = [](const std::string& more) {
    const auto model = Declare(Llama(more));
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() ? *Find(model.value(), "model.rotary_emb.inv_freq").rope_theta : -1;
  };
  EXPECT_EQ(theta(R"(, "rope_theta": 500000)"), 500000);
  EXPECT_EQ(theta(R"(, "rope_theta": 5, "rope_parameters": {"rope_theta": 7.5})"), 7.5);
  EXPECT_EQ(theta(R"(, "rope_parameters": {"rope_type": "default"}, "rope_theta": 6.0)"), 6);
  EXPECT_EQ(theta(R"(, "rope_scaling": null, "rope_theta": 8)"), 8);
  EXPECT_EQ(theta(R"(, "rope_scaling": {"type": "default"})"), 10000);
}

TEST(DeclareModel, RefusesOtherKindsOfRope) {
  EXPECT_THAT(ErrorOf(Llama(R"(, "rope_parameters": {"rope_type": "yarn", "factor": 4})")),
              HasSubstr("known kinds of RoPE: default, found string 'yarn'"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "rope_scaling": {"type": "linear"})")), HasSubstr("'linear'"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "rope_parameters": {"full_attention": {"rope_theta": 1}})")),
              HasSubstr("full_attention"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "rope_theta": -1)")), HasSubstr("rope_theta: expected a number"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "rope_theta": "10000")")), HasSubstr("found string '10000'"));
}

TEST(DeclareModel, ArchitectureFallsBackToModelType) {
  EXPECT_EQ(ErrorOf(fmt::format(R"({{"model_type": "llama", {}}})", kSizes)), "");
  EXPECT_EQ(ErrorOf(fmt::format(R"({{"architectures": null, "model_type": "llama", {}}})", kSizes)),
            "");
  EXPECT_THAT(ErrorOf(fmt::format(R"({{"model_type": "gpt2", {}}})", kSizes)),
              HasSubstr("llama or qwen3"));
  EXPECT_THAT(
      ErrorOf(R"({"architectures": ["GPT2LMHeadModel"]})"),
      HasSubstr("one of LlamaForCausalLM, Qwen3ForCausalLM, found string 'GPT2LMHeadModel"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("found nothing"));
  EXPECT_THAT(ErrorOf(R"({"architectures": [1]})"), HasSubstr("architectures[0]"));
  EXPECT_THAT(ErrorOf(R"({"architectures": "LlamaForCausalLM"})"), HasSubstr("an array"));
}

TEST(DeclareModel, RefusesMissingWrongAndAbsurdSizes) {
  EXPECT_THAT(ErrorOf(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 3})"),
              HasSubstr("hidden_size: expected an integer from 1"));
  const auto with = [](const std::string& field, const std::string& value) {
    std::string config = Llama("");
    const size_t at = config.find("\"" + field + "\": ") + field.size() + 4;
    const size_t end = config.find_first_of(",}", at);
    return ErrorOf(config.replace(at, end - at, value));
  };
  EXPECT_THAT(with("num_hidden_layers", "1000000000"), HasSubstr("found 1000000000"));
  EXPECT_THAT(with("num_hidden_layers", "-1"), HasSubstr("found -1"));
  EXPECT_THAT(with("vocab_size", "\"11\""), HasSubstr("vocab_size: expected an integer"));
  EXPECT_THAT(with("hidden_size", "8.5"), HasSubstr("hidden_size"));
  EXPECT_THAT(with("hidden_size", "9"), HasSubstr("a multiple of num_attention_heads 4"));
  EXPECT_THAT(with("hidden_size", "9223372036854775808"), HasSubstr("hidden_size"));
  EXPECT_THAT(with("num_attention_heads", "8"), HasSubstr("head_dim: expected an even number"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "num_key_value_heads": 3)")), HasSubstr("a divisor"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "attention_bias": 1)")), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "dtype": "int8")")), HasSubstr("float32, bfloat16"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "vocab_size": 12)")), HasSubstr("'vocab_size' twice"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "quantization_config": {})")), HasSubstr("quantization_config"));
  EXPECT_THAT(ErrorOf("not json"), HasSubstr("expected JSON"));
}

TEST(DeclareModel, Qwen3MustStateWhatItsDefaultsWouldContradict) {
  const auto qwen3 = [](const std::string& more) {
    return fmt::format(R"({{"architectures": ["Qwen3ForCausalLM"], {}{}}})", kSizes, more);
  };
  EXPECT_THAT(ErrorOf(qwen3(R"(, "num_key_value_heads": 2)")), HasSubstr("head_dim"));
  EXPECT_THAT(ErrorOf(qwen3(R"(, "head_dim": 2)")), HasSubstr("num_key_value_heads"));
  EXPECT_EQ(ErrorOf(qwen3(R"(, "head_dim": 2, "num_key_value_heads": 4)")), "");
}

TEST(DeclareModel, ASyntheticModelIsAsTheCaseSays) {
  Case test_case;
  test_case.model.tensors.resize(2);
  test_case.model.ties = {{"a", "b"}};
  const auto model = DeclareModel(test_case);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model.value().tensors.size(), 2u);
  EXPECT_EQ(model.value().ties.size(), 1u);
  EXPECT_DOUBLE_EQ(model.value().init_scale, 0.02 * std::sqrt(3.0));
}

}  // namespace
}  // namespace shardproof::oracle
