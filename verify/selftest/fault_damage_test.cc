// Files that are damaged: of what a job has saved, and of an adapter that it loads.
#include "verify/selftest/fault_cases.h"

namespace shardproof {
namespace {

TEST(Damage, OfAnAdapterIsRefused) {
  const Case test_case = WithAdapter();
  for (const std::string edit :
       {"cut", "tail", "length", "dtype", "shape", "offset", "number", "twice", "gone"}) {
    for (const int n : {0, 1, 42, 1003}) {
      const std::string where = fmt::format("{}:{}", edit, n);
      EXPECT_EQ(Try(test_case, "file/damage", where), Outcome::kAsStated) << where;
    }
  }
}

TEST(Damage, OfTheConfigOfAnAdapterIsRefused) {
  const Case test_case = WithAdapter();
  for (int n = 1; n < 260; n += 12) {
    const std::string where = std::to_string(n);
    EXPECT_EQ(Try(test_case, "file/damage-config", where), Outcome::kAsStated) << where;
  }
}

/// Bytes of all that is saved: of parameters, tied ones too, of the optimizer and of generators.
TEST(Damage, OfASaveIsRecoveredOrRefused) {
  for (const Case& test_case : {Loading("sim"), Training("sim", "dcp"),
                                Training("sim", "safetensors"), TiedTraining("sim")}) {
    for (int64_t byte = 0; byte < 1200; byte += 61) {
      const std::string where = std::to_string(byte);
      EXPECT_EQ(Try(test_case, "file/rot", where), Outcome::kAsStated) << where;
    }
  }
}

/// Every file of a save, of each format, and of older ones beside it.
TEST(Damage, OfAFileOfASaveIsRecoveredOrRefused) {
  Case several = Training("sim", "dcp");
  several.steps = 4;
  several.training.keep = 3;
  Case adapted = WithAdapter();
  adapted.steps = 2;
  adapted.training.format = "safetensors";
  for (const Case& test_case : {Loading("sim"), WithAdapter(), several, adapted,
                                Training("sim", "safetensors"), TiedTraining("sim")}) {
    for (const std::string edit : {"gone", "cut", "tail", "flip"}) {
      // No manifest has config.json: a bit of it may make another model, which is restored.
      if (edit == "flip" && !test_case.model.checkpoint.empty()) continue;
      for (int64_t n = 0; n < 9; ++n) {
        const std::string where = fmt::format("{}:{}", edit, n + 9 * 8 * 61 * n);
        EXPECT_EQ(Try(test_case, "file/damage-save", where), Outcome::kAsStated) << where;
      }
    }
  }
  for (int64_t n = 0; n < 12; ++n) {
    for (const char* edit : {"latest-gone", "latest-cut", "latest-flip", "latest-older"}) {
      const std::string where = fmt::format("{}:{}", edit, n * 11);
      EXPECT_EQ(Try(several, "file/damage-save", where), Outcome::kAsStated) << where;
    }
    const std::string newest = fmt::format("flip:{}", n * 1009);
    for (const std::string older : {"gone:2@1", "cut:1@1", "tail:4@1", "flip:77@1"}) {
      EXPECT_EQ(Try(several, {{"file/damage-save", newest}, {"file/damage-save", older}}),
                Outcome::kAsStated)
          << newest << " " << older;
    }
  }
}

}  // namespace
}  // namespace shardproof
