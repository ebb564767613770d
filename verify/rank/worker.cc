#include "verify/rank/worker.h"

#include <ATen/Parallel.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "src/pipeline/reference_stages.h"
#include "src/seam/decorators.h"
#include "verify/bug/bug.h"
#include "verify/decorators/confined_files.h"
#include "verify/decorators/devices.h"
#include "verify/decorators/files.h"
#include "verify/decorators/late_copies.h"
#include "verify/decorators/late_tasks.h"
#include "verify/fault/fault.h"
#include "verify/fault/point.h"
#include "verify/rank/evidence_paths.h"
#include "verify/rank/job_from_case.h"
#include "verify/rank/leaks.h"
#include "verify/rank/memory_sampler.h"
#include "verify/rank/recorded_communicator.h"
#include "verify/rank/recorder.h"
#include "verify/rank/run_pipeline.h"
#include "verify/rank/transport_for_device.h"

namespace shardproof {
namespace {

constexpr int kMmapThresholdBytes = 64 << 10;

/// Passes on what the pipeline says that is no error.
class TellingObserver : public ObserverDecorator {
 public:
  TellingObserver(std::shared_ptr<Observer> inner, std::function<void(const std::string&)> tell)
      : ObserverDecorator(std::move(inner)), tell_(std::move(tell)) {}
  void Notice(const std::string& line) override { tell_(line); }

 private:
  std::function<void(const std::string&)> tell_;
};

/// Samples memory whenever the pipeline reaches or enters a stage.
class SamplingObserver : public ObserverDecorator {
 public:
  SamplingObserver(std::shared_ptr<Observer> inner, MemorySampler& sampler)
      : ObserverDecorator(std::move(inner)), sampler_(sampler) {}
  void Enter(Stage stage) override {
    // Blocks of the heap that are free and committed, some from before the fork, would pass for
    // pages that the tensors of this stage have committed.
    ::malloc_trim(0);
    if (stage == Stage::kSaved && saves_++ > 0) sampler_.Saved();
    sampler_.SetStage(stage);
    inner_->Enter(stage);
  }
  void Reached(Stage stage, int64_t step, const Model& model) override {
    sampler_.Sample();
    if (stage == Stage::kSaved) {
      ::malloc_trim(0);
      sampler_.Saved();
    }
    inner_->Reached(stage, step, model);
  }

