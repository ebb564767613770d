#include "verify/dcp_forms/dcp_forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "src/pickle/pickle.h"
#include "verify/dcp_forms/damage.h"
#include "verify/formats/stored.h"
#include "verify/oracle/synthetic.h"
#include "verify/process/scratch_directory.h"

namespace shardproof::dcp_forms {
namespace {

using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

Case CaseOf(uint64_t seed) {
  Case made;
  made.seed = seed;
  made.model.format = "dcp";
  made.model.files = 2;
  const auto add = [&](const char* name, const char* dtype, std::vector<int64_t> shape) {
    TensorCase& tensor = made.model.tensors.emplace_back();
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
  };
  add("a.weight", "F32", {5, 3});
  add("a.scale", "BF16", {});
  add("b.weight", "F8_E4M3", {2, 3, 4});
  add("b.none", "I64", {3, 0});
  made.mesh = {{"dp_shard", 1}};
  return made;
}

TEST(PickleFormsTest, EveryFormIsTheSameValue) {
  std::vector<Py> many;
  for (int i = 0; i < 300; ++i) many.push_back(Py::Text(std::string(i % 70, 'x')));
  const Py value =
      Py::Of(Py::Kind::kTuple,
             {Py::None(), Py::Bool(true), Py::Integer(0), Py::Integer(-1), Py::Integer(255),
              Py::Integer(65535), Py::Integer(INT32_MIN), Py::Integer(INT64_MAX), Py::Text("x"),
              Py::Text("x"), Py::Size({2, 300}), Py::Of(Py::Kind::kList, std::move(many)),
              Py::Of(Py::Kind::kDict, {Py::Text("a"), Py::Integer(1), Py::Text("b"), Py::None()})});
  std::set<std::string> forms, texts;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Draws draws(seed);
    const std::string bytes =
        PickleOf(value, seed % 4 == 0 ? Reads::kTorch : Reads::kPython, draws);
    forms.insert(bytes);
    const auto read = pickle::ReadPickle(bytes, "test");
    ASSERT_TRUE(read.ok()) << seed << ": " << read.error().message;
    texts.insert(pickle::TextOf(read.value().root()).value());
  }
  EXPECT_THAT(texts, SizeIs(1));
  EXPECT_GT(forms.size(), 150u);
}

/// What a checkpoint holds by the verifier's reader of files.
std::string BytesOf(const formats::StoredCheckpoint& stored, const formats::StoredTensor& tensor) {
  const uint64_t width = tensor.Elements() == 0 ? 0 : tensor.Bytes() / tensor.Elements();
  std::string image(tensor.Bytes(), '\0');
  for (const formats::Chunk& chunk : tensor.chunks) {
    std::ifstream file(stored.files[chunk.file].path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(chunk.file_offset));
    std::string bytes(chunk.Elements() * width, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    for (uint64_t i = 0; i < chunk.Elements(); ++i) {
      uint64_t rest = i, at = 0, stride = 1;
      for (size_t d = tensor.shape.size(); d-- > 0;) {
        const auto size = static_cast<uint64_t>(chunk.sizes[d]);
        at += (static_cast<uint64_t>(chunk.offsets[d]) + rest % size) * stride;
        rest /= size;
        stride *= static_cast<uint64_t>(tensor.shape[d]);
      }
      image.replace(at * width, width, bytes, i * width, width);
    }
  }
  return image;
}

TEST(DcpFormsTest, AnotherReaderFindsTheTensorsThatWerePlanned) {
  std::set<size_t> beside;  // tensors, of a training job's state
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto scratch = ScratchDirectory::Make();
    const std::string directory = scratch.value()->path() + "/dcp";
    ASSERT_TRUE(WriteDcp(CaseOf(seed), directory).ok());
    const auto stored = formats::OpenStored(directory);
    ASSERT_TRUE(stored.ok()) << seed << ": " << stored.error().message;
    const auto plans = oracle::PlanSynthetic(CaseOf(seed)).value();
    ASSERT_THAT(stored.value().tensors, SizeIs(Ge(plans.size()))) << seed;
    beside.insert(stored.value().tensors.size() - plans.size());
    for (const oracle::PlannedTensor& plan : plans) {
      const auto found =
          std::find_if(stored.value().tensors.begin(), stored.value().tensors.end(),
                       [&](const formats::StoredTensor& tensor) {
                         return tensor.name == plan.name || tensor.name == "model." + plan.name;
                       });
      ASSERT_NE(found, stored.value().tensors.end()) << seed << plan.name;
      std::string planned(*oracle::BytesOf(plan), '\0');
      plan.fill(0, planned.size() / static_cast<uint64_t>(plan.dtype->bytes), planned.data());
      EXPECT_EQ(BytesOf(stored.value(), *found), planned) << seed << plan.name;
    }
  }
  EXPECT_THAT(beside, IsSupersetOf({0, 3, 4}));
}

TEST(DamageTest, IsOfOneFileAndTheRestIsAsItWas) {
  for (const std::string& name : DamageNames()) {
    Dcp sound = TakeApart(CaseOf(7)).value();
    Build(sound);
    LayOut(sound);
    sound.files[kMetadataName] = MetadataText(sound, MetadataOf(sound));
    for (uint64_t n = 0; n < 20; ++n) {
      const auto damaged = Damage(CaseOf(7), name, n);
      ASSERT_TRUE(damaged.ok()) << name;
      const std::string& file = damaged.value().file;
      EXPECT_NE(damaged.value().files.at(file), sound.files.at(file)) << name << ":" << n;
    }
  }
}

TEST(DamageTest, WhatIsNotKnownAndWhatHasNoByteAreRefused) {
  EXPECT_THAT(Damage(CaseOf(1), "none", 0).error().message, HasSubstr("'none'"));
  Case empty = CaseOf(1);
  empty.model.tensors = {empty.model.tensors[3]};
  EXPECT_FALSE(Damage(empty, "cut", 0).ok());
}

}  // namespace
}  // namespace shardproof::dcp_forms
