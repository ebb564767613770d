"""Generated cases: what a stream of them says, that it ends, goes on and can be had again."""

import json
import signal
import subprocess
import time
import uuid
from pathlib import Path

from command import REPOSITORY, CommandTest, command, processes_with, wait_until


def outcome_of(path):
    """What a soak's document says but for times."""
    document = json.loads(Path(path).read_text())
    document["summary"].pop("duration_ms")
    return document


class Stream(CommandTest):
    labels = "selftest multi-rank"
    timeout_s = 120

    def generate(self, *words, code=0):
        done = self.shardproof("verify", *words)
        self.assert_exit(done, code)
        return done

    def test_a_stream_of_cases_passes_and_says_what_it_was_made_of(self):
        done = self.generate("--generate", 60, "--json", "soak.json")
        said = " ".join(done.out.split())  # as it is wrapped, a feature may lie on two lines
        summary = outcome_of(self.dir / "soak.json")["summary"]
        self.assertEqual(
            (summary["passed"], summary["failed"], summary["inconclusive"]), (60, 0, 0)
        )
        for feature in (
            "ties",
            "shape.empty",
            "missing keys",
            "strategy.rank0-scatter",
            "mesh.3-D",
        ):
            self.assertGreater(summary["features"][feature], 0, feature)
            self.assertIn(feature, said)
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
                      "--keep-going", "--shrink-runs", 0, "--json", "whole.json",
                      code=1)  # fmt: skip
        first = outcome_of(self.dir / "whole.json")["summary"]["failures"][0]
        index = first["outcome"]["index"]
        self.generate("--generate", 1, "--first", index, "--bug",
                      "loading.tie_broken_by_materialize", "--shrink-runs", 0, "--json",
                      "part.json", code=1)  # fmt: skip
        again = outcome_of(self.dir / "part.json")["summary"]["failures"][0]
        self.assertEqual(again, first)

    def test_only_cases_with_a_feature_are_run(self):
        self.generate("--generate", 40, "--only", "a damaged source", "--json", "only.json")
        summary = outcome_of(self.dir / "only.json")["summary"]
        self.assertGreater(summary["passed"], 0)
        self.assertLess(summary["passed"], 20)
        self.assertEqual(summary["features"]["a damaged source"], summary["passed"])
        self.refused("verify", "--generate", 3, "--only", "no.such", names=["--only", "no.such"])

    def test_it_goes_on_from_what_was_done(self):
        self.generate("--generate", 10, "--json", "soak.json")
        self.generate("--generate", 25, "--json", "soak.json", "--resume")
        self.generate("--generate", 25, "--json", "whole.json")
        self.assertEqual(outcome_of(self.dir / "soak.json"), outcome_of(self.dir / "whole.json"))

    def test_it_goes_on_from_nothing_else(self):
        self.generate("--generate", 3, "--json", "soak.json")
        self.refused("verify", "--generate", 3, "--seed", 5, "--resume", "--json", "soak.json",
                     names=["soak.json", "other generated cases"])  # fmt: skip
        self.write("soak.json", "[]")
        self.refused(
            "verify", "--generate", 3, "--resume", "--json", "soak.json", names=["soak.json"]
        )
        self.refused("verify", "--generate", 3, "--resume", names=["--json"])

    def test_it_goes_on_from_no_document_that_was_made_up(self):
        self.generate("--generate", 3, "--json", "soak.json")
        whole = json.loads((self.dir / "soak.json").read_text())
        for field, value in (("passed", -1), ("next", 1e300), ("duration_ms", "x"),
                             ("properties", []), ("inconclusive", 1), ("failures", [{}]),
                             ("unclear", 3), ("features", {"ties": "many"}),
                             ("counted_beyond", [-1.5, "x"])):  # fmt: skip
            self.write("soak.json", {**whole, "summary": {**whole["summary"], field: value}})
            self.refused(
                "verify", "--generate", 5, "--resume", "--json", "soak.json", names=["soak.json"]
            )
        self.write("soak.json", (json.dumps(whole))[:500])
        self.refused(
            "verify", "--generate", 5, "--resume", "--json", "soak.json", names=["soak.json"]
        )

    def test_what_was_judged_by_other_properties_is_not_gone_on_from(self):
        self.generate("--generate", 3, "--json", "soak.json", "--property", "loading.equals_source")
        self.refused("verify", "--generate", 5, "--resume", "--json", "soak.json",
                     names=["soak.json", "loading.equals_source"])  # fmt: skip

    def test_where_it_cannot_write_is_told_before_anything_runs(self):
        self.write("file", "")
        (self.dir / "folder").mkdir()
        for words, names in ((["--json", "no/such/soak.json"], ["no/such/soak.json"]),
                             (["--json", "folder"], ["folder"]),
                             (["--report", "file/report"], ["file/report"])):  # fmt: skip
            self.refused("verify", "--generate", 10**9, *words, names=names)
            self.refused("verify", "--bugs", "all", *words, names=names)

    def test_numbers_that_mean_nothing_are_refused(self):
        for option, value in (("--minutes", "nan"), ("--minutes", "inf"), ("--minutes", "1e300"),
                              ("--minutes", "-1"), ("--first", 2**64 - 1), ("--first", -1),
                              ("--jobs", 10**9), ("--jobs", -1), ("--jobs", 0),
                              ("--shrink-runs", -1), ("--world", 0), ("--world", -4),
                              ("--world", 10**6)):  # fmt: skip
            self.refused("verify", "--generate", 3, option, value, names=[option])
        self.refused("verify", "--generate", 2**64 - 1, names=["--generate"])

    def test_a_report_of_an_earlier_run_is_not_taken_for_this_ones(self):
        self.write("report/result.json", "{}")
        done = self.generate("--generate", 3, "--report", "report")
        self.assertIn("report holds the report of an earlier run", done.out)

    def test_sigterm_ends_it_with_a_verdict(self):
        words = [command(), "verify", "--minutes", "5", "--json", "soak.json"]
        process = subprocess.Popen(words, cwd=self.dir, stdout=subprocess.PIPE, text=True)
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 3, out)
        self.assertIn("inconclusive: the time limit was reached", out)
        document = outcome_of(self.dir / "soak.json")
        self.assertEqual(
            (document["verdict"], document["reason"]),
            ("inconclusive", "the time limit was reached"),
        )
        self.assertGreater(document["summary"]["passed"], 0)

    def test_minutes_end_it_well(self):
        done = self.generate("--minutes", 0.05, "--transport", "gloo", "--world", 2)
        self.assertIn("pass:", done.out)

    def test_one_case_is_not_asked_for_with_many(self):
        for words in (
            ["--case", "x.json"],
            ["--checkpoint", "x"],
            ["--strategy", "plain"],
            ["--bugs", "all", "--bug", "loading.bf16_through_f16"],
            ["--save-to", "x"],
        ):
            self.refused("verify", "--generate", 3, *words, names=[words[0]])
        for words in (["--minutes", 1], ["--first", 1], ["--resume"], ["--keep-going"],
                      ["--corpus", "."], ["--subject", "reference"], ["--only", "ties"],
                      ["--property", "loading.equals_source"]):  # fmt: skip
            self.refused("verify", "--bugs", "all", *words, names=[words[0]])
        for words in (
            ["--first", 1],
            ["--resume"],
            ["--keep-going"],
            ["--only", "ties"],
            ["--corpus", "."],
            ["--jobs", 1],
        ):
            self.refused("verify", "--case", "x.json", *words, names=[words[0], "--generate"])
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


