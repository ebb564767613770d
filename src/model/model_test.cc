#include "src/model/model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/load/key_match.h"
#include "src/pipeline/reference_stages.h"
#include "src/shard/shard.h"

namespace shardproof {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 11},
          {"hidden_size", 8},
          {"intermediate_size", 12},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4}};
}

json With(json config, const json& more) {
  config.merge_patch(more);
  return config;
}

Result<ModelSpec> Spec(const json& config) { return SpecFromConfig(config.dump(), "config.json"); }

std::string Refusal(const std::string& text) {
  const auto spec = SpecFromConfig(text, "config.json");
  if (spec.ok()) return "accepted";
  EXPECT_EQ(spec.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(spec.error().message, HasSubstr("config.json"));
  EXPECT_EQ(spec.error().message.find('\n'), std::string::npos);
  return spec.error().message;
}
std::string Refusal(const json& config) { return Refusal(config.dump()); }

std::map<std::string, TensorSpec> ByName(const ModelSpec& spec) {
  std::map<std::string, TensorSpec> tensors;
  for (const TensorSpec& tensor : spec.tensors) tensors.emplace(tensor.name, tensor);
  return tensors;
}

TEST(SpecFromConfig, LlamaByItsDefaults) {
  const auto spec = Spec(Llama());
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec.value().tensors.size(), 2u * 9 + 5);
  EXPECT_TRUE(spec.value().ties.empty());
  EXPECT_DOUBLE_EQ(spec.value().init_scale, 0.02 * std::sqrt(3.0));
  const auto tensors = ByName(spec.value());
  EXPECT_THAT(tensors.at("model.layers.1.self_attn.k_proj.weight").shape, ElementsAre(8, 8));
  EXPECT_THAT(tensors.at("model.layers.1.mlp.down_proj.weight").shape, ElementsAre(8, 12));
  EXPECT_EQ(tensors.at("model.norm.weight").init, InitialValue::kOnes);
  EXPECT_EQ(tensors.at("lm_head.weight").init, InitialValue::kUniform);
  EXPECT_EQ(tensors.at("lm_head.weight").dtype, at::kFloat);
  const TensorSpec& frequencies = tensors.at("model.rotary_emb.inv_freq");
  EXPECT_EQ(frequencies.kind, TensorKind::kBuffer);
  EXPECT_FALSE(frequencies.persistent);
  EXPECT_FALSE(frequencies.requires_grad);
  EXPECT_THAT(frequencies.shape, ElementsAre(1));
  EXPECT_EQ(frequencies.rope->theta, 10000.0);
}

TEST(SpecFromConfig, Qwen3HasHeadNormsItsHeadDimAndNoMlpBias) {
  const auto spec = Spec(With(Llama(), {{"architectures", {"Qwen3ForCausalLM"}},
                                        {"num_key_value_heads", 2},
                                        {"head_dim", 6},
                                        {"mlp_bias", true},
                                        {"attention_bias", true},
                                        {"tie_word_embeddings", true},
                                        {"dtype", "bfloat16"}}));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const auto tensors = ByName(spec.value());
  EXPECT_EQ(tensors.size(), 2u * (11 + 4) + 5);
  EXPECT_THAT(tensors.at("model.layers.0.self_attn.q_proj.weight").shape, ElementsAre(24, 8));
  EXPECT_THAT(tensors.at("model.layers.0.self_attn.k_proj.bias").shape, ElementsAre(12));
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.k_proj.bias").init, InitialValue::kZeros);
  EXPECT_THAT(tensors.at("model.layers.0.self_attn.q_norm.weight").shape, ElementsAre(6));
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.q_norm.weight").init, InitialValue::kOnes);
  EXPECT_EQ(tensors.at("lm_head.weight").dtype, at::kBFloat16);
  EXPECT_EQ(tensors.at("model.rotary_emb.inv_freq").dtype, at::kFloat);
  EXPECT_FALSE(tensors.contains("model.layers.0.mlp.up_proj.bias"));
  EXPECT_THAT(spec.value().ties,
              ElementsAre(ElementsAre("model.embed_tokens.weight", "lm_head.weight")));
}

