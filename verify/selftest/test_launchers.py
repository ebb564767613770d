"""Ranks that torchrun or a person starts: the same verdict on all of them."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import uuid

from command import (
    REPOSITORY,
    WARM_PYTHON,
    CommandTest,
    Done,
    checkpoint,
    command,
    processes_with,
)


def free_port():
    """A port that nothing listens on now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class ByHand(CommandTest):
    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"

    patience_s = 40

    def announced(self, rank, world):
        """The variables by which a launcher tells a rank which it is."""
        return {"RANK": str(rank), "WORLD_SIZE": str(world)}

    def on_host(self, rank, words):
        """The words that run the command where this rank is."""
        return words

    def started(self, world, *words, drop=None, come=None):
        """Starts each rank, or only as many as `come`, as a process of its own; returns what became
        of each."""
        mark, processes = uuid.uuid4().hex, []
        port = str(free_port())
        for rank in range(world if come is None else come):
            variables = {**self.announced(rank, world), "MASTER_ADDR": "127.0.0.1",
                         "MASTER_PORT": port}  # fmt: skip
            variables.pop(drop, None)
            command_words = self.on_host(rank, [command(), *words])
            processes.append(self.start(command_words, mark, **variables))
        self.addCleanup(self.end, mark)
        done = []
        for process in processes:
            try:
                out, err = process.communicate(timeout=self.patience_s)
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


SUBJECTS = REPOSITORY / "verify" / "subjects"
MISTAKEN = REPOSITORY / "fixtures" / "subjects"
LONG_S = 150  # a deadline that a loaded machine meets


class SubjectByHand(ByHand):
    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 200
    patience_s = 170

    python = ("--python", WARM_PYTHON)

    def subject(self, world, path, *more, **how):
        return self.started(world, "verify", "--subject", path, "--checkpoint",
                            checkpoint("llama-tied-small"), "--steps", "0", *self.python, *more,
                            **how)  # fmt: skip

    def start(self, words, mark, **variables):
        # What mistaken ones import lies there.
        return super().start(words, mark, PYTHONPATH=str(SUBJECTS), **variables)

    def evidence_of(self, rank, phase="values"):
        lines = (self.dir / "out" / "evidence" / phase / f"rank_{rank}.measures.jsonl").read_text()
        return json.loads(lines.splitlines()[0])

    def test_ranks_of_a_subject_pass_and_resume_on_fewer(self):
        done = self.subject(2, SUBJECTS / "fsdp2.py", "--report", "out", "--no-confirm",
                            "--deadline", LONG_S)  # fmt: skip
        self.assert_exits(done, 0)
        self.assertIn("pass:", done[0].out)
        self.assertRegex(done[0].out, r"held +\d+ tensors on the mesh dp_shard 2")
        self.assertEqual(done[1].out, "")
        result = json.loads((self.dir / "out" / "result.json").read_text())
        self.assertIn("resume", result["compared"]["phases"])
        self.assertEqual(result["compared"]["ranks"], 2)
        self.assertNotEqual(self.evidence_of(0)["pid"], self.evidence_of(1)["pid"])
        self.assertEqual(self.evidence_of(1)["host"], socket.gethostname())
        order = json.loads((self.dir / "out" / "evidence" / "values" / "order.json").read_text())
        self.assertEqual(order["store_prefix"], "shardproof/0/phase/1")

    def test_a_mistake_is_confirmed_and_fails_on_every_rank(self):
        done = self.subject(2, MISTAKEN / "shards_swapped.py", "--property",
                            "loading.equals_source")  # fmt: skip
        self.assert_exits(done, 1)
        self.assertIn("FAIL loading.equals_source", done[0].out)
        self.assertRegex(
            done[0].out, r"held by +rank 0 at dp_shard 0 of mesh dp_shard 2; ranks 0, 1"
        )

    def test_the_end_of_a_rank_is_told(self):
        done = self.subject(2, MISTAKEN / "dies.py", "--property", "fault.every_rank_finishes",
                            "--deadline", 20, "--no-confirm", "--json", "out.json")  # fmt: skip
        self.assert_exits(done, done[0].code)
        self.assertIn(done[0].code, (1, 4))
        finding = json.loads((self.dir / "out.json").read_text())["findings"][0]
        self.assertIn("signal 9", finding["message"])

    def test_a_rank_that_never_comes_is_told(self):
        began = time.monotonic()
        (done,) = self.subject(2, SUBJECTS / "fsdp2.py", "--property", "fault.every_rank_finishes",
                               "--deadline", 8, "--no-confirm", "--json", "out.json",
                               come=1)  # fmt: skip
        self.assertIn(done.code, (1, 4))
        self.assertLess(time.monotonic() - began, 90)
        findings = json.loads((self.dir / "out.json").read_text())["findings"]
        told = " ".join(finding["message"] for finding in findings)
        self.assertIn("nor say that it began", told)
        self.assertIn([1], [finding["ranks"] for finding in findings])

    def test_cases_that_are_drawn_or_shrunk_are_refused(self):
        variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": "29500"}  # fmt: skip
        subject = ("--subject", SUBJECTS / "fsdp2.py")
        for words in (("verify", "--generate", 1, *subject), ("verify", "--bugs", "all"),
                      ("verify", "--minutes", 1),
                      ("shrink", REPOSITORY / "fixtures" / "cases" / "smoke.json")):  # fmt: skip
            with self.subTest(words):
                self.refused(*words, names=["RANK is set", "itself starts"], **variables)


