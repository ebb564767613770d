"""The same case gives the same facts, byte for byte, and the same verdict."""

import json
from pathlib import Path

from command import REPOSITORY, CommandTest, checkpoint

EVERYTHING = REPOSITORY / "fixtures" / "cases" / "everything.json"


def facts_of(report):
    """{stream: its bytes}."""
    root = Path(report) / "evidence"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.glob("*/*.facts.jsonl")}


class Replay(CommandTest):
    labels = "selftest multi-rank"
    fixtures = "checkpoints"
    timeout_s = 120

    def assert_same_facts(self, one, other):
        expected, seen = facts_of(self.dir / one), facts_of(self.dir / other)
        self.assertGreater(len(expected), 0)
        self.assertEqual(sorted(expected), sorted(seen))
        for stream, content in expected.items():
            self.assertEqual(content, seen[stream], f"{stream} differs")

    def test_two_replays_of_a_case_give_the_same_facts(self):
        for report in ("one", "two"):
            self.assert_exit(self.shardproof("replay", EVERYTHING, "--report", report), 0)
        self.assert_same_facts("one", "two")

    def test_replay_of_a_report_gives_its_facts(self):
        first = self.shardproof("verify", "--checkpoint", checkpoint("llama-tied-small"),
                                "--world", 3, "--report", "one")  # fmt: skip
        self.assert_exit(first, 0)
        self.assert_exit(self.shardproof("replay", "one", "--report", "two"), 0)
        self.assert_same_facts("one", "two")
        self.assert_exit(self.shardproof("replay", "one/evidence"), 0)

    def test_replay_of_a_failure_fails_the_same_way(self):
        first = self.shardproof("verify", "--checkpoint", checkpoint("llama-tied-small"), "--world",
                                2, "--inject", "file/flip@model.norm.weight:3", "--report",
                                "one")  # fmt: skip
        self.assert_exit(first, 1)
        again = self.judged("replay", "one", code=1)
        before = json.loads((self.dir / "one" / "result.json").read_text())
        prints = [{one["fingerprint"] for one in run["findings"]} for run in (before, again)]
        self.assertEqual(*prints)

    def test_the_seed_changes_values_and_no_verdict(self):
        for seed in (1, 2):
            words = ["verify", "--case", EVERYTHING, "--seed", seed, "--report", str(seed)]
            self.assert_exit(self.shardproof(*words), 0)
        self.assertNotEqual(facts_of(self.dir / "1"), facts_of(self.dir / "2"))

    def test_replay_of_nothing_is_bad_input(self):
        self.refused("replay", "not-there.json", names=["not-there.json"])
        (self.dir / "empty").mkdir()
        self.refused("replay", "empty", names=["empty", "run.json"])
        self.write("bad/run.json", "[1, 2")
        self.refused("replay", "bad", names=["bad/run.json"])
