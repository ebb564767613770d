// Which file a tensor is saved in, and where in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "src/aten/dtype.h"
#include "src/checkpoint/fixture_save.h"

namespace shardproof {
namespace {

using ::testing::ElementsAre;

uint64_t SizeOf(const Slot& slot) {
  uint64_t bytes = c10::elementSize(slot.spec.dtype);
  for (const int64_t size : slot.spec.shape) bytes *= size;
  return bytes;
}

TEST(PlanFiles, PutsEveryPersistentTensorInOneFileOnce) {
  const Model model = BuildSmall();
  uint64_t total = 0;
  for (const auto& slot : model.Slots()) total += slot->spec.persistent ? SizeOf(*slot) : 0;
  for (uint64_t limit = 1; limit <= total + 1; ++limit) {
    SCOPED_TRACE(limit);
    std::vector<std::string> names;
    const auto files = PlanOf(model, limit, 1);
    uint64_t previous = 0;
    for (const SavedFile& file : files) {
      ASSERT_FALSE(file.tensors.empty());
      // A file is begun only for a tensor that the one before has no room for.
      EXPECT_TRUE(&file == &files.front() || previous + file.tensors[0].state.bytes() > limit);
      previous = file.size - file.header.size();
      uint64_t header_bytes = 0;
      ASSERT_GE(file.header.size(), 8u);
      std::memcpy(&header_bytes, file.header.data(), 8);
      EXPECT_EQ(header_bytes + 8, file.header.size());
      EXPECT_EQ(file.header.size() % 8, 0u);
      const auto header = nlohmann::json::parse(file.header.substr(8), nullptr, false);
      ASSERT_TRUE(header.is_object());
      EXPECT_EQ(header.size(), file.tensors.size() + 1);
      EXPECT_EQ(header["__metadata__"]["format"], "pt");
      uint64_t offset = file.header.size();
      for (const SavedTensor& tensor : file.tensors) {
        const Slot& slot = *tensor.state.slot;
        const std::string& name = slot.spec.name;
        names.push_back(name);
        EXPECT_EQ(tensor.offset, offset) << name;
        const uint64_t begin = offset - file.header.size();
        const uint64_t end = begin + SizeOf(slot);
        EXPECT_EQ(header[name]["data_offsets"], nlohmann::json({begin, end}));
        EXPECT_EQ(header[name]["shape"], nlohmann::json(slot.spec.shape));
        EXPECT_EQ(header[name]["dtype"], DtypeName(slot.spec.dtype));
        offset += SizeOf(slot);
      }
      EXPECT_EQ(file.size, offset);
      if (file.tensors.size() > 1) {
        EXPECT_LE(file.size - file.header.size(), limit);
      }
    }
    EXPECT_THAT(names, ElementsAre("none", "scale", "mask", "embed.weight", "norm.bias"));
  }
}

TEST(PlanFiles, NamesFilesByTheirNumberAndMakesAboutOneARank) {
  const Model model = BuildSmall();
  const auto one = PlanOf(model, 0, 1);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].name, "model-00001-of-00001.safetensors");
  const auto three = PlanOf(model, 42, 1);  // 11, 42 and 20 data bytes
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[1].name, "model-00002-of-00003.safetensors");
  // It does not depend on who asks: what a rank holds must not matter.
  const auto sharded = PlanOf(MakeModel(1, 2, 3), 42, 1);
  ASSERT_EQ(sharded.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(sharded[i].header, three[i].header);
  // 73 bytes over two ranks: 37 a file, so that the widest tensor is alone.
  EXPECT_EQ(PlanOf(model, 0, 2)[0].tensors.size(), 3u);
  EXPECT_EQ(PlanOf(model, 0, 2).size(), 3u);
}

TEST(PlanFiles, CountsEachFilesBytesAnew) {
  ModelSpec spec;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    spec.tensors.push_back({.name = name, .shape = {2}});
  }
  const auto model = BuildOnMeta(spec, 0, *MakeHostDevice());
  ASSERT_TRUE(model.ok());
  std::vector<size_t> counts;
  for (const SavedFile& file : PlanOf(model.value(), 16, 1)) {
    counts.push_back(file.tensors.size());
  }
  EXPECT_THAT(counts, ElementsAre(2, 2, 1));
}

TEST(PlanFiles, AModelWithoutTensorsIsOneFileWithoutTensors) {
  const Model model;
  const auto files = PlanOf(model, 0, 4);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].size, files[0].header.size());
}

}  // namespace
}  // namespace shardproof
