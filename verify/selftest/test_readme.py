"""What the README shows is what the command prints, and its subject passes. What another one says
was tried is what the tests try."""

import ast
import re
import unittest
from pathlib import Path

from command import REPOSITORY, CommandTest, checkpoint

README = (REPOSITORY / "README.md").read_text()


def block(language, mark):
    """The text of the README's fenced block of this language that holds the mark."""
    (found,) = [text for text in re.findall(rf"```{language}\n(.*?)```\n", README, re.DOTALL)
                if mark in text]  # fmt: skip
    return found


def comparable(output):
    """Without what differs from run to run and from machine to machine."""
    output = re.sub(r"\S*/checkpoints/", "CHECKPOINTS/", output)
    output = re.sub(r"\S*/?shardproof verify", "shardproof verify", output)
    counts = r"\d+ of \d+|skipped \d+|[\d,]+ comparisons"  # of all properties that there are
    different = rf"torch [0-9.]+|[0-9.]+ s$|{counts}"
    return re.sub(different, "...", output, flags=re.MULTILINE)


class Readme(CommandTest):
    labels = "selftest process"
    fixtures = "checkpoints"

    def test_the_failing_output_is_what_the_command_prints(self):
        typed, _, shown = block("", "--inject").partition("\n")
        words = typed.removeprefix("$ build/shardproof ").split()
        place = words.index("--checkpoint") + 1
        words[place] = checkpoint(words[place].rpartition("/")[2])
        done = self.shardproof(*words)
        self.assert_exit(done, 1)
        self.assertEqual(comparable(done.out), comparable(shown))


class ReadmesSubject(CommandTest):
    labels = "selftest framework"
    fixtures = "checkpoints"

    def test_it_passes(self):
        path = self.write("my_fsdp2.py", block("python", "def run(case, observe)"))
        done = self.shardproof("verify", "--subject", path, "--mesh", "2x2",
                               "--checkpoint", checkpoint("qwen3-small"))  # fmt: skip
        self.assert_exit(done, 0)
        self.assertIn("passed", done.out)


HERE = Path(__file__).parent
# Those with a table of their own.
TRAINED = ("trained_jobs", "stepped_jobs", "varied_jobs", "strangers_jobs", "state_jobs")


def rows_of(text, heading):
    """The cells of the table under this heading."""
    lines = text.partition(heading)[2].partition("| --- |")[2].splitlines()[1:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def jobs_of(path):
    """{job: its mistakes} of a script for ranked_jobs.run."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "JOBS":
            pairs = zip(node.value.keys, node.value.values)
            return {job.id: [each.value for each in mistakes.elts] for job, mistakes in pairs}
    return {}


class WhatWasTried(unittest.TestCase):
    labels = "selftest fast"
    text = (REPOSITORY / "verify" / "python" / "README.md").read_text()

    def assert_is_test(self, name):
        module, _, method = name.partition(".")
        source = (HERE / f"test_{module}.py").read_text()
        self.assertIn(f"    def test_{method}(", source, name)

    def test_jobs_are_those_of_the_scripts(self):
        told = {}
        for _, _, job, mistakes, *tests in rows_of(self.text, "## What was tried"):
            script, _, function = job.strip("`").partition(".")
            told.setdefault(script, {})[function] = [None, *mistakes.split(", ")]
            for name in tests:
                if name != "not tried":
                    self.assert_is_test(name.strip("`"))
        scripts = {
            path.stem: jobs_of(path) for path in HERE.glob("*_jobs.py") if path.stem not in TRAINED
        }
        # Those without a sound one are about what check refuses.
        tried = {
            script: {job: mistakes for job, mistakes in jobs.items() if mistakes[0] is None}
            for script, jobs in scripts.items() if jobs
        }  # fmt: skip
        self.assertEqual(told, tried)

    def test_trained_jobs_are_those_of_the_scripts(self):
        """Their mistakes are in words: as many as the script has."""
        told = {}
        for _, job, mistakes, _ in rows_of(self.text, "The jobs of the next table"):
            told[re.match("`([^`]*)`", job)[1]] = len(mistakes.split(", "))
        tried = {
            job: len(mistakes) - 1
            for script in TRAINED
            for job, mistakes in jobs_of(HERE / f"{script}.py").items()
        }
        self.assertEqual(told, tried)

    def test_attached_jobs_have_tests(self):
        rows = rows_of(self.text, "An attached job has")
        self.assertGreater(len(rows), 6)
        for _, job, *tests in rows:
            self.assertTrue((REPOSITORY / job.strip("`")).is_file(), job)
            for name in re.findall("`([^`]*)`", " ".join(tests)):
                self.assert_is_test(name)
