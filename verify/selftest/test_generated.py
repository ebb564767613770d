"""Generated cases: what a stream of them says, that it ends, goes on and can be had again."""

import json
import signal
import subprocess
import time
from pathlib import Path

from command import REPOSITORY, CommandTest, command


def outcome_of(path):
    """What a soak's document says but for times."""
    document = json.loads(Path(path).read_text())
    document["summary"].pop("duration_ms")
    return document


class Stream(CommandTest):
    labels = "selftest multi-rank fast"
    timeout_s = 120

    def generate(self, *words, code=0):
        done = self.shardproof("verify", *words)
        self.assert_exit(done, code)
        return done

    def test_a_stream_of_cases_passes_and_says_what_it_was_made_of(self):
        done = self.generate("--generate", 60, "--json", "soak.json")
        summary = outcome_of(self.dir / "soak.json")["summary"]
        self.assertEqual((summary["passed"], summary["failed"], summary["inconclusive"]), (60, 0, 0))
        for feature in ("ties", "shape.empty", "missing keys", "strategy.rank0-scatter", "mesh.3-D"):
            self.assertGreater(summary["features"][feature], 0, feature)
            self.assertIn(feature, done.out)
        judged = summary["properties"]["loading.equals_source"]
        self.assertGreater(judged["judged"], 30)
        self.assertGreater(judged["comparisons"], judged["judged"])
        self.assertIn("pass: 60 of 60 generated cases passed", done.out)

    def test_the_same_seed_gives_the_same_whatever_the_number_of_workers(self):
        for name, jobs in (("one.json", 1), ("three.json", 3)):
            self.generate("--generate", 30, "--seed", 8, "--jobs", jobs, "--json", name)
        self.assertEqual(outcome_of(self.dir / "one.json"), outcome_of(self.dir / "three.json"))

    def test_a_part_of_a_stream_is_what_the_whole_has_there(self):
        self.generate("--generate", 20, "--bug", "loading.tie_broken_by_materialize",
                      "--keep-going", "--shrink-runs", 0, "--json", "whole.json", code=1)  # fmt: skip
        first = outcome_of(self.dir / "whole.json")["summary"]["failures"][0]
        index = first["outcome"]["index"]
        self.generate("--generate", 1, "--first", index, "--bug", "loading.tie_broken_by_materialize",
                      "--shrink-runs", 0, "--json", "part.json", code=1)  # fmt: skip
        again = outcome_of(self.dir / "part.json")["summary"]["failures"][0]
        self.assertEqual(again, first)

    def test_it_goes_on_from_what_was_done(self):
        self.generate("--generate", 10, "--json", "soak.json")
        self.generate("--generate", 25, "--json", "soak.json", "--resume")
        self.generate("--generate", 25, "--json", "whole.json")
        self.assertEqual(outcome_of(self.dir / "soak.json"), outcome_of(self.dir / "whole.json"))

    def test_it_goes_on_from_nothing_else(self):
        self.generate("--generate", 3, "--json", "soak.json")
        self.refused("verify", "--generate", 3, "--seed", 5, "--resume", "--json", "soak.json",
                     names=["soak.json", "another stream"])  # fmt: skip
        self.write("soak.json", "[]")
        self.refused("verify", "--generate", 3, "--resume", "--json", "soak.json", names=["soak.json"])
        self.refused("verify", "--generate", 3, "--resume", names=["--json"])

    def test_sigterm_ends_it_with_a_verdict(self):
        words = [command(), "verify", "--minutes", "5", "--json", "soak.json"]
        process = subprocess.Popen(words, cwd=self.dir, stdout=subprocess.PIPE, text=True)
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 3, out)
        self.assertIn("inconclusive: time limit", out)
        document = outcome_of(self.dir / "soak.json")
        self.assertEqual((document["verdict"], document["reason"]), ("inconclusive", "time limit"))
        self.assertGreater(document["summary"]["passed"], 0)

    def test_minutes_end_it_well(self):
        done = self.generate("--minutes", 0.05, "--transport", "gloo", "--world", 2)
        self.assertIn("pass:", done.out)

    def test_one_case_is_not_asked_for_with_many(self):
        for words in (["--case", "x.json"], ["--checkpoint", "x"], ["--strategy", "plain"],
                      ["--bugs", "all", "--bug", "loading.bf16_through_f16"]):
            self.refused("verify", "--generate", 3, *words, names=[words[0]])
        self.refused("verify", "--generate", 0, names=["--generate"])
        self.refused("verify", "--generate", 3, "--bug", "no.such", names=["no.such"])
        self.refused("verify", "--bugs", "no.such", names=["no.such"])
        self.refused("verify", "--generate", 3, "--property", "no.such", names=["no.such"])

    def test_cases_of_a_corpus_come_first(self):
        self.write("corpus/a.json", (REPOSITORY / "fixtures" / "cases" / "smoke.json").read_text())
        self.generate("--generate", 2, "--corpus", "corpus", "--json", "soak.json")
        self.assertEqual(outcome_of(self.dir / "soak.json")["summary"]["passed"], 3)
        self.write("corpus/b.json", "{}")
        self.refused("verify", "--generate", 2, "--corpus", "corpus", names=["b.json"])