class Interrupted(CommandTest):
    """A signal at any moment: nothing stays behind but what was asked for."""

    labels = "selftest multi-rank"
    timeout_s = 120

    def ended_by(self, what, words, begun):
        """Sends a signal once something has `begun`; returns the exit code and what was printed."""
        mark = uuid.uuid4().hex
        process = self.start([command(), *words], mark)
        self.assertTrue(wait_until(begun, 30))
        process.send_signal(what)
        out, err = process.communicate(timeout=30)
        self.said = err
        gone = wait_until(
            lambda: not processes_with(mark) and not list(self.temporary.iterdir()), 20
        )
        left = processes_with(mark), list(self.temporary.iterdir())
        self.end(mark)
        self.assertTrue(gone, f"left behind: {left}\n{out}{err}")
        return process.returncode, out

    def phase_begun(self):
        return list(self.temporary.glob("shardproof-*/*"))

    def test_a_single_run_leaves_nothing(self):
        case = json.loads((REPOSITORY / "fixtures" / "cases" / "large.json").read_text())
        self.write("large.json", case)
        for transport in ("gloo", "sim"):
            for what in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
                words = ["verify", "--case", "large.json", "--transport", transport]
                began = lambda: list(self.temporary.glob("shardproof-*/values"))  # noqa: E731
                code, _ = self.ended_by(what, words, began)
                self.assertEqual(code, -what)
                if what != signal.SIGKILL:
                    self.assertRegex(self.said, f"ended by {what.name} at `values: 2 ranks, .*`.*; "
                                     "nothing was judged\n")  # fmt: skip

    def test_a_killed_stream_leaves_nothing_and_can_be_gone_on_from(self):
        words = ["verify", "--generate", 10**6, "--transport", "gloo", "--json", "soak.json"]
        self.ended_by(signal.SIGKILL, words, self.phase_begun)
        done = self.shardproof("verify", "--generate", 1, "--transport", "gloo", "--json",
                               "soak.json", "--resume")  # fmt: skip
        self.assert_exit(done, 0)

    def test_bugs_that_were_measured_are_told(self):
        words = ["verify", "--bugs", "all", "--json", "bugs.json"]
        code, out = self.ended_by(signal.SIGTERM, words, self.phase_begun)
        self.assertEqual(code, 3, out)
        self.assertIn("inconclusive: the time limit was reached", out)
        self.assertGreater(json.loads((self.dir / "bugs.json").read_text())["bugs_left"], 0)

    def test_shrinking_ends_with_what_it_has(self):
        case = json.loads((REPOSITORY / "fixtures" / "cases" / "everything.json").read_text())
        case.update(bug="loading.rope_theta_default", transport="sim")
        self.write("case.json", case)
        began = lambda: list(self.temporary.glob("shardproof-*/shrink_*"))  # noqa: E731
        code, _ = self.ended_by(
            signal.SIGTERM, ["shrink", "case.json", "--out", "smallest.json"], began
        )
        self.assertEqual(code, 0)
        self.assert_exit(self.shardproof("replay", "smallest.json"), 1)


