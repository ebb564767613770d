// The tensors of the Hugging Face architectures that the oracle knows, by their public definition.
#include <fmt/format.h>

#include <cmath>

#include "verify/oracle/hf_config.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {
namespace {

constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";

/// Builds the list in the order of the modules.
class ModelBuilder {
 public:
  explicit ModelBuilder(const HfConfig& config) : config_(config) {}

  DeclaredModel Build() {
    const int64_t hidden = config_.hidden_size;
    Parameter(kEmbedding, {config_.vocab_size, hidden}, "uniform");
    for (int64_t layer = 0; layer < config_.layer_count; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      Attention(prefix + "self_attn.");
      Mlp(prefix + "mlp.");
      Norm(prefix + "input_layernorm.weight", hidden);
      Norm(prefix + "post_attention_layernorm.weight", hidden);
    }
    Norm("model.norm.weight", hidden);
    InverseFrequencies("model.rotary_emb.inv_freq");
    InverseFrequencies("model.rotary_emb.original_inv_freq");
    Parameter(kHead, {config_.vocab_size, hidden}, "uniform");
    if (config_.tied) model_.ties.push_back({kEmbedding, kHead});
    model_.init_scale = config_.initializer_range * std::sqrt(3.0);
    return std::move(model_);
  }

 private:
  void Parameter(const std::string& name, std::vector<int64_t> shape, const std::string& init) {
    TensorCase tensor;
    tensor.name = name;
    tensor.dtype = config_.dtype;
    tensor.shape = std::move(shape);
    tensor.init = init;
    model_.tensors.push_back(std::move(tensor));
  }

  void Norm(const std::string& name, int64_t size) { Parameter(name, {size}, "ones"); }

  void Linear(const std::string& name, int64_t in, int64_t out, bool bias) {
    Parameter(name + ".weight", {out, in}, "uniform");
    if (bias) Parameter(name + ".bias", {out}, "zeros");
  }

  void Attention(const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    const int64_t query = config_.head_count * config_.head_dim;
    const int64_t key_value = config_.key_value_head_count * config_.head_dim;
    const bool bias = config_.attention_bias;
    Linear(prefix + "q_proj", hidden, query, bias);
    Linear(prefix + "k_proj", hidden, key_value, bias);
    Linear(prefix + "v_proj", hidden, key_value, bias);
    Linear(prefix + "o_proj", query, hidden, bias);
    if (config_.architecture != Architecture::kQwen3) return;
    Norm(prefix + "q_norm.weight", config_.head_dim);
    Norm(prefix + "k_norm.weight", config_.head_dim);
  }

  void Mlp(const std::string& prefix) {
    // Qwen3 has no such field: its three projections never have a bias.
    const bool bias = config_.architecture == Architecture::kLlama && config_.mlp_bias;
    Linear(prefix + "gate_proj", config_.hidden_size, config_.intermediate_size, bias);
    Linear(prefix + "up_proj", config_.hidden_size, config_.intermediate_size, bias);
    Linear(prefix + "down_proj", config_.intermediate_size, config_.hidden_size, bias);
  }

  void InverseFrequencies(const std::string& name) {
    TensorCase tensor;
    tensor.name = name;
    tensor.kind = "buffer";
    tensor.persistent = false;
    tensor.requires_grad = false;
    tensor.shape = {config_.head_dim / 2};
    tensor.rope_theta = config_.rope_theta;
    model_.tensors.push_back(std::move(tensor));
  }

  const HfConfig& config_;
  DeclaredModel model_;
};

}  // namespace

Result<DeclaredModel> DeclareModel(const Case& test_case) {
  const std::string& checkpoint = test_case.model.checkpoint;
  if (checkpoint.empty()) {
    return DeclaredModel{test_case.model.tensors, test_case.model.ties, 0.02 * std::sqrt(3.0)};
  }
  SP_ASSIGN(const HfConfig config, ReadHfConfig(checkpoint));
  return ModelBuilder(config).Build();
}

}  // namespace shardproof::oracle
