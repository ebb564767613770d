"""Faults of CUDA and NCCL in a subject: one on the doubles, where there is no GPU."""

from command import REPOSITORY, checkpoint
from interposed import DOUBLES, InterposedTest

# What it loads, with the real ones it would have by torch.
SUBJECT = """
import ctypes, glob, os
import ddp

for name in ("libcudart.so.*", "libnccl.so.2"):
    ctypes.CDLL(glob.glob(os.path.join({doubles!r}, name))[0], mode=os.RTLD_GLOBAL)
CANNOT = ddp.CANNOT


def run(case, observe):
    every = ctypes.CDLL(None)
    pinned = ctypes.c_void_p()
    error = every.cudaHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(4096), 0)
    if error:
        raise RuntimeError(f"rank {{case.rank}}: cudaHostAlloc of 4096 bytes: error {{error}}")
    every.cudaDeviceSynchronize()
    ddp.run(case, observe)
"""


class Subjects(InterposedTest):
    labels = "selftest multi-rank fault"
    fixtures = "checkpoints"
    timeout_s = 120

    def verify(self, fault, code):
        subject = self.write("on_doubles.py", SUBJECT.format(doubles=str(DOUBLES)))
        return self.judged("verify", "--subject", subject, "--checkpoint",
                           checkpoint("llama-tied-small"), "--world", 2, "--inject", fault,
                           code=code, timeout=100)  # fmt: skip

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
    labels = "selftest fast"
    fixtures = "checkpoints"

    def refuse(self, fault, *names, subject=True):
        ddp = REPOSITORY / "verify" / "subjects" / "ddp.py"
        chosen = ["--subject", ddp] if subject else []
        self.refused("verify", *chosen, "--checkpoint", checkpoint("llama-tied-small"), "--world", 2,
                     "--inject", fault, names=[fault.split("@")[0], *names])  # fmt: skip

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