class SubjectBySlurm(SubjectByHand):
    """srun tells each task its place; who uses several says MASTER_ADDR and MASTER_PORT."""

    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 200

    def announced(self, rank, world):
        return {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(world),
                "SLURM_NTASKS": str(world), "SLURM_LOCALID": "0"}  # fmt: skip

    def test_tasks_of_srun_are_the_ranks_of_a_subject(self):
        self.write("says.py", SAYS_ITS_PLACE)
        done = self.subject(2, self.dir / "says.py", "--report", "out", "--deadline", LONG_S,
                            "--property", "loading.equals_source")  # fmt: skip
        self.assert_exits(done, 0)
        said = [(self.dir / "out" / "evidence" / "values" / f"rank_{rank}.stdout").read_text()
                for rank in (0, 1)]  # fmt: skip
        self.assertEqual(said, ["0 of 2, local 0\n", "1 of 2, local 0\n"])

    def test_a_task_that_is_not_announced_well_is_refused(self):
        done = self.subject(1, SUBJECTS / "fsdp2.py", drop="MASTER_PORT")
        self.assert_exits(done, 2)
        self.assertIn("SLURM_PROCID is set but MASTER_PORT is not", done[0].err)


SAYS_ITS_PLACE = """
import os
CANNOT = {"save": "no", "train": "no", "plain": "no", "host_bound": "no", "keys": "no"}

def run(case, observe):
    print(f"{os.environ['RANK']} of {os.environ['WORLD_SIZE']}, local {os.environ['LOCAL_RANK']}")
    model = case.build("cpu")
    observe("built", model=model, content="undefined")
    model.load_state_dict(case.state_dict(), strict=False)
    observe("ready", model=model)
"""


class SubjectOnTwoHosts(SubjectByHand):
    """Rank 1 is in namespaces of its own: another name of the host, and, if asked, another disk."""

    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 200
    own_disk = None
    python = ()  # the one that stands is in no namespace of a rank

    def on_host(self, rank, words):
        if rank == 0:
            return words
        script = "hostname node-b && " + (
            f"mount -t tmpfs none {self.own_disk} && " if self.own_disk else ""
        )
        return ["unshare", "--uts", "--mount", "sh", "-c", script + 'exec "$@"', "sh", *words]

    def setUp(self):
        super().setUp()
        words = ["unshare", "--uts", "--mount", "true"]
        if subprocess.run(words, capture_output=True).returncode:
            self.skipTest("namespaces of another host's name and disk cannot be made here")

    def test_hosts_are_told_by_rank(self):
        done = self.subject(2, SUBJECTS / "fsdp2.py", "--report", "out", "--property",
                            "loading.equals_source")  # fmt: skip
        self.assert_exits(done, 0)
        result = json.loads((self.dir / "out" / "result.json").read_text())
        self.assertEqual(result["compared"]["hosts"], 2)
        self.assertEqual(self.evidence_of(1)["host"], "node-b")


class SubjectOnTwoDisks(SubjectOnTwoHosts):
    labels = "selftest multi-rank framework nightly"
    fixtures = "checkpoints"
    timeout_s = 200

    def test_a_host_that_does_not_share_the_folder_is_named(self):
        (self.dir / "out").mkdir()
        self.own_disk = self.dir / "out"
        done = self.subject(2, SUBJECTS / "fsdp2.py", "--report", "out", "--property",
                            "fault.every_rank_finishes", "--deadline", 10,
                            "--no-confirm")  # fmt: skip
        self.assert_exits(done, done[0].code)
        self.assertEqual(done[0].code, 1)
        result = json.loads((self.dir / "out" / "result.json").read_text())
        told = " ".join(finding["message"] for finding in result["findings"])
        self.assertIn("host node-b has no directory", told)
        self.assertIn("a disk that all hosts share", told)


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


class TorchrunOfASubject(SubjectByHand):
    """Two agents, as of two nodes, each with one rank."""

    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 240
    patience_s = 200
    python = ()

    def announced(self, rank, world):
        return {}

    def on_host(self, rank, words):
        return [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nnodes", "2",
                "--node-rank", str(rank), "--nproc-per-node", "1", "--master-addr", "127.0.0.1",
                "--master-port", self.port, *words]  # fmt: skip

    def setUp(self):
        super().setUp()
        self.port = str(free_port())

    def test_two_agents_of_torchrun_run_a_subject(self):
        done = self.subject(2, SUBJECTS / "fsdp2.py", "--report", "out")
        self.assert_exits(done, 0)
        self.assertIn("pass:", done[0].out)
        self.assertNotIn("pass:", done[1].out)
        self.assertTrue((self.dir / "out" / "report.html").exists())


class TorchrunOfAMistake(TorchrunOfASubject):
    labels = "selftest multi-rank framework nightly"
    fixtures = "checkpoints"
    timeout_s = 240

    def test_a_mistaken_subject_fails_under_both_agents(self):
        done = self.subject(2, MISTAKEN / "tie_broken.py", "--property", "loading.ties_kept",
                            "--no-confirm")  # fmt: skip
        self.assert_exits(done, 1)
        self.assertIn("FAIL loading.ties_kept", done[0].out)
        for one in done:
            self.assertRegex(one.err, r"exitcode\s*: 1 ")


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
