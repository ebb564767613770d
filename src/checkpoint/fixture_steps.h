// For tests: a small training job that saves steps below a root, on two simulated ranks.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "src/checkpoint/steps.h"
#include "src/comm/sim.h"
#include "src/pipeline/pipeline.h"
#include "src/pipeline/reference_stages.h"
#include "src/seam/decorators.h"

namespace shardproof {

class Quiet : public Observer {
 public:
  void Enter(Stage) override {}
  void Reached(Stage, int64_t, const Model&) override {}
  void Keys(const std::vector<std::string>&, const std::vector<std::string>&) override {}
  void Notice(const std::string& line) override { notices.push_back(line); }

  std::vector<std::string> notices;
};

class StepsTest : public testing::Test {
 protected:
  StepsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "shardproof-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    root_ = directory_ + "/root";
    job_ = {
        .model =
            ModelSpec{.tensors = {{.name = "a.weight", .shape = {7, 4}},
                                  {.name = "b.weight", .dtype = at::kBFloat16, .shape = {5, 3}}},
                      .init_scale = 1.0},
        .from_scratch = true,
        .mesh = {{{"dp_shard", 2}}},
        .seed = 1,
        .save_to = root_,
        .training = {.steps = 9},
        .format = SaveFormat::kDcp};
  }
  ~StepsTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  /// Runs `work` on simulated ranks. \returns what each came to.
  std::vector<Status> OnRanks(const std::function<Status(World&)>& work, int64_t ranks = 2) {
    std::vector<Status> ends(static_cast<size_t>(ranks), Ok());
    SimWorld sim(ranks, 1);
    sim.Run([&](int64_t rank) {
      at::set_num_threads(1);
      World world{.files = MakePosixFileSystem(),
                  .device = MakeHostDevice(),
                  .communicator = sim.CommunicatorOf(rank),
                  .clock = sim.MakeClock(),
                  .observer = rank == 0 ? quiet_ : std::make_shared<Quiet>()};
      ends[rank] = work(world);
    });
    return ends;
  }

  /// Takes steps and saves after each of `saved`.
  void SaveAt(const std::vector<int64_t>& saved) {
    for (const Status& end : OnRanks([&](World& world) -> Status {
           const Stages stages = ReferenceStages(job_.strategy);
           SP_ASSIGN(Model model, Load(job_, stages, world));
           for (const int64_t step : saved) {
             SP_TRY(Train(model, step, Stage::kStepped, job_, stages, world));
             SP_TRY(Save(model, job_, stages, world));
           }
           return Ok();
         })) {
      ASSERT_TRUE(end.ok()) << end.error().message;
    }
  }

  /// The step that is restored; -1 and `error_` if none is, the same on both ranks.
  int64_t Restored() {
    quiet_->notices.clear();
    std::vector<int64_t> steps(2, -1);
    const auto ends = OnRanks([&](World& world) -> Status {
      SP_ASSIGN(const Model model, Restore(job_, ReferenceStages(job_.strategy), world));
      steps[world.rank()] = model.step;
      return Ok();
    });
    EXPECT_EQ(steps[0], steps[1]);
    error_ = ends[0].ok() ? "" : ends[0].error().message;
    // What rank 0 finds wrong, rank 1 tells as that rank's.
    const std::string other = ends[1].ok() ? "" : ends[1].error().message;
    EXPECT_EQ(error_, std::regex_replace(other, std::regex("rank 0: "), ""));
    EXPECT_EQ(error_.find('\n'), std::string::npos);
    if (!ends[0].ok()) {
      EXPECT_EQ(ends[0].error().code, ErrorCode::kBadInput);
    }
    return steps[0];
  }

  std::vector<std::string> Names() const { return MakePosixFileSystem()->List(root_).value(); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(root_ + "/" + name, std::ios::binary) << text;
  }

  /// Flips a bit of the file's byte `offset`, from its end if that is negative.
  void Flip(const std::string& name, int64_t offset) const {
    std::fstream file(root_ + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file.good()) << name;
    file.seekg(offset, offset < 0 ? std::ios::end : std::ios::beg);
    const int byte = file.get();
    file.seekp(offset, offset < 0 ? std::ios::end : std::ios::beg);
    file.put(static_cast<char>(byte ^ 1));
  }

  std::shared_ptr<Quiet> quiet_ = std::make_shared<Quiet>();
  std::string directory_, root_, error_;
  Job job_;
};

}  // namespace shardproof
