#include "verify/oracle/listing.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "verify/oracle/fixture_files.h"

namespace shardproof::oracle {
namespace {

namespace fs = std::filesystem;

/// Names that Walk shows to one who is not root, to whom nothing is closed.
Status WalkAsNobody(const std::string& directory, std::set<std::string>& names) {
  const bool is_root = geteuid() == 0;
  if (is_root && seteuid(65534) != 0) return Internal("seteuid");
  const Status walked = Walk(directory, [&](const DirectoryEntry& entry) {
    names.insert(entry.name);
    return Next::kInto;
  });
  if (is_root && seteuid(0) != 0) return Internal("seteuid back");
  return walked;
}

TEST(Walk, GoesOnWhereAFolderIsClosed) {
  const TemporaryDirectory scratch;
  fs::permissions(scratch.path(), fs::perms(0755));
  const fs::path before = fs::current_path();
  fs::current_path(scratch.path());  // the folders above it may be closed, too
  for (const char* folder : {"lost+found", "m", "z"}) {
    fs::create_directory(scratch / folder);
    std::ofstream(scratch / folder + "/w.pt") << "x";
  }
  fs::permissions(scratch / "lost+found", fs::perms::none);
  std::set<std::string> names;
  EXPECT_TRUE(WalkAsNobody(".", names).ok());
  EXPECT_EQ(names, (std::set<std::string>{"lost+found", "m", "m/w.pt", "z", "z/w.pt"}));

  fs::permissions(scratch / "m", fs::perms::none);
  names.clear();
  const Status told = WalkAsNobody(".", names);
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(told.error().message, "./m: cannot be listed: Permission denied");
  EXPECT_EQ(names, (std::set<std::string>{"lost+found", "m", "z", "z/w.pt"}));
  EXPECT_FALSE(WalkAsNobody("./lost+found", names).ok()) << "asked for itself";

  fs::current_path(before);
  for (const char* folder : {"lost+found", "m"})
    fs::permissions(scratch / folder, fs::perms::owner_all);
}

}  // namespace
}  // namespace shardproof::oracle
