"""Faults of CUDA and NCCL on a GPU, by the real libraries: what the reference, a subject and a job
of torch's own say of them, and that the run after them is as one before."""

import sys
from pathlib import Path

from command import REPOSITORY, wait_until, without_device
from interposed import InterposedTest

SMOKE = REPOSITORY / "fixtures" / "cases" / "smoke.json"
FINISHES = "fault.every_rank_finishes"


class GpuTest(InterposedTest):
    def setUp(self):
        super().setUp()
        if why := without_device("cuda"):
            self.skipTest(why.removeprefix("skipped: "))

    def found(self, document):
        return " ".join(finding["message"] for finding in document["findings"])


class Reference(GpuTest):
    """One rank over NCCL. Each rank of each phase counts its calls anew; the first broadcast is of
    names, the second of what is named embed.weight."""

    labels = "selftest fault multi-gpu"
    timeout_s = 150

    def verify(self, rules, code, *words):
        self.log.unlink(missing_ok=True)
        words = words or ("--world", 1)
        return self.judged("verify", "--case", SMOKE, "--device", "cuda", *words,
                           code=code, timeout=100, **self.variables(rules))  # fmt: skip

    def ends_of(self, rules, *told, code=1, words=()):
        """What every rank of the run has come to names what is told; the next run is sound."""
        document = self.verify(rules, code, "--world", 1, *words)
        self.assertGreater(len(self.firings()), 0)
        ends = [one["message"] for one in document["findings"] if one["property"] == FINISHES]
        self.assertIn("on rank 0 of 1", ends[0])
        for word in told:
            self.assertIn(word, ends[0])
        self.assertEqual(self.verify(None, 0)["findings"], [])

    def test_a_collective_that_fails(self):
        self.ends_of("ncclBcast:error=ncclRemoteError,call=1",
                     "broadcast from rank 0 of embed.weight", "remote")  # fmt: skip

    def test_a_communicator_that_reports_an_error_later(self):
        self.ends_of("ncclBcast:async-error=ncclRemoteError,call=1",
                     "broadcast from rank 0 of embed.weight")  # fmt: skip

    def test_a_communicator_that_cannot_be_made(self):
        self.ends_of("ncclCommInitRankConfig:error=ncclSystemError", "start")

    def test_a_collective_that_hangs(self):
        self.ends_of("ncclBcast:hang,call=1", "made no progress after `sharded`", code=4,
                     words=("--deadline", 12))  # fmt: skip

    def test_a_collective_that_is_late(self):
        document = self.verify("ncclBcast:delay=300,call=1", 0)
        self.assertEqual(document["findings"], [])
        self.assertGreater(len(self.firings()), 0)

    def test_a_bit_that_is_flipped_in_a_collective(self):
        document = self.verify("ncclBcast:flip=0,call=1", 1)
        self.assertIn("embed.weight", self.found(document))
        self.assertIn("one flipped bit", self.found(document))

    def test_no_device_memory(self):
        self.ends_of("cudaMalloc:error=cudaErrorMemoryAllocation,then-on", "GPU 0", "out of memory")

    def test_no_pinned_memory(self):
        self.ends_of("cudaMallocHost:error=cudaErrorMemoryAllocation", "opening GPU 0",
                     "out of memory")  # fmt: skip

    def test_a_copy_that_fails(self):
        self.ends_of("cudaMemcpyAsync:error=cudaErrorIllegalAddress,call=1", "illegal")


class Budget(GpuTest):
    """Faults of the reference that strike on any device: two ranks, which share a GPU."""

    labels = "selftest fault multi-gpu"
    timeout_s = 150

    def judged_as_stated(self, *fault):
        document = self.judged("verify", "--case", SMOKE, "--device", "cuda", "--world", 2, *fault,
                               "--judge-faults", code=0, timeout=140)  # fmt: skip
        verdicts = {one["id"]: one["verdict"] for one in document["properties"]}
        self.assertEqual(verdicts["fault.every_fault_fires"], "pass")
        self.assertEqual(verdicts["fault.ends_as_stated"], "pass")
        self.assertEqual(verdicts["fault.after_equals_undisturbed"], "pass")

    def test_a_device_with_too_little_memory(self):
        self.judged_as_stated("--inject", "memory/device@40:0")

    def test_a_rank_that_is_killed(self):
        self.judged_as_stated("--kill", "1@loaded")


class OnAnyDevice(InterposedTest):
    """The same where there is no GPU."""

    labels = "selftest fault multi-rank"

    def test_memory_and_ranks(self):
        for fault in (("--inject", "memory/device@40:0"), ("--kill", "1@loaded")):
            document = self.judged("verify", "--case", SMOKE, "--device", "isolated", "--world", 2,
                                   *fault, "--judge-faults", code=0)  # fmt: skip
            self.assertEqual(document["findings"], [])

    def test_what_reads_tensors_is_refused(self):
        self.refused("verify", "--case", SMOKE, "--device", "isolated", "--world", 2, "--inject",
                     "memory/device@40:0", "--inject", "file/flip@embed.weight:1",
                     names=["file/flip", "the host's memory", "isolated"])  # fmt: skip


