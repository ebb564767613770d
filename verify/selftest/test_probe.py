"""The Python package by itself: digests against the specification's vectors, layouts against brute
force, what a subject's file may declare. Each digest test runs with the built op and without it.
"""

import itertools
import json
import os
import random
import subprocess
import sys
import unittest
from pathlib import Path

from command import REPOSITORY, CommandTest, checkpoint

PACKAGE = REPOSITORY / "verify" / "python"
POSITION_MAX = 1 << 60  # PyTorch has no unsigned 64-bit arithmetic to go beyond


class Digests(unittest.TestCase):
    labels = "selftest framework"
    timeout_s = 120

    def judge(self, **environment):
        """Runs `vectors` below in a process of its own: the op is loaded once a process."""
        done = subprocess.run(
            [sys.executable, __file__, "vectors"],
            env={**os.environ, **environment, "PYTHONPATH": str(PACKAGE)},
            capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_built_op_gives_the_vectors(self):
        op = os.path.join(os.environ["SHARDPROOF_BUILD"], "_digest_op.so")
        judged = self.judge(SHARDPROOF_DIGEST_OP=op)
        self.assertTrue(judged["op"])
        self.assertGreater(judged["digests"], 20)
        self.assertGreater(judged["coverages"], 20)

    def test_plain_pytorch_gives_the_vectors(self):
        judged = self.judge(SHARDPROOF_NO_DIGEST_OP="1")
        self.assertFalse(judged["op"])
        self.assertGreater(judged["digests"], 20)
        self.assertGreater(judged["coverages"], 20)


class OddTensors(CommandTest):
    """Kinds of tensor that are not simply floats in memory."""

    labels = "selftest framework"

    def test_what_cannot_be_read_is_named(self):
        done = self.run_process(sys.executable, "-W", "ignore", "-c", UNREADABLE,
                                PYTHONPATH=str(PACKAGE))  # fmt: skip
        self.assert_exit(done, 0)
        self.assertEqual(json.loads(done.out), [
            "conjugate (a conjugate or negative view)", "freed (its memory was freed)",
            "lazy (a lazy tensor that has no shape yet)", "nested (a nested tensor)",
            "quantised (torch.qint8 tensor)", "sparse (torch.sparse_coo tensor)",
        ])  # fmt: skip

    def test_non_finite_values_of_every_dtype_are_seen(self):
        op = os.path.join(os.environ["SHARDPROOF_BUILD"], "_digest_op.so")
        for way in ({"SHARDPROOF_DIGEST_OP": op}, {"SHARDPROOF_NO_DIGEST_OP": "1"}):
            with self.subTest(way):
                done = self.run_process(sys.executable, "-W", "ignore", "-c", NON_FINITE,
                                        PYTHONPATH=str(PACKAGE), **way)  # fmt: skip
                self.assert_exit(done, 0)
                self.assertEqual(int(done.out), 14)


class Models(CommandTest):
    """What a job has in hand beside plain modules and optimizers."""

    labels = "selftest framework"
    fixtures = "checkpoints"

    def test_ties_of_a_hugging_face_model_are_those_of_its_class(self):
        for name, ties in (("llama-tied-small", [["model.embed_tokens.weight", "lm_head.weight"]]),
                           ("qwen3-small", [])):  # fmt: skip
            done = self.run_process(sys.executable, "-c", TIES, checkpoint(name),
                                    PYTHONPATH=str(PACKAGE))  # fmt: skip
            self.assert_exit(done, 0)
            self.assertEqual(json.loads(done.out), ties)

    def test_state_of_a_wrapped_optimizer_is_found(self):
        done = self.run_process(sys.executable, "-W", "ignore", "-c", WRAPPED_OPTIMIZER,
                                PYTHONPATH=str(PACKAGE))  # fmt: skip
        self.assert_exit(done, 0)
        self.assertEqual(done.out.split(), ["weight.exp_avg", "weight.exp_avg_sq", "weight.step"])


TIES = """
import json, sys
from shardproof.case import Case
case = Case(rank=0, world_size=1, checkpoint=sys.argv[1], save_to="", mesh={"dp_shard": 1},
            phase="values", strategy="plain", seed=0, saves=False, resumes=False)
print(json.dumps(case.ties))
"""

WRAPPED_OPTIMIZER = """
import torch, torch.distributed as dist
from shardproof._holdings import _model, _optimizer
from torch.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(3, 2, bias=False)
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
model(torch.ones(3)).sum().backward()
optimizer.step()
print(*[held.name for held in _optimizer.optimizer_tensors(_model.read(model), optimizer, 0)])
del optimizer  # it holds the group, whose threads would run on into the interpreter's end
dist.destroy_process_group()
"""

UNREADABLE = """
import json, shardproof, torch
from torch import nn
freed = torch.ones(8)
freed.untyped_storage().resize_(0)
model = nn.Module()
model.freed = nn.Buffer(freed)
model.lazy = nn.parameter.UninitializedParameter()
model.nested = nn.Buffer(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
model.quantised = nn.Buffer(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))
model.sparse = nn.Buffer(torch.eye(3).to_sparse())
model.conjugate = nn.Buffer(torch.ones(3, dtype=torch.complex64).conj())
print(json.dumps(sorted(shardproof.check(model).inconclusive)))
"""

# One NaN or Inf behind a finite value, dtype by dtype; and the same without it.
NON_FINITE = """
import shardproof, torch
from torch import nn
nan, inf = float("nan"), float("inf")
made = [torch.tensor([1, value], dtype=dtype)
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        for value in (nan, inf)]
made += [torch.tensor([1, complex(0, nan)], dtype=torch.complex64),
         torch.tensor([1, complex(inf, 0)], dtype=torch.complex128)]
made += [torch.tensor([1, bits], dtype=torch.uint8).view(dtype) for dtype, bits in (
    (torch.float8_e4m3fn, 0x7F), (torch.float8_e5m2, 0x7C), (torch.float8_e4m3fnuz, 0x80),
    (torch.float8_e8m0fnu, 0xFF))]
seen = 0
for tensor in made:
    model = nn.Module()
    model.finite = nn.Buffer(tensor[:1].clone())
    assert shardproof.check(model).inconclusive == ()
    model.odd = nn.Buffer(tensor)
    try:
        shardproof.check(model)
    except shardproof.Mismatch as mismatch:
        seen += "odd on rank 0: " in str(mismatch) and "the first at element 1" in str(mismatch)
print(seen)
"""


class Layouts(unittest.TestCase):
    labels = "selftest framework"

    def test_runs_are_what_indexing_gives(self):
        sys.path.insert(0, str(PACKAGE))
        from shardproof._holdings import _layout as layout

        draw = random.Random(1)
        elements = 0
        for _ in range(5000):
            shape = [draw.choice([0, 1, 2, 3, 4, 5, 7]) for _ in range(draw.randint(0, 4))]
            mesh = [draw.choice([1, 2, 3, 4]) for _ in range(draw.randint(0, 3))]
            coordinates = [draw.randrange(size) for size in mesh]
            placements = [
                layout.Placement(draw.choice(["replicate", "shard", "strided_shard"]),
                                 draw.randrange(len(shape)), draw.choice([2, 3]))
                if shape else layout.Placement("replicate")
                for _ in mesh
            ]  # fmt: skip
            owned = layout.owned_indices(shape, placements, mesh, coordinates)
            expected = []
            for indices in itertools.product(
                *([i for low, high in dim for i in range(low, high)] for dim in owned)
            ):
                position = 0
                for size, index in zip(shape, indices, strict=True):
                    position = position * size + index
                expected.append(position)
            seen = [None] * len(expected)
            for run in layout.runs_of(shape, owned):
                for i, k in itertools.product(range(run.count), range(run.length)):
                    seen[run.local_start + i * run.local_stride + k] = (
                        run.start + i * run.stride + k
                    )
            self.assertEqual(seen, expected, (shape, placements, mesh, coordinates))
            elements += len(seen)
        self.assertGreater(elements, 10000)

    def test_shards_are_what_dtensor_gives(self):
        """Every rank's shard, cut by DTensor's own functions from a tensor of element numbers."""
        sys.path.insert(0, str(PACKAGE))
        import torch
        from shardproof._holdings import _layout as layout
        from torch.distributed.tensor import Shard
        from torch.distributed.tensor.placement_types import _StridedShard

        compared = 0
        for rows, parts, split in itertools.product((1, 5, 8, 12, 13), (1, 2, 3, 4), (1, 2, 3)):
            whole = torch.arange(rows * 3).view(rows, 3)
            kinds = [("shard", Shard(0))]
            if split > 1:
                kinds.append(("strided_shard", _StridedShard(0, split_factor=split)))
            for kind, placement in kinds:
                pieces, _ = placement._split_tensor(whole, parts, with_padding=False)
                for rank, piece in enumerate(pieces):
                    runs = layout.local_runs(
                        [rows, 3], [layout.Placement(kind, 0, split)], [parts], [rank]
                    )
                    seen = [run.start + k for run in runs for k in range(run.length)]
                    self.assertEqual(seen, piece.reshape(-1).tolist(), (rows, parts, split, rank))
                    compared += 1
        self.assertGreater(compared, 200)


class Checks(CommandTest):
    """shardproof.check in jobs that torchrun starts."""

    labels = "selftest multi-rank framework"
    timeout_s = 300

    def torchrun(self, ranks, script, **variables):
        op = os.path.join(os.environ["SHARDPROOF_BUILD"], "_digest_op.so")
        done = self.run_process(
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", ranks, script,
            timeout=150, PYTHONPATH=str(PACKAGE), SHARDPROOF_DIGEST_OP=op,
            GLOO_SOCKET_IFNAME="lo", TORCHINDUCTOR_CACHE_DIR=str(self.dir / "inductor"),
            **variables,
        )  # fmt: skip
        self.assert_exit(done, 0)
        return done.out

    def found(self, ranks):
        return json.loads(self.torchrun(ranks, Path(__file__).parent / "probe_job.py"))

    def test_mistakes_are_named_by_rank_tensor_and_index(self):
        found = self.found(4)
        says = {
            "plain": "ok",
            "plain_one_element": "0.weight on rank 1: element 104 is 0x",
            "large_one_element": f"weight on rank 1: element {700 * 4096 + 77} is 0x",
            "one_element_under_meta": f"weight on rank 1: element {700 * 4096 + 77} is 0x",
            "buffer_of_one_rank": "1.running_mean on rank 1: element 4 is 0x40000000",
            "no_bias_on_one_rank": "0.bias on rank 1: there is no such tensor",
            "bf16_on_one_rank": "0.bias on rank 1: it is a parameter torch.bfloat16 [65]",
            "meta_on_one_rank": "2.bias on rank 1: it is still on the meta device",
            "tied_on_one_rank": "1.weight on rank 1: it shares memory with 0.weight",
            "fsdp2": "ok",
            "fsdp2_nan": "2.weight on rank 1: 1 NaN and 0 Inf, the first at element 130",
            "fsdp2_stale_moment": "optimizer.0.weight.exp_avg on rank 3: element",
            "fsdp2_shards_of_another_size": "0.weight on rank 1: its placement gives this "
            "rank 561 elements",
            "hsdp_replicas_differ": "0.weight on rank 3: element",
            "fsdp1": "ok",
            "subclass": "Quantised)",
            "absent_rank": "not every rank called check in time",
        }
        for scenario, words in says.items():
            with self.subTest(scenario):
                self.assertIn(words, found[scenario])
                if words == "ok":
                    self.assertEqual(found[scenario], "ok")
        self.assertEqual(set(found), set(says))

    def test_a_sound_job_on_two_ranks_passes(self):
        found = self.found(2)
        for scenario in ("plain", "fsdp2", "fsdp1"):
            self.assertEqual(found[scenario], "ok")

    def test_no_thread_of_a_check_outlives_the_process_group(self):
        found = json.loads(self.torchrun(2, Path(__file__).parent / "probe_threads.py"))
        self.assertGreater(len(found["checked"]), len(found["before"]))
        self.assertEqual(found["destroyed"], [])


class Examples(Checks):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 300

    def test_examples_run(self):
        for name in ("fsdp2_train", "dcp_resume", "fsdp1_train"):
            with self.subTest(name):
                out = self.torchrun(2, REPOSITORY / "fixtures" / "examples" / f"{name}.py")
                self.assertIn("comparisons=", out)


def vectors():
    sys.path.insert(0, str(REPOSITORY / "src" / "digest"))
    import torch
    from make_vectors import byte_of
    from shardproof._digests import _digest
    from shardproof._holdings._layout import Run

    document = json.loads((REPOSITORY / "src" / "digest" / "vectors.json").read_text())
    judged = {"op": _digest.has_op(), "digests": 0, "coverages": 0}
    for vector in document["vectors"]:
        runs, local, end = [], 0, 0
        for run in vector["runs"]:
            runs.append(Run(run["global_start"], run["length"], run["count"],
                            run["global_stride"], local, run["length"]))  # fmt: skip
            local += run["length"] * run["count"]
            end = max(end, run["global_start"] + (run["count"] - 1) * run["global_stride"])
        if end > POSITION_MAX:
            continue
        if "coverage" in vector:
            found = _digest.hex_of(_digest.coverage(runs, 1))
            assert found == vector["coverage"], (vector["name"], found)
            judged["coverages"] += 1
        if "digest" in vector and local < 1 << 22:
            index = itertools.count()
            data = bytes(
                byte_of(vector["data"], run.start + i * run.stride + k, next(index))
                for run in runs
                for i in range(run.count)
                for k in range(run.length)
            )
            memory = torch.tensor(list(data), dtype=torch.uint8)
            found = _digest.digest_runs(memory, runs).hex()
            assert found == vector["digest"], (vector["name"], found)
            judged["digests"] += 1
    print(json.dumps(judged))


if __name__ == "__main__":
    vectors()
