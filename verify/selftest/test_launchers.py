"""Ranks that torchrun or a person starts: the same verdict on all of them."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import uuid

from command import REPOSITORY, CommandTest, Done, checkpoint, command, processes_with


def free_port():
    """A port that nothing listens on now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class ByHand(CommandTest):
    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"

    def started(self, world, *words, drop=None):
        """Starts each rank as a process of its own; returns what became of each."""
        mark, processes = uuid.uuid4().hex, []
        port = str(free_port())
        for rank in range(world):
            variables = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                         "MASTER_PORT": port}  # fmt: skip
            variables.pop(drop, None)
            processes.append(self.start([command(), *words], mark, **variables))
        self.addCleanup(self.end, mark)
        done = []
        for process in processes:
            try:
                out, err = process.communicate(timeout=40)
            except subprocess.TimeoutExpired:
                self.end(mark)
                out, err = process.communicate()
                self.fail(f"a rank did not end\n{out}\n{err}")
            done.append(Done(process.returncode, out, err))
        self.assertEqual(processes_with(mark), [])
        return done

    def verify(self, world, *more):
        return self.started(world, "verify", "--checkpoint", checkpoint("qwen3-small"), *more)

    def assert_exits(self, done, code):
        self.assertEqual([one.code for one in done], [code] * len(done),
                         "\n".join(map(str, done)))  # fmt: skip

    def test_three_ranks_pass(self):
        done = self.verify(3)
        self.assert_exits(done, 0)
        self.assertIn("pass:", done[0].out)
        self.assertEqual([one.out for one in done[1:]], ["", ""])

    def test_one_rank_passes(self):
        self.assert_exits(self.verify(1), 0)

    def test_a_fault_fails_on_every_rank(self):
        done = self.verify(3, "--inject", "file/flip@model.norm.weight:3")
        self.assert_exits(done, 1)
        self.assertIn("FAIL loading.equals_source", done[0].out)

    def test_more_ranks_than_were_started_are_refused(self):
        done = self.verify(2, "--world", "3")
        self.assert_exits(done, 2)
        self.assertIn(
            "--world: expected at most the 2 ranks that were started (WORLD_SIZE), found 3",
            done[0].err,
        )

    def test_a_case_for_more_ranks_than_were_started_is_never_a_pass(self):
        done = self.started(
            2, "verify", "--case", REPOSITORY / "fixtures" / "cases" / "everything.json"
        )
        self.assert_exits(done, 77)
        self.assertRegex(done[0].out, r"needs \d+ ranks and 2 were started")

    def test_bad_input_is_refused_on_every_rank(self):
        self.assert_exits(self.started(2, "verify", "--checkpoint", "not-there"), 2)

    def test_a_variable_that_is_missing_is_named(self):
        for variable in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            with self.subTest(variable):
                done = self.started(1, "verify", "--checkpoint", checkpoint("qwen3-small"),
                                    drop=variable)  # fmt: skip
                self.assert_exits(done, 2)
                self.assertIn(variable, done[0].err)
                self.assertEqual(len(done[0].err.splitlines()), 1)

    def test_a_variable_that_is_wrong_is_named(self):
        right = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        wrong = {"RANK": "1", "WORLD_SIZE": "0", "MASTER_PORT": "99999"}
        for variable, value in wrong.items():
            with self.subTest(variable):
                self.refused("verify", "--checkpoint", checkpoint("qwen3-small"), names=[variable],
                             **{**right, variable: value})  # fmt: skip


class UnderTorchrun(CommandTest):
    def torchrun(self, *words):
        return self.run_process(
            sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", 3,
            "--master-port", free_port(), command(), "verify", "--checkpoint",
            checkpoint("llama-tied-small"), *words, timeout=120)  # fmt: skip


class Torchrun(UnderTorchrun):
    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 150

    def test_torchrun_passes(self):
        done = self.torchrun("--report", "out")
        self.assert_exit(done, 0)
        self.assertIn("pass:", done.out)
        self.assertTrue(os.path.exists(self.dir / "out" / "report.html"))

    def test_torchrun_with_a_fault_fails(self):
        done = self.torchrun("--inject", "comm/swap-rows@model.embed_tokens.weight",
                             "--json", "result.json")  # fmt: skip
        self.assert_exit(done, 1)
        self.assertRegex(done.err, r"exitcode\s*: 1 ")
        document = json.loads((self.dir / "result.json").read_text(encoding="utf-8"))
        failed = {one["property"] for one in document["findings"]}
        self.assertLessEqual({"loading.equals_source", "sharding.ranks_match_rank0"}, failed)


class TorchrunOfAStoppedRank(UnderTorchrun):
    labels = "selftest multi-rank nightly"
    fixtures = "checkpoints"
    timeout_s = 150

    def test_a_stopped_rank_is_named_and_not_waited_for_twice(self):
        # Nobody here can end it: torchrun does, half a minute after the others.
        began = time.monotonic()
        done = self.torchrun("--stop", "1@ready", "--deadline", 4)
        self.assertNotEqual(done.code, 0)
        self.assertEqual(len(re.findall(r"^rank [02]: lost rank 1 \(its process \d+ is stopped\)",
                                        done.err, re.MULTILINE)), 2, done)  # fmt: skip
        self.assertNotIn("connecting the ranks", done.err)
        self.assertLess(time.monotonic() - began, 60)