class Failure(CommandTest):
    labels = "selftest multi-rank"
    timeout_s = 240

    def test_a_failing_case_is_shrunk_and_shown(self):
        # Half of the time goes into compiling the program that shows it.
        done = self.shardproof("verify", "--generate", 50, "--bug", "sharding.shards_swapped",
                               "--report", "report", timeout=180)  # fmt: skip
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
        self.assertIn("in 5 runs (the limit on runs was reached", done.err)

    def test_what_does_not_fail_cannot_be_shrunk(self):
        smoke = REPOSITORY / "fixtures" / "cases" / "smoke.json"
        self.refused("shrink", smoke, names=["does not fail"])
        self.refused("shrink", "not-there.json", names=["not-there.json"])
        self.refused("shrink", smoke, "--property", "no.such", names=["no.such", "known are"])
        self.refused("shrink", smoke, "--runs", -1, names=["--runs"])
        self.refused("shrink", smoke, "--out", "no/such/file.json", names=["no/such/file.json"])

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
                               "--keep-going", "--shrink-runs", 0, "--json",
                               "soak.json")  # fmt: skip
        self.assert_exit(done, 1)
        failures = outcome_of(self.dir / "soak.json")["summary"]["failures"]
        ended = [
            finding
            for failure in failures
            for finding in failure["outcome"]["findings"]
            if "signal 6" in finding[-1]
        ]
        self.assertTrue(ended)
