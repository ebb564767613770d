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

from command import REPOSITORY

PACKAGE = REPOSITORY / "verify" / "python"
POSITION_MAX = 1 << 60  # PyTorch has no unsigned 64-bit arithmetic to go beyond


def byte_of(data, position, index):
    if data["kind"] == "hex":
        return bytes.fromhex(data["hex"])[index]
    if data["kind"] == "constant":
        return data["byte"]
    return ((position * 2654435761 + data["seed"]) % 2**32) // 2**24


class Digests(unittest.TestCase):
    labels = "selftest fast"
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


class Layouts(unittest.TestCase):
    labels = "selftest fast"

    def test_runs_are_what_indexing_gives(self):
        sys.path.insert(0, str(PACKAGE))
        from shardproof import _layout as layout

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
        from shardproof import _layout as layout
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


def vectors():
    import torch
    from shardproof import _digest
    from shardproof._layout import Run

    document = json.loads((REPOSITORY / "verify" / "digest" / "vectors.json").read_text())
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