TEST(SpecFromConfig, TakesThetaAndDtypeWhereverTheyAreWritten) {
  const auto theta = [](const json& more) {
    const auto spec = Spec(With(Llama(), more));
    EXPECT_TRUE(spec.ok()) << more << ": " << spec.error().message;
    return spec.ok() ? ByName(spec.value()).at("model.rotary_emb.inv_freq").rope->theta : -1;
  };
  EXPECT_EQ(theta({{"rope_theta", 500000}}), 500000);
  EXPECT_EQ(theta({{"rope_theta", 5}, {"rope_parameters", {{"rope_theta", 7.5}}}}), 7.5);
  EXPECT_EQ(theta({{"rope_theta", 6}, {"rope_parameters", {{"rope_type", "default"}}}}), 6);
  EXPECT_EQ(theta({{"rope_scaling", {{"type", "default"}}}}), 10000);
  EXPECT_EQ(Spec(With(Llama(), {{"torch_dtype", "float16"}})).value().tensors[0].dtype, at::kHalf);
  EXPECT_EQ(Spec(With(Llama(), {{"torch_dtype", "float16"}, {"dtype", "float64"}}))
                .value()
                .tensors[0]
                .dtype,
            at::kDouble);
}

TEST(SpecFromConfig, RefusesEveryWrongField) {
  for (const char* text : {"", "not JSON", "[]", "1", "{", "{\"a\": \"\xff\"}"}) {
    EXPECT_NE(Refusal(std::string(text)), "accepted") << text;
  }
  EXPECT_THAT(Refusal(json::object()), HasSubstr("'architectures' and 'model_type' are missing"));
  EXPECT_THAT(
      Refusal(json{{"architectures", {"GPT2LMHeadModel"}}}),
      HasSubstr("'GPT2LMHeadModel' is unknown: known are LlamaForCausalLM, Qwen3ForCausalLM"));
  for (const json& list : {json("LlamaForCausalLM"), json::array({1}), json(3)}) {
    EXPECT_THAT(Refusal(With(Llama(), {{"architectures", list}})), HasSubstr("a list of strings"));
  }
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads"}) {
    json without = Llama();
    without.erase(field);
    EXPECT_THAT(Refusal(without), HasSubstr(fmt::format("'{}' is missing", field)));
  }
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "num_key_value_heads", "head_dim"}) {
    for (const json& value :
         {json(0), json(-1), json(8.5), json("8"), json(true), json::array(),
          json(int64_t{1} << 40), json(INT64_MAX), json(UINT64_MAX), json(1e300)}) {
      EXPECT_THAT(Refusal(With(Llama(), {{field, value}})), HasSubstr(field)) << value;
    }
  }
  for (const char* field : {"attention_bias", "mlp_bias", "tie_word_embeddings"}) {
    EXPECT_THAT(Refusal(With(Llama(), {{field, 1}})), HasSubstr("true or false")) << field;
  }
  for (const char* field : {"rope_theta", "initializer_range"}) {
    for (const json& value : {json(0), json(-1), json("1"), json(false)}) {
      EXPECT_THAT(Refusal(With(Llama(), {{field, value}})), HasSubstr(field)) << value;
    }
  }
  EXPECT_THAT(Refusal(With(Llama(), {{"dtype", "int8"}})), HasSubstr("'int8' is unknown"));
  EXPECT_THAT(Refusal(With(Llama(), {{"dtype", 16}})), HasSubstr("expected a string"));
}

