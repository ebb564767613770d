"""Faults of CUDA and NCCL in a subject, which calls the runtime that torch has loaded; a GPU is not
needed."""

from command import REPOSITORY, checkpoint
from interposed import InterposedTest

# Without a GPU the runtime has errors of its own; only the one that is injected ends the job.
SUBJECT = """
import ctypes
import ddp

CANNOT = {"plain": "it has one way of loading", "lost_ranks": "torch does not know which"}


def run(case, observe):
    every = ctypes.CDLL(None)
    pinned = ctypes.c_void_p()
    error = every.cudaHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(4096), 0)
    if error == 2:
        raise RuntimeError(f"rank {case.rank}: cudaHostAlloc of 4096 bytes: error {error}")
    every.cudaDeviceSynchronize()
    ddp.run(case, observe)
"""


class Subjects(InterposedTest):
    labels = "selftest multi-rank fault framework"
    fixtures = "checkpoints"
    timeout_s = 120

    def verify(self, fault, code):
        subject = self.write("calls_cuda.py", SUBJECT)
        return self.judged("verify", "--subject", subject, "--checkpoint",
                           checkpoint("llama-tied-small"), "--world", 2, "--steps", 0,
                           "--inject", fault, "--no-confirm", code=code, timeout=100,
                           PYTHONPATH=str(REPOSITORY / "verify" / "subjects"))  # fmt: skip

    def fired(self, document):
        [judged] = [one for one in document["properties"] if one["id"] == "fault.every_fault_fires"]
        return judged["verdict"]

    def test_a_late_call_is_on_record_and_changes_nothing(self):
        document = self.verify("nccl/slow@what=cudaDeviceSynchronize,rank=1", code=0)
        self.assertEqual(self.fired(document), "pass")

    def test_memory_that_cannot_be_pinned_ends_the_job(self):
        document = self.verify("cuda/pinned@0:1", code=1)
        self.assertEqual(self.fired(document), "pass")
        self.assertIn("cudaHostAlloc of 4096 bytes: error 2", str(document))

    def test_a_call_that_is_never_made_is_inconclusive(self):
        self.assertEqual(self.fired(self.verify("nccl/drop@0:1", code=3)), "inconclusive")


class Refusals(InterposedTest):
    labels = "selftest framework"
    fixtures = "checkpoints"

    def refuse(self, fault, *names, subject=True):
        ddp = REPOSITORY / "verify" / "subjects" / "ddp.py"
        chosen = ["--subject", ddp] if subject else []
        self.refused("verify", *chosen, "--checkpoint", checkpoint("llama-tied-small"), "--world",
                     2, "--inject", fault, names=[fault.split("@")[0], *names])  # fmt: skip

    def test_the_reference(self):
        self.refuse("nccl/drop@0:1", "expected --subject", subject=False)

    def test_functions_that_it_cannot_strike_so(self):
        self.refuse("nccl/drop@what=ncclAllreduce", "the function 'ncclAllreduce'")
        self.refuse("nccl/drop@what=cudaMalloc", "cannot be left out")
        self.refuse("nccl/flip@what=ncclSend", "has no result")
        self.refuse("nccl/error@what=cudaMalloc", "such as cudaErrorMemoryAllocation")

    def test_places_that_a_program_has_not(self):
        self.refuse("cuda/memory@stage=saved", "stage=")
        self.refuse("cuda/memory@never", "fiu-ctrl")
        self.refuse("cuda/memory@0:2", "rank")