# Each rank reads the checkpoint, and moves what it holds to the GPU, if there is one.
SUBJECT = """
import torch
import torch.distributed as dist

CANNOT = {"plain": "it has one way of loading", "host_bound": "every rank holds the whole model",
          "save": "it only loads", "lost_ranks": "torch does not know which"}


def run(case, observe):
    there = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    model = case.build("cpu")
    observe("built", model=model)
    keys = model.load_state_dict(case.state_dict(), strict=False)
    observe("loaded", missing=keys.missing_keys, unexpected=keys.unexpected_keys)
    model.to(there)
    if NCCL and there.type == "cuda":
        total = torch.ones(4, device=there)
        dist.all_reduce(total, group=dist.new_group(backend="nccl"))
        torch.cuda.synchronize()
    observe("ready", model=model)
"""


class SubjectTest(InterposedTest):
    def verify(self, world, code, *words, with_nccl=False):
        subject = self.write("on_gpu.py", SUBJECT.replace("NCCL", str(with_nccl), 1))
        return self.judged("verify", "--subject", subject, "--world", world, "--no-confirm", *words,
                           code=code, timeout=110)  # fmt: skip

    def passes(self):
        document = self.verify(2, 0)
        self.assertEqual(document["findings"], [])


class SubjectOnTheHost(SubjectTest):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 120

    def test_that_holds_its_model_where_there_is_no_gpu(self):
        self.passes()


class SubjectOnAGpu(GpuTest, SubjectTest):
    labels = "selftest fault multi-gpu framework"
    timeout_s = 200

    def test_that_holds_its_model_there(self):
        self.passes()

    def ends(self, fault, told, code=1, with_nccl=True, world=1, words=()):
        document = self.verify(world, code, "--inject", fault, *words, with_nccl=with_nccl)
        verdicts = {one["id"]: one["verdict"] for one in document["properties"]}
        self.assertEqual(verdicts["fault.every_fault_fires"], "pass")
        self.assertIn(told, self.found(document))
        return document

    def test_that_finds_no_memory_there(self):
        document = self.ends("cuda/memory@rank=1", "OutOfMemoryError", with_nccl=False, world=2)
        self.assertIn("on rank 1 of 2", self.found(document))

    def test_whose_collective_fails(self):
        self.ends("nccl/error@0:0", "ncclRemoteError")

    def test_whose_communicator_cannot_be_made(self):
        self.ends("nccl/init@0:0", "ncclSystemError")

    def test_whose_collective_hangs(self):
        self.ends("nccl/hang@0:0", "after `loaded`", code=4, words=("--deadline", 20))

    def test_whose_collective_is_late(self):
        self.ends("nccl/slow@0:0", "", code=0)


class Recovery(GpuTest):
    """Torch's own group: it is aborted after the fault, and one that is made anew works."""

    labels = "selftest fault multi-gpu framework"
    timeout_s = 150

    def recovers(self, rules, *told, **variables):
        done = self.struck(rules, sys.executable, Path(__file__).parent / "nccl_recovery.py",
                           timeout=120, **variables)  # fmt: skip
        self.assert_exit(done, 0)
        first, *rest = done.out.splitlines()
        for word in told:
            self.assertIn(word, first)
        self.assertEqual(rest, ["again [3.0, 3.0, 3.0, 3.0]"])

    def test_from_a_collective_that_fails(self):
        self.recovers("ncclAllReduce:error=ncclRemoteError", "DistBackendError", "ncclRemoteError")

    def test_from_an_error_that_comes_later(self):
        self.recovers("ncclAllReduce:async-error=ncclRemoteError", "DistBackendError")

    def test_from_a_collective_that_never_ends(self):
        self.recovers(None, "DistBackendError", "OpType=ALLREDUCE", "NumelIn=4", BUSY_S="8")

    def test_an_abort_that_hangs_is_ended_from_outside(self):
        mark = self.id()
        self.addCleanup(self.end, mark)
        rules = "ncclAllReduce:error=ncclRemoteError;ncclCommAbort:hang"
        job = self.start([sys.executable, Path(__file__).parent / "nccl_recovery.py"], mark,
                         **self.variables(rules))  # fmt: skip
        self.assertIn("DistBackendError", job.stdout.readline())
        self.assertTrue(wait_until(lambda: self.logged("ncclCommAbort"), 20))
        self.assertIsNone(job.poll())
        job.terminate()
        job.communicate(timeout=20)
        self.assertEqual(job.returncode, -15)