class Failure(CommandTest):
    labels = "selftest multi-rank fast"
    timeout_s = 120

    def test_a_failing_case_is_shrunk_and_shown(self):
        done = self.shardproof("verify", "--generate", 50, "--bug", "sharding.shards_swapped",
                               "--report", "report")  # fmt: skip
        self.assert_exit(done, 1)
        self.assertRegex(done.out, r"shrunk to [1-3] ranks?, 1 tensor")
        self.assertTrue((self.dir / "report" / "report.html").exists())
        self.assert_exit(self.shardproof("replay", "report/case.json"), 1)

    def test_shrink_takes_a_case_that_somebody_wrote(self):
        case = json.loads((REPOSITORY / "fixtures" / "cases" / "everything.json").read_text())
        case.update(bug="loading.rope_theta_default", transport="sim")
        self.write("case.json", json.dumps(case))
        done = self.shardproof("shrink", "case.json", "--out", "smallest.json")
        self.assert_exit(done, 0)
        smallest = json.loads((self.dir / "smallest.json").read_text())
        self.assertEqual(len(smallest["model"]["tensors"]), 1)
        self.assertIn("inv_freq", smallest["model"]["tensors"][0]["name"])
        self.assert_exit(self.shardproof("replay", "smallest.json"), 1)

    def test_shrink_keeps_to_the_runs_it_is_allowed(self):
        case = json.loads((REPOSITORY / "fixtures" / "cases" / "everything.json").read_text())
        case.update(bug="loading.rope_theta_default", transport="sim")
        self.write("case.json", json.dumps(case))
        done = self.shardproof("shrink", "case.json", "--runs", 5)
        self.assert_exit(done, 0)
        self.assertIn("in 5 runs (no more runs were allowed", done.err)

    def test_what_does_not_fail_cannot_be_shrunk(self):
        smoke = REPOSITORY / "fixtures" / "cases" / "smoke.json"
        self.refused("shrink", smoke, names=["does not fail"])
        self.refused("shrink", "not-there.json", names=["not-there.json"])

    def test_bugs_are_planted_and_seen(self):
        done = self.shardproof("verify", "--bugs", "loading.copy_converts,training.groups_merged",
                               "--json", "bugs.json", "--report", "smallest")  # fmt: skip
        self.assert_exit(done, 0)
        self.assertIn("2 of 2 bugs are caught", done.out)
        bugs = json.loads((self.dir / "bugs.json").read_text())["bugs"]
        for bug in bugs.values():
            self.assertTrue(bug["caught"])
            self.assertLessEqual(len(bug["smallest"]["case"]["model"]["tensors"]), 2)
        self.assert_exit(self.shardproof("replay", "smallest/loading.copy_converts.json"), 1)

    def test_a_case_that_ends_its_process_fails(self):
        # A check of the pipeline's own ends the process of all ranks in some of its cases.
        done = self.shardproof("verify", "--generate", 60, "--bug", "comm.scatter_by_column",
                               "--keep-going", "--shrink-runs", 0, "--json", "soak.json")  # fmt: skip
        self.assert_exit(done, 1)
        failures = outcome_of(self.dir / "soak.json")["summary"]["failures"]
        ended = [finding for failure in failures for finding in failure["outcome"]["findings"]
                 if "signal 6" in finding[-1]]
        self.assertTrue(ended)