TEST(SpecFromConfig, RefusesRopesThatSayTooLittle) {
  for (const char* field : {"rope_parameters", "rope_scaling"}) {
    const auto refusal = [&](const json& rope) { return Refusal(With(Llama(), {{field, rope}})); };
    EXPECT_THAT(refusal({{"rope_type", "axial"}}),
                HasSubstr("'axial' is unknown: known are default"));
    EXPECT_THAT(refusal({{"type", "linear"}}), HasSubstr("'factor' is missing"));
    EXPECT_THAT(refusal({{"rope_type", "dynamic"}, {"factor", 0}}), HasSubstr("'factor' is 0"));
    EXPECT_THAT(refusal({{"rope_type", "yarn"}}), HasSubstr("'factor' is missing"));
    EXPECT_THAT(refusal({{"rope_type", "yarn"}, {"factor", 4}, {"rope_theta", 1}}),
                HasSubstr("more than 1 for yarn"));
    EXPECT_THAT(refusal({{"rope_type", "longrope"}, {"short_factor", {1.0, 2.0}}}),
                HasSubstr("'short_factor' is [1.0,2.0]: expected a list of 1 positive"));
    EXPECT_THAT(refusal({{"rope_type", "llama3"},
                         {"factor", 8},
                         {"original_max_position_embeddings", 64},
                         {"low_freq_factor", 1}}),
                HasSubstr("'high_freq_factor' is missing"));
    EXPECT_THAT(refusal({{"rope_type", "llama3"},
                         {"factor", 8},
                         {"original_max_position_embeddings", 64},
                         {"low_freq_factor", 1},
                         {"high_freq_factor", 1}}),
                HasSubstr("another number than low_freq_factor"));
    EXPECT_THAT(refusal({{"rope_type", "linear"}, {"factor", 2}, {"partial_rotary_factor", 1.5}}),
                HasSubstr("up to 1"));
    EXPECT_THAT(refusal(3), HasSubstr("expected an object"));
    EXPECT_NE(refusal({{"full_attention", {{"rope_theta", 1}}}}), "accepted");
  }
}

TEST(SpecFromConfig, RefusesWhatWouldBeAnotherModel) {
  EXPECT_NE(Refusal(With(Llama(), {{"hidden_size", 9}})), "accepted") << "heads do not divide it";
  EXPECT_NE(Refusal(With(Llama(), {{"num_key_value_heads", 3}})), "accepted");
  EXPECT_NE(Refusal(With(Llama(), {{"head_dim", 3}})), "accepted") << "RoPE turns pairs";
  EXPECT_NE(Refusal(With(Llama(), {{"num_attention_heads", 16}})), "accepted");
  EXPECT_NE(Refusal(With(Llama(), {{"quantization_config", json::object()}})), "accepted");
}

TEST(SpecFromConfig, QuantisedLayersHaveCodesAndFactors) {
  json config = With(Llama(), {{"dtype", "bfloat16"}, {"attention_bias", true}});
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {4, 3}}};
  const auto fp8 = ByName(Spec(config).value());
  const auto& codes = fp8.at("model.layers.0.self_attn.q_proj.weight");
  const auto& factors = fp8.at("model.layers.0.self_attn.q_proj.weight_scale_inv");
  EXPECT_EQ(codes.dtype, at::kFloat8_e4m3fn);
  EXPECT_EQ(factors.dtype, at::kFloat);
  EXPECT_EQ(factors.shape,
            (std::vector<int64_t>{(codes.shape[0] + 3) / 4, (codes.shape[1] + 2) / 3}));
  EXPECT_EQ(factors.init, InitialValue::kOnes);
  EXPECT_TRUE(codes.requires_grad && factors.requires_grad);
  EXPECT_EQ(fp8.at("lm_head.weight").dtype, at::kBFloat16);

  config["quantization_config"] = json::parse(R"({"quant_method": "compressed-tensors",
      "format": "int-quantized", "quantization_status": "compressed", "ignore": ["lm_head"],
      "config_groups": {"group_0": {"targets": ["Linear"],
          "weights": {"strategy": "channel"},
          "input_activations": {"strategy": "token", "dynamic": true}}}})");
  const auto int8 = ByName(Spec(config).value());
  const auto& rows = int8.at("model.layers.0.self_attn.q_proj.weight_scale");
  EXPECT_EQ(int8.at("model.layers.0.self_attn.q_proj.weight").dtype, at::kChar);
  EXPECT_EQ(rows.dtype, at::kBFloat16);
  EXPECT_EQ(rows.shape, (std::vector<int64_t>{codes.shape[0], 1}));
  EXPECT_FALSE(rows.requires_grad);
  EXPECT_FALSE(int8.at("model.layers.0.self_attn.q_proj.bias").requires_grad);
  EXPECT_EQ(int8.at("lm_head.weight").dtype, at::kBFloat16);
}

