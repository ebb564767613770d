"""What is to be told of jobs that ranked_jobs.run runs: sound ones, and those with mistakes."""

import json
import os
import sys
from pathlib import Path

from command import REPOSITORY, CommandTest

HERE = Path(__file__).parent
OFTEN = ("--at", "ready,every=1")


def is_sound(job):
    return job.endswith(" sound")


class JobsTest(CommandTest):
    """script: the jobs; says: by job, what check is to say of it; finds: what `report` finds of its
    evidence, tensor and ranks, if that is not what check says. package: whose environment the
    script needs, if it needs one."""

    script, says, finds, package = "", {}, {}, None
    seconds = 280

    def said(self, *words, attached=(), **variables):
        """attached: the words by which the script is run so. variables: of its environment."""
        op = os.path.join(os.environ["SHARDPROOF_BUILD"], "_digest_op.so")
        named = dict(
            timeout=self.seconds, PYTHONPATH=str(REPOSITORY / "verify" / "python"),
            SHARDPROOF_DIGEST_OP=op, GLOO_SOCKET_IFNAME="lo",
            TORCHINDUCTOR_CACHE_DIR=str(self.root / "inductor"), **variables,
        )  # fmt: skip
        if self.package is None and not attached:
            done = self.run_script(HERE / self.script, *words, **named)
        elif self.package is None:
            done = self.run_process(sys.executable, *attached, HERE / self.script, *words, **named)
        else:
            python = self.python_of(self.package)
            named.update(TORCHDYNAMO_DISABLE="1")  # what it would compile takes minutes
            done = self.run_process(python, *attached, HERE / self.script, *words, **named)
        self.assert_exit(done, 0)
        found = json.loads(done.out.splitlines()[-1])  # frameworks print, too
        self.assertEqual(list(found), [job for job in self.says if not variables or is_sound(job)])
        return found

    def told_right(self, *words):
        found = self.said(*words)
        for job, expected in self.says.items():
            with self.subTest(job):
                if expected.startswith("sound"):
                    self.assertEqual(found[job], expected)
                else:
                    self.assertIn(expected, found[job])
                    first = found[job].removeprefix("shardproof.check: ").split(" on rank")[0]
                    self.assertTrue(expected.startswith(first) or "Error" in expected, found[job])

    def found_attached(self, jobs):
        """Of a job that nobody edited the report finds what check does, in those named; and nothing
        in a sound one."""
        said = self.said(self.dir / "evidence", attached=("-m", "shardproof.run", *OFTEN))
        for job, expected in self.says.items():
            tensor_and_ranks = self.finds.get(job, self.tensor_and_ranks(expected))
            with self.subTest(job):
                self.assertEqual(said[job], "attached")
                reports = sorted((self.dir / "evidence" / job).glob("**/run.json"))
                if job.split()[0] in jobs:
                    self.assertTrue(reports, "it was not observed")
                findings = [
                    finding for report in reports for finding in self.found_in(report.parent)
                ]
                if is_sound(job):
                    self.assertEqual(findings, [])
                elif job.split()[0] in jobs:
                    seen = [(each.get("tensor"), each["ranks"]) for each in findings]
                    self.assertIn(tensor_and_ranks, seen)

    def same_as_alone(self):
        """Attached, each sound job comes to the losses, weights, optimizer state, random numbers
        and collectives to which it comes alone, bit for bit."""
        came = {}
        for how, attached in (("alone", ()), ("attached", ("-m", "shardproof.run"))):
            folder = self.dir / how
            folder.mkdir()
            said = self.said(
                self.dir / f"evidence of {how}", attached=attached and (*attached, *OFTEN),
                SHARDPROOF_SELFTEST_CAME_TO=str(folder),
            )  # fmt: skip
            self.assertEqual(set(said.values()), {"came to"}, said)
            came[how] = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
        self.assertEqual(came["attached"], came["alone"])
        for name, rank in came["alone"].items():
            with self.subTest(name):
                self.assertTrue(rank["sums"] and any(rank["collectives"]), rank)
        for job in filter(is_sound, self.says):
            with self.subTest(job):
                name = job.removesuffix(" sound")
                ranks = [
                    rank for file, rank in came["alone"].items() if file.startswith(name + " ")
                ]
                self.assertTrue(any(rank["losses"] for rank in ranks), "no stage has a loss")
                evidence = self.dir / "evidence of attached" / job
                self.assertTrue(list(evidence.glob("**/run.json")), "it was not observed")

    def found_in(self, evidence):
        done = self.shardproof("report", evidence, "--json", "-")
        return done.json()["findings"]

    def found_in_evidence(self, *words, without=()):
        """words: before the directory of the evidence. without: jobs that leave none."""
        said = self.said(*words, self.dir / "evidence")
        for job, expected in self.says.items():
            tensor_and_ranks = self.finds.get(job, self.tensor_and_ranks(expected))
            with self.subTest(job):
                if job in without:
                    continue
                self.assertEqual(said[job], "observed")
                done = self.shardproof("report", self.dir / "evidence" / job, "--json", "-")
                findings = done.json()["findings"]
                if tensor_and_ranks is None:
                    self.assertEqual(findings, [])
                    continue
                self.assert_exit(done, 1)
                seen = [(finding.get("tensor"), finding["ranks"]) for finding in findings]
                self.assertIn(tensor_and_ranks, seen)

    def tensor_and_ranks(self, words):
        """Of what check says: "layer0 on ranks 2, 3: the name ..."."""
        tensor, on, rest = words.partition(" on rank")
        if not on:
            return None
        ranks = [int(rank) for rank in rest.partition(":")[0].strip("s").split(",")]
        return tensor.removeprefix("optimizer."), ranks
