// vectors.json, made by a plain Python program from the specification, against every kernel; and
// the text form of a digest.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/digest/digest.hpp"
#include "src/digest/digest_internal.h"

namespace shardproof {
namespace {

using digest_internal::Kernel;
using digest_internal::Kernels;
using nlohmann::json;

const json& Document() {
  static const json document = json::parse(std::ifstream(SHARDPROOF_DIGEST_VECTORS));
  return document;
}

uint8_t FormulaByte(uint64_t position, uint64_t seed) {
  return static_cast<uint8_t>(static_cast<uint32_t>(position * 2654435761u + seed) >> 24);
}

/// The bytes of all stretches, one after another.
std::vector<uint8_t> Data(const json& vector) {
  const json& data = vector.at("data");
  std::vector<uint8_t> bytes;
  for (const json& run : vector.at("runs")) {
    for (uint64_t i = 0; i < run.at("count").get<uint64_t>(); ++i) {
      uint64_t start =
          run.at("global_start").get<uint64_t>() + i * run.at("global_stride").get<uint64_t>();
      for (uint64_t j = 0; j < run.at("length").get<uint64_t>(); ++j) {
        if (data.at("kind") == "formula") {
          bytes.push_back(FormulaByte(start + j, data.at("seed").get<uint64_t>()));
        } else if (data.at("kind") == "constant") {
          bytes.push_back(data.at("byte").get<uint8_t>());
        } else {
          std::string digits = data.at("hex").get<std::string>().substr(2 * bytes.size(), 2);
          bytes.push_back(static_cast<uint8_t>(std::stoul(digits, nullptr, 16)));
        }
      }
    }
  }
  return bytes;
}

std::vector<sp_run> Runs(const json& vector, const std::vector<uint8_t>& bytes) {
  std::vector<sp_run> runs;
  const uint8_t* data = bytes.data();
  for (const json& run : vector.at("runs")) {
    uint64_t length = run.at("length").get<uint64_t>();
    uint64_t count = run.at("count").get<uint64_t>();
    runs.push_back({run.at("global_start").get<uint64_t>(), length, count,
                    run.at("global_stride").get<uint64_t>(), data, static_cast<int64_t>(length)});
    data += length * count;
  }
  return runs;
}

TEST(DigestVectors, HoldForEveryKernelAndFormat) {
  ASSERT_GE(Document().at("vectors").size(), 40u);
  for (const json& vector : Document().at("vectors")) {
    std::vector<uint8_t> bytes = Data(vector);
    std::vector<sp_run> runs = Runs(vector, bytes);
    for (const Kernel* kernel : Kernels()) {
      for (auto digest_runs : kernel->digest_runs) {
        sp_summary summary = {};
        digest_runs(&summary, runs.data(), runs.size());
        EXPECT_EQ(Digest(summary.digest).Hex(), vector.at("digest"))
            << vector.at("name") << ", " << kernel->name;
      }
    }
  }
}

TEST(DigestVectors, HoldForCoverage) {
  for (const json& vector : Document().at("vectors")) {
    std::vector<uint8_t> bytes = Data(vector);
    std::vector<sp_run> runs = Runs(vector, bytes);
    for (sp_run& run : runs) run.data = nullptr;
    sp_digest coverage = {};
    sp_coverage_runs(&coverage, runs.data(), runs.size());
    EXPECT_EQ(Digest(coverage).Hex(), vector.at("coverage")) << vector.at("name");
  }
}

TEST(DigestVectors, HoldForKeysAndFactors) {
  for (const json& constant : Document().at("constants")) {
    uint32_t lane = constant.at("lane").get<uint32_t>();
    if (constant.contains("key")) {
      uint32_t key = digest_internal::kKeys.key[lane][constant.at("word").get<uint32_t>()];
      EXPECT_EQ(key, std::stoul(constant.at("key").get<std::string>(), nullptr, 16))
          << constant.at("name");
    } else {
      EXPECT_EQ(digest_internal::Factor(lane, constant.at("block").get<uint64_t>()),
                std::stoull(constant.at("factor").get<std::string>(), nullptr, 16))
          << constant.at("name");
    }
  }
}

TEST(DigestText, IsLaneZeroThenLaneOneMostSignificantDigitFirst) {
  EXPECT_EQ(Digest(0x0123456789abcdef, 0xf).Hex(), "0123456789abcdef000000000000000f");
  EXPECT_EQ(Digest().Hex(), std::string(32, '0'));
}

TEST(DigestText, ReadsBackWhatItWrote) {
  Digest digest(0xfedcba9876543210, 0x8000000000000001);
  EXPECT_EQ(Digest::FromHex(digest.Hex()), digest);
  EXPECT_EQ(Digest::FromHex("FEDCBA98765432108000000000000001"), digest);
}

TEST(DigestText, RefusesAnythingButThirtyTwoHexadecimalDigits) {
  std::string valid(32, 'a');
  EXPECT_TRUE(Digest::FromHex(valid).has_value());
  EXPECT_FALSE(Digest::FromHex("").has_value());
  EXPECT_FALSE(Digest::FromHex(valid.substr(1)).has_value());
  EXPECT_FALSE(Digest::FromHex(valid + "a").has_value());
  for (size_t i = 0; i < valid.size(); ++i) {
    for (char wrong : {'g', ' ', '-', 'x', '\0', '/', ':', '@', 'G', '`'}) {
      std::string text = valid;
      text[i] = wrong;
      EXPECT_FALSE(Digest::FromHex(text).has_value()) << "'" << wrong << "' at " << i;
    }
  }
}

}  // namespace
}  // namespace shardproof
