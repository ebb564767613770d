// resave SRC DST MESH STRATEGY DEVICE: the reference pipeline loads the DCP directory SRC as a
// training job on MESH ("dp_shard=2,tp=2"), on simulated ranks, and saves it as the DCP directory
// DST. What it trains is what SRC has AdamW state of. For tests that hold both against each other.
#include <ATen/Parallel.h>

#include <cstdio>
#include <set>
#include <sstream>

#include "src/comm/sim.h"
#include "src/comm/staging.h"
#include "src/load/dcp_source.h"
#include "src/pipeline/pipeline.h"
#include "src/pipeline/reference_stages.h"
#include "verify/decorators/isolated_device.h"
#include "verify/rank/transport_for_device.h"

namespace shardproof {
namespace {

class NoObserver : public Observer {
 public:
  void Enter(Stage) override {}
  void Reached(Stage, int64_t, const Model&) override {}
  void Keys(const std::vector<std::string>&, const std::vector<std::string>&) override {}
};

Mesh MeshFrom(const std::string& text) {
  Mesh mesh;
  std::istringstream in(text);
  for (std::string axis; std::getline(in, axis, ',');) {
    const size_t equals = axis.find('=');
    mesh.axes.push_back({axis.substr(0, equals), std::stoll(axis.substr(equals + 1))});
  }
  return mesh;
}

ModelSpec SpecOf(const Source& source) {
  ModelSpec spec;
  std::set<std::string> trained;
  constexpr std::string_view kMoment = ".exp_avg";
  for (const auto& [key, tensor] : source.state) {
    const size_t state = key.find(".state.");
    if (state == std::string::npos || !key.ends_with(kMoment)) continue;
    const size_t begin = state + std::string_view(".state.").size();
    trained.insert(key.substr(begin, key.size() - kMoment.size() - begin));
  }
  for (const auto& [name, tensor] : source.tensors) {
    const bool is_trained = trained.contains(name);
    spec.tensors.push_back({.name = name,
                            .kind = is_trained ? TensorKind::kParameter : TensorKind::kBuffer,
                            .dtype = tensor.dtype,
                            .shape = tensor.shape,
                            .requires_grad = is_trained});
  }
  return spec;
}

Status Resave(const Job& job, World& world) {
  const Stages stages = ReferenceStages(job.strategy);
  SP_ASSIGN(const Model model, Load(job, stages, world));
  Job at_once = job;
  at_once.training.steps = 0;  // into the directory itself, not below it
  return Save(model, at_once, stages, world);
}

int Run(const std::vector<std::string>& words) {
  const auto files = MakePosixFileSystem();
  const auto source = OpenDcpSource(*files, words[0]);
  if (!source.ok()) {
    std::fprintf(stderr, "%s\n", source.error().message.c_str());
    return 2;
  }
  Job job{.checkpoint = words[0], .model = SpecOf(source.value()), .mesh = MeshFrom(words[2])};
  job.strategy = StrategyFromName(words[3]).value();
  job.save_to = words[1];
  job.format = SaveFormat::kDcp;
  job.training.steps = 1;
  job.bucket_bytes = 256;
  SimWorld sim(job.mesh.WorldSize(), 0);
  int code = 0;
  sim.Run([&](int64_t rank) {
    at::set_num_threads(1);
    World world{.files = files,
                .device = words[4] == "isolated" ? MakeApartDevice() : MakeHostDevice(),
                .communicator = sim.CommunicatorOf(rank),
                .clock = sim.MakeClock(),
                .observer = std::make_shared<NoObserver>()};
    if (words[4] == "isolated")
      world.communicator = StageThrough(world.communicator, *world.device, false);
    const Status status = Resave(job, world);
    if (status.ok()) return;
    code = 1;
    std::fprintf(stderr, "rank %ld: %s\n", static_cast<long>(rank), status.error().message.c_str());
  });
  return code;
}

}  // namespace
}  // namespace shardproof

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "resave SRC DST MESH STRATEGY DEVICE\n");
    return 2;
  }
  return shardproof::Run({argv + 1, argv + argc});
}
