#!/usr/bin/env python3
"""A reproducer script fails as its finding says, and passes with a sound subject in its place.

Any of fixtures/subjects/ by hand, in the environment of the tests: test_reproducer.py NAME ...
"""

import json
import shutil
import sys
import unittest

from command import REPOSITORY, CommandTest, checkpoint
from subject import literal

SUBJECTS = REPOSITORY / "fixtures" / "subjects"
SOUND = REPOSITORY / "verify" / "subjects" / "fsdp2.py"
REPORT = REPOSITORY / "verify" / "report" / "report_html.py"
REPRODUCE = REPOSITORY / "verify" / "reproduce" / "subject.py"


def expectation(name):
    return literal(SUBJECTS / f"{name}.py", "EXPECT")


def sound_subject(path):
    """Puts a sound job in place of a subject that a script runs."""
    shutil.copy(SOUND, path.parent / "fsdp2.py")
    path.write_text("from fsdp2 import run\n")


def without_its_copies(path):
    """Mends every_rank_loads_all."""
    text = path.read_text()
    path.write_text(text.replace("tensor.clone()", "tensor"))


class Reproducer(CommandTest):
    labels = "selftest multi-rank framework"
    timeout_s = 300
    fixtures = "checkpoints"

    def verified(self, name, *source):
        """A run of the subject with a report: the directory of the report, and its result."""
        report = self.root / "report"
        expected = expectation(name)
        done = self.shardproof(
            "verify", "--subject", SUBJECTS / f"{name}.py", "--world", "2", *source,
            "--property", expected["property"], "--report", report,
            "--deadline", max(20, expected.get("deadline", 20)),
            timeout=250, PYTHONPATH=str(SOUND.parent),
        )  # fmt: skip
        self.assertIn(done.code, (1, 4), str(done))
        return report, json.loads((report / "result.json").read_text())

    def python(self, *words, timeout=250, **variables):
        return self.run_process(sys.executable, *words, timeout=timeout, **variables)

    def reproduced(self, name, *source, shows=(), mend=sound_subject):
        """Finding, script and report of a subject: all as they should be. \\returns the report's
        directory

        mend: takes the mistake out of the subject, a file of the script
        """
        report, result = self.verified(name, *source)
        out = report / "reproducers"
        done = self.python(
            REPRODUCE, report / "result.json", report / "evidence", out,
            PYTHONPATH=str(SOUND.parent),
        )  # fmt: skip
        self.assert_exit(done, 0)
        index = json.loads((out / "reproducers.json").read_text())
        first = next(one for one in result["findings"] if self.is_expected(one, name))
        entry = index["findings"][first["fingerprint"]]
        self.assertTrue(entry["seen"], (out / entry["report"]).read_text())
        text = (out / entry["report"]).read_text()
        for words in (first["message"], entry["script"], first["fingerprint"], *shows):
            self.assertIn(words, text)

        # As whoever gets it would run it: elsewhere, and without anything of ours.
        elsewhere = self.root / "elsewhere"
        shutil.copytree(out, elsewhere)
        script = elsewhere / entry["script"]
        done = self.alone(script)
        self.assert_exit(done, 1)
        self.assertIn("FAIL: rank ", done.out)
        for words in (first.get("tensor"), *shows):
            self.assertIn(words or "", done.out)
        mend(elsewhere / "subject" / f"{name}.py")
        done = self.alone(script)
        self.assert_exit(done, 0)
        self.assertNotIn("FAIL", done.out)
        return report, entry

    def is_expected(self, finding, name):
        expected = expectation(name)
        return all(finding.get(key) == expected[key]
                   for key in ("kind", "stage", "tensor", "ranks") if key in expected)  # fmt: skip

    def alone(self, script):
        self.assertEqual(list(self.dir.iterdir()), [])
        return self.python(script, PYTHONPATH="")

    def test_a_wrong_element_is_shown_and_linked(self):
        model = checkpoint("llama-tied-small")
        report, entry = self.reproduced(
            "one_element_off", "--checkpoint", model, shows=["FAIL: rank 1 of 2", "element 5183 is"]
        )
        html = report / "report.html"
        done = self.python(REPORT, report / "result.json", report / "evidence", html)
        self.assert_exit(done, 0)
        self.assertIn(f'href="reproducers/{entry["script"]}"', html.read_text())


class OtherKinds(Reproducer):
    labels = "selftest multi-rank nightly"
    timeout_s = 300
    fixtures = "checkpoints"

    def test_a_rank_that_dies_is_shown(self):
        case = REPOSITORY / "fixtures" / "cases" / "smoke.json"
        shown = "FAIL: rank 1 of 2, in phase values: was ended by SIGKILL"
        self.reproduced("dies", "--case", case, shows=[shown])

    def test_memory_beyond_the_bound_is_shown(self):
        case = REPOSITORY / "fixtures" / "cases" / "large.json"
        self.reproduced("every_rank_loads_all", "--case", case, shows=["its host memory rose by "],
                        mend=without_its_copies)  # fmt: skip

    def test_what_is_about_the_evidence_has_a_report_and_no_script(self):
        model = checkpoint("llama-tied-small")
        report, result = self.verified("writes_wrong_evidence", "--checkpoint", model)
        out = self.root / "of_damage"  # the run itself also found what has a script
        result["findings"] = [one for one in result["findings"] if one["kind"] == "damage"]
        (report / "result.json").write_text(json.dumps(result))
        done = self.python(REPRODUCE, report / "result.json", report / "evidence", out,
                           PYTHONPATH=str(SOUND.parent))  # fmt: skip
        self.assert_exit(done, 0)
        (entry, *_) = json.loads((out / "reproducers.json").read_text())["findings"].values()
        self.assertEqual((entry["script"], entry["seen"]), (None, False))
        self.assertIn("No script reproduces it", (out / entry["report"]).read_text())
        self.assertEqual(list(out.rglob("*.py")), [])


def by_hand(name):
    def method(self):
        self.reproduced(name, "--checkpoint", checkpoint("llama-tied-small"))

    return method


if __name__ == "__main__":
    for subject in sys.argv[1:]:
        setattr(Reproducer, f"test_{subject}", by_hand(subject))
    unittest.main(argv=[sys.argv[0], *(f"Reproducer.test_{name}" for name in sys.argv[1:])])