TEST(SpecFromConfig, NamesTheFieldOfAQuantisationThatItDoesNotKnow) {
  const auto refusal = [](const json& more) {
    json config = Llama();
    config["quantization_config"] = {{"quant_method", "fp8"}};
    config["quantization_config"].update(more);
    return Refusal(config);
  };
  EXPECT_EQ(refusal(json::object()), "accepted");
  EXPECT_THAT(refusal({{"quant_method", "awq"}}),
              HasSubstr("'awq': expected fp8 or compressed-tensors for LlamaForCausalLM"));
  EXPECT_THAT(refusal({{"activation_scheme", "static"}}), HasSubstr("'activation_scheme'"));
  EXPECT_THAT(refusal({{"weight_block_size", nullptr}}), HasSubstr("two integers"));
  EXPECT_THAT(refusal({{"scale_fmt", "ue8m0"}}), HasSubstr("expected \"float\""));
  EXPECT_THAT(refusal({{"modules_to_not_convert", {"a.*"}}}), HasSubstr("no patterns"));
  EXPECT_THAT(refusal({{"new", 1}}), HasSubstr("'new' is unknown"));
  EXPECT_THAT(refusal({{"quant_method", "compressed-tensors"}}), HasSubstr("'format' is missing"));
}

TEST(SpecFromConfig, RefusesSizesWhoseProductOverflows) {
  const int64_t huge = int64_t{1} << 31;
  EXPECT_NE(Refusal(With(Llama(), {{"vocab_size", huge}, {"hidden_size", huge}})), "accepted");
  EXPECT_NE(Refusal(With(Llama(), {{"num_attention_heads", huge}, {"head_dim", huge}})),
            "accepted");
}

TEST(SpecFromConfig, RefusesDeepNestingWithoutFallingOver) {
  constexpr int kDepth = 2'000'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  for (const char* field :
       {"architectures", "vocab_size", "rope_theta", "dtype", "mlp_bias", "rope_parameters"}) {
    std::string text = Llama().dump();
    // The later of two equal keys wins or is refused; either way it is looked at.
    text.insert(text.size() - 1, fmt::format(",\"{}\":{}", field, deep));
    EXPECT_NE(Refusal(text), "accepted") << field;
  }
}

ModelSpec SmallSpec() {
  return {.tensors = {{.name = "embed.weight",
                       .dtype = at::kBFloat16,
                       .shape = {5, 2},
                       .attributes = {{"sharded_by", "me"}}},
                      {.name = "block.0.scale", .shape = {}},
                      {.name = "block.0.bias",
                       .kind = TensorKind::kBuffer,
                       .shape = {3},
                       .init = InitialValue::kOnes,
                       .built_real = true},
                      {.name = "block.1.inv_freq",
                       .kind = TensorKind::kBuffer,
                       .persistent = false,
                       .shape = {2},
                       .rope = RopeSpec{}},
                      {.name = "head.weight", .dtype = at::kBFloat16, .shape = {5, 2}}},
          .ties = {{"embed.weight", "head.weight"}}};
}

Model Build(const ModelSpec& spec) {
  auto model = BuildOnMeta(spec, 7, *MakeHostDevice());
  EXPECT_TRUE(model.ok());
  return std::move(model).value();
}

std::shared_ptr<Slot> Find(const Model& model, const std::string& name) {
  for (const auto& [known, slot] : model.Named()) {
    if (known == name) return slot;
  }
  ADD_FAILURE() << "no slot " << name;
  return nullptr;
}

TEST(BuildOnMeta, TiedNamesShareOneSlot) {
  const Model model = Build(SmallSpec());
  EXPECT_EQ(model.Slots().size(), 4u);
  EXPECT_EQ(model.Named().size(), 5u);
  EXPECT_EQ(Find(model, "embed.weight"), Find(model, "head.weight"));
  EXPECT_THAT(Find(model, "head.weight")->names, ElementsAre("embed.weight", "head.weight"));
  std::set<int64_t> identities;
  for (const auto& slot : model.Slots()) identities.insert(slot->identity);
  EXPECT_EQ(identities.size(), 4u);
}

