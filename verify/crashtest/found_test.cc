#include "verify/crashtest/found.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/crash_states/fixture_operations.h"

namespace shardproof::crashtest {
namespace {

using crash::Append;
using crash::Create;
using crash::Disk;
using crash::DiskOf;
using crash::MakeDirectory;
using crash::Operations;
using crash::Symlink;
using crash::Unlink;
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

const Operations kSteps = {MakeDirectory("step-1"), Create("step-1/.metadata"),
                           MakeDirectory("step-2"), Create("step-2/.metadata"),
                           Create("a.pt"),          Create("b.pt")};

Operations With(Operations operations, const Operations& more) {
  Append(operations, more);
  return operations;
}

TEST(Found, ALinkToACheckpointIsOneToo) {
  const auto found = CheckpointsOf(
      DiskOf(With(kSteps, {Symlink("latest", "//step-1"), Symlink("last.pt", "b.pt"),
                           Symlink("newest", "a.pt"), Symlink("gone", "step-3"),
                           Symlink("loop", "loop"), MakeDirectory("runs"), Symlink("runs/up", ".."),
                           Symlink("runs/far.pt", "../a.pt")})),
      "");
  std::vector<std::string> texts;
  for (const What& what : found) texts.push_back(what.Text());
  const std::string dcp = " by torch.distributed.checkpoint.load";
  EXPECT_THAT(texts,
              ::testing::IsSupersetOf(
                  {"latest" + dcp, "step-1" + dcp, std::string("last.pt by torch.load"),
                   std::string("newest by torch.load"), std::string("a.pt, b.pt by torch.load"),
                   std::string("runs/far.pt by torch.load")}));
  EXPECT_EQ(At(found, "newest").front().kind, "torch");
}

TEST(Found, WhatALinkThatMovedLeadsToIsEnteredByIt) {
  const Disk before = DiskOf(With(kSteps, {Symlink("latest", "step-1"), Symlink("l.pt", "a.pt")}));
  const What step{"dcp", "step-2", {}};
  const What latest{"dcp", "latest", {}};
  const Disk after = DiskOf(With(kSteps, {Symlink("latest", "step-2"), Symlink("l.pt", "a.pt")}));
  EXPECT_EQ(Entrances({latest, step}, before, after), std::vector<What>{latest});
  EXPECT_EQ(Entrances({latest, step}, after, after), std::vector<What>{step});
  const Operations files = {Create("step-1/c.pt"), Create("step-2/c.pt"),
                            Write("step-2/c.pt", 0, "2")};
  const What through{"torch", "latest", {"c.pt"}};
  const Disk was = DiskOf(With(With(kSteps, files), {Symlink("latest", "step-1")}));
  const Disk is = DiskOf(With(With(kSteps, files), {Symlink("latest", "step-2")}));
  EXPECT_TRUE(Differs(through, was, is));
  EXPECT_FALSE(Differs(through, is, is));
  EXPECT_EQ(Entrances({through, {"torch", "step-2", {"c.pt"}}}, was, is),
            std::vector<What>{through});
  const What below{"dcp", "latest/model", {}};
  const Operations deep = {MakeDirectory("step-1/model"), Create("step-1/model/.metadata"),
                           MakeDirectory("step-2/model"), Create("step-2/model/.metadata"),
                           Unlink("step-1/.metadata"),    Unlink("step-2/.metadata")};
  const Disk then = DiskOf(With(With(kSteps, deep), {Symlink("latest", "step-1")}));
  const Disk now = DiskOf(With(With(kSteps, deep), {Symlink("latest", "step-2")}));
  EXPECT_EQ(At(CheckpointsOf(now, ""), "latest/model"), std::vector<What>{below});
  EXPECT_EQ(Entrances({below, {"dcp", "step-2/model", {}}}, then, now), std::vector<What>{below});
  const What shards{"safetensors", "latest", {"a", "b"}};
  EXPECT_EQ(Entrances({shards, {"safetensors", "step-2", {"a", "b"}}}, was, is),
            std::vector<What>{shards});
  const What both{"torch", "", {"a.pt", "b.pt"}};
  const What link{"torch", "", {"l.pt"}};
  EXPECT_EQ(Entrances({both, link}, before, after), std::vector<What>{both});
  EXPECT_EQ(Entrances({both, link}, DiskOf(kSteps), after), std::vector<What>{link});
}

TEST(Found, ASmallFileThatChangedNamesIt) {
  const Operations text = {Create("latest"), Write("latest", 0, " step-1\n")};
  const Disk before = DiskOf(With(kSteps, text));
  const Disk after = DiskOf(With(With(kSteps, text), {Write("latest", 0, " step-2\n")}));
  const What step{"dcp", "step-2", {}};
  const What named{"dcp", "", {}, "latest"};
  EXPECT_EQ(ByName(step, before, after), named);
  EXPECT_EQ(ByName(step, after, after), std::nullopt);
  EXPECT_EQ(ByName({"dcp", "step-1", {}}, before, after), std::nullopt);
  EXPECT_EQ(NamedBy("latest", CheckpointsOf(before, ""), before), named);
  EXPECT_EQ(NamedBy("a.pt", CheckpointsOf(before, ""), before), std::nullopt);
  EXPECT_EQ(named.Text(), "what latest names by torch.distributed.checkpoint.load");
  const Disk file = DiskOf(With(kSteps, {Create("last"), Write("last", 0, "./b.pt")}));
  EXPECT_EQ(ByName({"torch", "", {"a.pt", "b.pt"}}, before, file), (What{"torch", "", {}, "last"}));
}

}  // namespace
}  // namespace shardproof::crashtest
