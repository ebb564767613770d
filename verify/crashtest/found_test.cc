#include "verify/crashtest/found.h"

#include <gtest/gtest.h>

#include "verify/crash/fixture_operations.h"

namespace shardproof::crashtest {
namespace {

using crash::Create;
using crash::Disk;
using crash::DiskOf;
using crash::MakeDirectory;
using crash::Operations;
using crash::Write;

const Operations kMany = {MakeDirectory("step-1"),
                          Create("step-1/.metadata"),
                          Create("step-1/__0_0.distcp"),
                          MakeDirectory("hf"),
                          Create("hf/model.safetensors.index.json"),
                          Create("hf/a.safetensors"),
                          Create("hf/optimizer.pt"),
                          Create("hf/.tmp.pt"),
                          Create("ckpt.pt"),
                          Create("notes.txt")};

TEST(Found, EachDirectoryHasOne) {
  const auto found = CheckpointsOf(DiskOf(kMany), "");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], (What{"torch", "", {"ckpt.pt"}}));
  EXPECT_EQ(
      found[1],
      (What{"files", "hf", {"a.safetensors", "model.safetensors.index.json", "optimizer.pt"}}));
  EXPECT_EQ(found[2], (What{"dcp", "step-1", {}}));
}

TEST(Found, OfOneKindAlone) {
  const Disk disk = DiskOf(kMany);
  EXPECT_EQ(CheckpointsOf(disk, "dcp"), (std::vector<What>{{"dcp", "step-1", {}}}));
  EXPECT_EQ(CheckpointsOf(disk, "torch").size(), 2u);
  EXPECT_EQ(CheckpointsOf(disk, "safetensors").front().files.size(), 2u);
}

TEST(Found, AtADirectoryOrAFile) {
  const auto found = CheckpointsOf(DiskOf(kMany), "");
  EXPECT_EQ(At(found, "step-1/").front().kind, "dcp");
  EXPECT_EQ(At(found, "./ckpt.pt").front(), (What{"torch", "", {"ckpt.pt"}}));
  EXPECT_EQ(At(found, ".").front().path, "");
  EXPECT_EQ(At(found, "hf/a.safetensors").front(), (What{"safetensors", "hf", {"a.safetensors"}}));
  EXPECT_TRUE(At(found, "step-3").empty());
}

TEST(Found, WhatDiffersHasOtherBytesOrFiles) {
  const What ckpt{"torch", "", {"ckpt.pt"}};
  const What step{"dcp", "step-1", {}};
  Operations more = kMany;
  more.push_back(Write("ckpt.pt", 0, "x"));
  EXPECT_TRUE(Differs(ckpt, DiskOf(kMany), DiskOf(more)));
  EXPECT_FALSE(Differs(step, DiskOf(kMany), DiskOf(more)));
  more.push_back(Create("step-1/__1_0.distcp"));
  EXPECT_TRUE(Differs(step, DiskOf(kMany), DiskOf(more)));
  EXPECT_TRUE(Differs(ckpt, Disk(), DiskOf(kMany)));
}

}  // namespace
}  // namespace shardproof::crashtest