 private:
  MemorySampler& sampler_;
  int saves_ = 0;  ///< begun
};

std::string CodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadInput:
    case ErrorCode::kUnsupported:
      return "bad-input";
    case ErrorCode::kFailed:
      return "failed";
    case ErrorCode::kPeer:
      return "peer";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

int ExitCode(ErrorCode code) {
  if (code == ErrorCode::kBadInput) return 2;
  return code == ErrorCode::kInternal ? 5 : 1;
}

std::string HostName() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

RankHeader HeaderOf(const PhaseRun& run, const Job& job, int64_t rank) {
  return {.rank = rank,
          .world_size = run.phase.WorldSize(),
          .mesh = run.phase.mesh,
          .coordinates = job.mesh.CoordinatesOf(rank),
          .subject = run.test_case.subject,
          .mode = run.phase.facts().mode,
          .strategy = run.phase.strategy,
          .seed = run.test_case.seed};
}

/// Ends a simulated rank as a signal would: nothing of it is done any more, and nobody is told.
/// What its destructors do is that of a process that is gone: files that are open are closed.
struct RankDied {};

/// The faults and the planted bug that this launch is to have.
Status Tamper(const PhaseRun& run, const RankSeat& seat, const std::shared_ptr<Recorder>& recorder,
              Stages& stages, World& world, EvidenceWriter& writer) {
  if (!run.phase.facts().is_plain && !run.test_case.bug.empty()) {
    SP_ASSIGN(const PlantedBug bug, FindBug(run.test_case.bug));
    bug.plant(stages, world);
  }
  if (!run.phase.armed) return Ok();
  for (const FaultCase& asked : run.test_case.faults) {
    SP_ASSIGN(const Fault fault, FindFault(asked.id));
    const auto log = [&writer, asked, model = NameOf(fault.model)](FaultRecord record) {
      record.id = asked.id;
      record.where = asked.where;
      record.model = model;
      if (!writer.Fault(record).ok()) std::abort();
    };
    std::error_code error;
    const std::string store = std::filesystem::exists(StorePath(run), error) ? StorePath(run) : "";
    const std::string source = ReadFrom(run.test_case.model, run.source);
    FaultSite site{run.test_case, run.locations, source, run.save_to, stages, world, store, log};
    site.stage = [recorder] { return recorder->working_on(); };
    if (seat.shares_process) {
      site.die = [lose = seat.lose] {
        if (lose) lose();
        throw RankDied();
      };
    }
    fault.arm(site, asked.where);
  }
  return Ok();
}

/// As the phase has it; those of the host are made at once if nobody delays them.
std::shared_ptr<Device> WithLateCopies(std::shared_ptr<Device> device, const PhaseRun& run) {
  switch (run.phase.facts().copies) {
    case CopiesArrive::kAtOnce:
      return device;
    case CopiesArrive::kWhenWaitedFor:
      return DelayCopies(std::move(device), CopyTiming::kWhenWaited, run.test_case.seed);
    case CopiesArrive::kBySeed:
      return DelayCopies(std::move(device), CopyTiming::kSeeded, run.test_case.seed);
  }
  return device;
}

/// Everything between the open evidence and its end.
Status Work(const PhaseRun& run, const Job& job, const RankSeat& seat, EvidenceWriter& writer,
            const std::shared_ptr<Recorder>& recorder) {
  World world;
  world.clock = seat.clock;
  world.files = MakePosixFileSystem();
  world.observer = recorder;
  world.background = DelayTasks();
  SP_ASSIGN(const Reach reach, seat.connect());
  world.device = reach.device;
  // The yardstick has room, whatever the Case allows.
  if (const uint64_t bytes = run.test_case.device_bytes; bytes > 0 && run.phase.facts().offloads) {
    world.device = LimitMemory(world.device, bytes);
  }
  world.communicator = RecordCollectives(reach.communicator, writer);
  if (seat.adapt) seat.adapt(world);
  // Connections are made lazily; the idle figure is taken with all of them up.
  SP_TRY(world.communicator->Max(0, "start"));

  std::optional<MemorySampler> sampler;
  if (run.phase.facts().mode == RunMode::kMemory) {
    sampler.emplace(writer, reach.device);
    world.observer = std::make_shared<SamplingObserver>(recorder, *sampler);
    world.device = WatchReleases(world.device, [&sampler] { sampler->Sample(); });
  } else {
    world.device = PoisonFresh(world.device);
    if (job.training.offload > 0) world.device = WithLateCopies(world.device, run);
    world.files = LoseUnsynced(world.files);
  }
  if (run.phase.armed && Disrupts(run.test_case)) {
    world.files = ConfineTo(world.files, run.save_to);
  }
  if (seat.rank == 0)
    world.observer = std::make_shared<TellingObserver>(world.observer, seat.complain);
  Stages stages = ReferenceStages(job.strategy);
  SP_TRY(Tamper(run, seat, recorder, stages, world, writer));
  SP_TRY(RunPipeline(run, job, stages, world));
  if (sampler) {
    SP_TRY(sampler->Finish(recorder->own_bytes(), recorder->own_device_bytes()));
  }
  SP_TRY(recorder->status());
  // No rank leaves while another may still need it.
  SP_TRY(world.communicator->Max(0, "end"));
  return Ok();
}

}  // namespace

std::chrono::milliseconds RankTimeout(const Case& test_case) {
  return std::chrono::milliseconds(std::max<uint64_t>(500, test_case.deadline_ms * 3 / 4));
}

int RunRank(const PhaseRun& run, const RankSeat& seat) {
  at::set_num_threads(1);  // of this thread
  const auto complain = [&](const Error& error) {
    seat.complain(error.message);
    return ExitCode(error.code);
  };
  const auto job =
      JobFromCase(run.test_case, run.phase, ReadFrom(run.test_case.model, run.source), run.save_to);
  if (!job.ok()) return complain(job.error());
  auto writer = EvidenceWriter::Create(run.evidence, seat.rank);
  if (!writer.ok()) return complain(writer.error());
  EvidenceWriter& evidence = *writer.value();
  Status status = evidence.Rank(HeaderOf(run, job.value(), seat.rank));
  if (status.ok()) status = evidence.Process(::getpid(), HostName());
  const auto recorder = std::make_shared<Recorder>(evidence, run.phase.facts().mode, run.captures);
  // As libfiu's own programs name it; before threads are counted, since its is one.
  if (const char* pipes = std::getenv("FIU_CTRL_FIFO"); pipes != nullptr && *pipes != '\0') {
    static const Status controlled = ControlPointsBy(pipes);
    if (!controlled.ok()) return complain(controlled.error());
  }
  // A peer that is gone is an error of the collective, which Gloo learns by writing to it.
  if (!seat.shares_process) std::signal(SIGPIPE, SIG_IGN);
  const LeakWatch leaks(TemporaryPath(run, seat.rank));
  if (status.ok()) {
    try {
      status = Work(run, job.value(), seat, evidence, recorder);
    } catch (const RankDied&) {
      return kRankDied;
    } catch (const std::bad_alloc&) {
      status = Failed("it threw std::bad_alloc: there is no memory left for this process");
    } catch (
        const std::exception& error) {  // where the pipeline lets one out, the mistake is its own
      const std::string what = error.what();
      const std::string line = "it threw " + what.substr(0, what.find('\n'));
      (void)evidence.Error({"subject", recorder->working_on(), line});
      (void)evidence.End();
      seat.complain(line);
      return 1;
    }
  }
  if (!status.ok()) {
    const Error& error = status.error();
    (void)evidence.Error({CodeName(error.code), recorder->working_on(), error.message});
  }
  // A GPU's driver keeps descriptors and threads for the life of the process.
  const bool can_tell = !seat.shares_process && run.test_case.device != "cuda";
  if (can_tell) (void)evidence.Leaks(leaks.Since());
  const Status ended = evidence.End();
  if (!status.ok()) return complain(status.error());
  return ended.ok() ? 0 : complain(ended.error());
}

int RunRank(const PhaseRun& run, const c10::intrusive_ptr<c10d::Store>& store,
            const Rendezvous& rendezvous) {
  // Large blocks go back to the system when freed; otherwise a peak would be the heap's, not ours.
  ::mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  const std::shared_ptr<Clock> clock = MakeSteadyClock();
  return RunRank(
      run, {.rank = rendezvous.rank,
            .clock = clock,
            .connect = [&] { return Connect(run.test_case.device, store, rendezvous, clock); },
            .complain =
                [&](const std::string& line) {
                  std::fprintf(stderr, "rank %ld: %s\n", static_cast<long>(rendezvous.rank),
                               line.c_str());
                }});
}

}  // namespace shardproof