TEST(BuildOnMeta, ATieIsWhatItsCanonicalNameSays) {
  ModelSpec spec = SmallSpec();
  spec.ties = {{"head.weight", "embed.weight"}};
  const Model model = Build(spec);
  const auto slot = Find(model, "embed.weight");
  EXPECT_EQ(slot->spec.name, "head.weight");
  EXPECT_THAT(slot->names, ElementsAre("head.weight", "embed.weight"));
  EXPECT_TRUE(slot->spec.attributes.empty()) << "the attributes are the other name's";
}

TEST(BuildOnMeta, OnlyBuiltRealTensorsAreReal) {
  const Model model = Build(SmallSpec());
  for (const auto& [name, slot] : model.Named()) {
    EXPECT_EQ(slot->value.is_meta(), name != "block.0.bias") << name;
    EXPECT_EQ(slot->content, name == "block.0.bias" ? SlotContent::kDefined : SlotContent::kNone);
    EXPECT_EQ(slot->value.scalar_type(), slot->spec.dtype);
  }
  EXPECT_TRUE(at::equal(Find(model, "block.0.bias")->value, at::ones({3})));
}

TEST(Model, HasMetaCountsBuffersAndParameters) {
  ModelSpec spec = SmallSpec();
  spec.ties.clear();
  const Model model = Build(spec);
  std::vector<std::shared_ptr<Slot>> slots = model.Slots();
  for (const auto& slot : slots) slot->value = at::zeros(slot->spec.shape);
  EXPECT_FALSE(model.HasMeta());
  for (const auto& slot : slots) {
    const at::Tensor real = slot->value;
    slot->value = MetaTensor(slot->spec.shape, slot->spec.dtype);
    EXPECT_TRUE(model.HasMeta()) << slot->spec.name;
    slot->value = real;
  }
}

/// A parameter [2, 3] of F32 whose columns lie one after the other, and gaps between them.
Slot Transposed() { return Slot(TensorSpec{.name = "w", .shape = {2, 3}, .strides = {1, 4}}); }

TEST(Slot, IsAllocatedInTheOrderOfItsStridesWithoutGaps) {
  const Slot slot = Transposed();
  EXPECT_THAT(slot.value.strides(), ElementsAre(1, 4));
  const auto device = MakeHostDevice();
  const auto whole = slot.Allocate({2, 3}, *device);
  ASSERT_TRUE(whole.ok());
  EXPECT_THAT(whole.value().strides(), ElementsAre(1, 2));
  EXPECT_EQ(whole.value().nbytes(), 24u);
  EXPECT_THAT(slot.Allocate({1, 3}, *device).value().strides(), ElementsAre(1, 1));
  EXPECT_THAT(slot.OnMeta({2, 2}).strides(), ElementsAre(1, 2));
  EXPECT_TRUE(slot.OnMeta({2, 2}).is_meta());
}

TEST(Slot, CopiesRowMajorBytesHoweverItLies) {
  Slot slot = Transposed();
  slot.value = slot.Allocate({2, 3}, *MakeHostDevice()).value();
  const at::Tensor rows = at::arange(6, at::kFloat).view({2, 3});
  const auto* bytes = static_cast<const std::byte*>(rows.const_data_ptr());
  // In pieces that begin and end within elements.
  for (uint64_t done = 0; done < 24; done += 5) {
    slot.CopyIn(done, bytes + done, std::min<uint64_t>(5, 24 - done));
  }
  EXPECT_TRUE(at::equal(slot.value, rows));
  std::vector<std::byte> out(24);
  for (uint64_t done = 0; done < 24; done += 7) {
    slot.CopyOut(done, out.data() + done, std::min<uint64_t>(7, 24 - done));
  }
  EXPECT_EQ(std::memcmp(out.data(), bytes, 24), 0);
}

/// One rank of a world that never meets: sharding and materialising need no collective.
class Alone : public Communicator {
 public:
  explicit Alone(int64_t rank, int64_t world_size) : rank_(rank), world_size_(world_size) {}
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_size_; }
  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor, int64_t, std::vector<Piece>) override {
    return Internal("nothing should be broadcast");
  }
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor, std::vector<at::Tensor>, int64_t,
                                           std::vector<std::string>) override {
    return Internal("nothing should be scattered");
  }
  Result<int64_t> Max(int64_t, const std::string&) override {
    return Internal("nothing should be reduced");
  }
  Result<std::vector<int64_t>> Sum(std::vector<int64_t>, const std::string&) override {
    return Internal("nothing should be reduced");
  }

 private:
  int64_t rank_;
  int64_t world_size_;
};

