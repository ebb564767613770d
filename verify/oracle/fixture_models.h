// For tests: models declared from the text of a config.json.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "verify/oracle/fixture_files.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {

inline constexpr char kSizes[] = R"("vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
    "num_hidden_layers": 1, "num_attention_heads": 4)";

inline Result<DeclaredModel> Declare(const std::string& config) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(WriteTextFile(directory / "config.json", config).ok());
  Case test_case;
  test_case.model.checkpoint = directory.path();
  return DeclareModel(test_case);
}

inline std::string Llama(const std::string& more) {
  return fmt::format(R"({{"architectures": ["LlamaForCausalLM"], {}{}}})", kSizes, more);
}

inline std::string Qwen3(const std::string& more) {
  return fmt::format(
      R"({{"architectures": ["Qwen3ForCausalLM"], {}, "num_key_value_heads": 2, "head_dim": 6{}}})",
      kSizes, more);
}

/// The one line of the refusal; empty if there is none.
inline std::string ErrorOf(const std::string& config) {
  const auto model = Declare(config);
  if (model.ok()) return "";
  EXPECT_EQ(model.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(model.error().message, ::testing::HasSubstr("config.json"));
  EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
  return model.error().message;
}

/// Name to shape, as text.
inline std::map<std::string, std::string> Shapes(const DeclaredModel& model) {
  std::map<std::string, std::string> shapes;
  for (const TensorCase& tensor : model.tensors) {
    std::string text;
    for (const int64_t size : tensor.shape) text += fmt::format("{} ", size);
    shapes[tensor.name] = text;
  }
  return shapes;
}

inline const TensorCase& Find(const DeclaredModel& model, const std::string& name) {
  for (const TensorCase& tensor : model.tensors) {
    if (tensor.name == name) return tensor;
  }
  static const TensorCase none;
  ADD_FAILURE() << "no tensor " << name;
  return none;
}

}  // namespace shardproof::oracle
