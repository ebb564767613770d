"""Jobs that train, observed: what had to move and did not is named, and sound ones are not
accused."""

import os
from pathlib import Path

from command import REPOSITORY, CommandTest

# Kind, stage and a part of the name of what is found first; None: nothing. The state of an expert
# that is used for the first time in step 2 counts then.
FOUND = {
    "fsdp2 sound": None,
    "fsdp2 put_back": ("idle", "stepped@1", "first.weight"),
    "fsdp2 state": ("stuck", "stepped@3.optimizer", ".step"),
    "fsdp2 returns": ("returned", "stepped@3", ""),
    "fsdp2_sgd sound": None,
    "fsdp2_sgd put_back": ("idle", "stepped@1", "first.weight"),
    "fsdp1 sound": None,
    "fsdp1 put_back": ("idle", "stepped@1", ""),
    "fsdp1 state": ("stuck", "stepped@2.optimizer", ".step"),
    "fsdp1_original sound": None,
    "fsdp1_original put_back": ("idle", "stepped@1", "first.weight"),
    "zero sound": None,
    "zero put_back": ("idle", "stepped@1", "first.weight"),
}


class MovingTest(CommandTest):
    labels = "selftest multi-rank framework"
    timeout_s = 300

    def test_what_had_to_move_is_named(self):
        op = os.path.join(os.environ["SHARDPROOF_BUILD"], "_digest_op.so")
        done = self.run_script(
            Path(__file__).parent / "moving_jobs.py", self.dir / "evidence", timeout=280,
            PYTHONPATH=str(REPOSITORY / "verify" / "python"), SHARDPROOF_DIGEST_OP=op,
            GLOO_SOCKET_IFNAME="lo",
        )  # fmt: skip
        self.assert_exit(done, 0)
        for job, expected in FOUND.items():
            with self.subTest(job):
                done = self.shardproof("report", self.dir / "evidence" / job, "--json", "-")
                document = done.json()
                (judged,) = [
                    each for each in document["properties"] if each["id"] == "training.steps_act"
                ]
                self.assertGreater(judged["comparisons"], 0)
                if expected is None:
                    self.assertEqual(document["findings"], [])
                    self.assertEqual(judged["verdict"], "pass", judged)
                    continue
                kind, stage, name = expected
                found = [f for f in document["findings"] if f["property"] == "training.steps_act"]
                self.assertEqual((found[0]["kind"], found[0]["stage"]), (kind, stage), found[0])
                self.assertIn(name, found[0].get("tensor", ""))
                self.assertEqual({each["kind"] for each in found}, {kind}, found)