TEST(ShardModel, KeepsIdentitiesTiesAttributesAndRealBuffers) {
  Model model = Build(SmallSpec());
  std::map<std::string, int64_t> identities;
  for (const auto& [name, slot] : model.Named()) identities[name] = slot->identity;
  const auto bias = Find(model, "block.0.bias");
  bias->value.fill_(42);
  const void* memory = bias->value.const_data_ptr();

  Job job;
  job.mesh = {{{"dp_shard", 3}}};
  World world;
  world.device = MakeHostDevice();
  world.communicator = std::make_shared<Alone>(2, 3);
  const Stages stages = ReferenceStages(job.strategy);
  ASSERT_TRUE(ShardModel(model, {}, stages, job, world).ok());
  const auto embed = Find(model, "embed.weight");
  EXPECT_TRUE(embed->value.is_meta());
  EXPECT_EQ(embed->value.sizes(), at::IntArrayRef({1, 2}));  // 2 + 2 + 1 rows
  EXPECT_EQ(embed->placements, std::vector<Placement>{Placement::Shard(0)});
  EXPECT_EQ(Find(model, "block.0.scale")->placements,
            std::vector<Placement>{Placement::Replicate()});
  EXPECT_EQ(bias->placements, std::vector<Placement>{Placement::Replicate()});

  ASSERT_TRUE(MaterializeMeta(model, world).ok());
  EXPECT_FALSE(model.HasMeta());
  for (const auto& [name, slot] : model.Named()) {
    EXPECT_EQ(slot->identity, identities.at(name)) << name;
    EXPECT_EQ(slot->value.sizes(), at::IntArrayRef(slot->shard.local_shape)) << name;
    EXPECT_EQ(slot->value.scalar_type(), slot->spec.dtype) << name;
    if (slot != bias) {
      EXPECT_EQ(slot->content, SlotContent::kUndefined) << name;
    }
  }
  EXPECT_EQ(Find(model, "embed.weight"), Find(model, "head.weight"));
  EXPECT_EQ(embed->spec.attributes.at("sharded_by"), "me");
  EXPECT_EQ(bias->value.const_data_ptr(), memory);
  EXPECT_EQ(bias->content, SlotContent::kDefined);
  EXPECT_TRUE(at::equal(bias->value, at::full({3}, 42.0f)));
}

TEST(ShardModel, CutsWhatEveryRankLoadedAndEndsItsViewOfTheSource) {
  const ModelSpec spec = {.tensors = {{.name = "w", .shape = {5, 2}}, {.name = "s", .shape = {}}}};
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (const Strategy strategy : {Strategy::kPlain, Strategy::kRank0Broadcast}) {
      Model model = Build(spec);
      KeyMatch keys;
      const at::Tensor full = at::arange(10, at::kFloat).view({5, 2});
      const auto w = Find(model, "w");
      w->value = full;
      w->content = SlotContent::kDefined;
      keys.loads = {{w, {{"w", 0, 60}}}};
      Job job;
      job.strategy = strategy;
      job.mesh = {{{"dp_shard", 4}}};
      World world;
      world.device = MakeHostDevice();
      world.communicator = std::make_shared<Alone>(rank, 4);
      ASSERT_TRUE(ShardModel(model, keys, ReferenceStages(strategy), job, world).ok());
      const IndexRange range = ChunkOf(5, 4, rank);
      EXPECT_EQ(w->value.size(0), range.size());
      EXPECT_EQ(w->value.is_meta(), strategy == Strategy::kRank0Broadcast);
      EXPECT_EQ(w->content, w->value.is_meta() ? SlotContent::kNone : SlotContent::kDefined);
      if (strategy == Strategy::kPlain) {
        EXPECT_TRUE(at::equal(w->value, full.slice(0, range.begin, range.end)));
        EXPECT_NE(w->value.const_data_ptr(), full.const_data_ptr());
      }
    }
  }
}

}  // namespace
}  // namespace shardproof
