#!/usr/bin/env python3
"""A subject comes out as its file says: subject.py FILE

A file under fixtures/subjects/ has a mistake in it, or is no sound adapter, and declares in EXPECT
which property, alone, must say so: `property`, and of its findings `kind`, `stage`, `tensor`,
`ranks` and, in part, `group`; `first`, if it must be told first; `verdict` ("fail" unless given);
`says`, words of a finding or of the reason; `deadline` in seconds; `checkpoint`, of those that
make_checkpoints.py makes; `adapter`, of those too; `case`, one of fixtures/cases in its place;
`model`, a function of the file that makes one, whose checkpoint has random values, as the file's
`stored` would write them; `arguments`, more of the command line; `mistake`, the kind of mistake
that it is, of those that `list bugs --markdown` prints.

One that has an option `mistake` is sound without it, and then passes with every property.
"""

import ast
import subprocess
import sys
import unittest
from pathlib import Path

from command import REPOSITORY, CommandTest, checkpoint

# Of a subject that does not hang: ranks may start from nothing, which takes a loaded machine its
# time.
DEADLINE_S = 60
EXIT_CODES = {"pass": (0,), "fail": (1, 4), "inconclusive": (3,)}


def literal(path, name):
    """The literal that a file assigns to a name, without running it; None if it does not."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    return None


def trains(property_id):
    """Whether a property is about training; the others need no steps to be judged."""
    return property_id.startswith("training.") or property_id in (
        "checkpoint.training_round_trip", "checkpoint.resume_exact")  # fmt: skip


MAKE = """
import importlib, sys, torch
from safetensors.torch import save_file
sys.path.insert(0, sys.argv[1])
file = importlib.import_module(sys.argv[2])
torch.manual_seed(1)
state = {}
for name, value in getattr(file, sys.argv[3])().state_dict().items():
    drawn = torch.rand(value.shape) if value.is_floating_point() else torch.randint(9, value.shape)
    state[name] = (drawn + 0.1).to(value.dtype)
save_file(getattr(file, "stored", dict)(state), sys.argv[4])
"""


def source(test, expected):
    """Where the model comes from, as words of the command line."""
    if "model" in expected:
        path, file = test.dir / "own.safetensors", test.file
        words = [sys.executable, "-c", MAKE, file.parent, file.stem, expected["model"], path]
        subprocess.run(words, check=True)
        return ["--checkpoint", path, "--model", f"{file}:{expected['model']}"]
    if "case" in expected:
        return ["--case", REPOSITORY / "fixtures" / "cases" / f"{expected['case']}.json"]
    words = ["--checkpoint", checkpoint(expected.get("checkpoint", "llama-tied-small"))]
    return words + (["--adapter", checkpoint(expected["adapter"])] if "adapter" in expected else [])


class Subject(CommandTest):
    file = None

    def runTest(self):
        expected = literal(self.file, "EXPECT")
        self.assertIsNotNone(expected, f"{self.file}: has no EXPECT")
        verdict = expected.get("verdict", "fail")
        arguments = expected.get(
            "arguments", ["--steps", "4" if trains(expected["property"]) else "0"]
        )
        words = [
            "verify", "--subject", self.file, *source(self, expected),
            *(() if "--mesh" in arguments else ("--world", "2")),
            "--deadline", expected.get("deadline", DEADLINE_S), "--no-confirm", *arguments,
        ]  # fmt: skip
        given = {"timeout": 220, "PYTHONPATH": str(REPOSITORY / "verify" / "subjects")}
        done = self.shardproof(
            *words, "--property", expected["property"], "--json", "-", **given)  # fmt: skip
        self.assertIn(done.code, EXIT_CODES[verdict], str(done))
        document = done.json()
        (judged,) = document["properties"]
        self.assertEqual((judged["id"], judged["verdict"]), (expected["property"], verdict))
        if verdict == "fail":
            self.is_named(expected, document["findings"])
        said = judged["reason"] + "".join(f["message"] for f in document["findings"])
        self.assertIn(expected.get("says", ""), said)
        if "mistake" in (literal(self.file, "OPTIONS") or {}):
            sound = self.judged(*words, "--option", "mistake=no", code=0, **given)
            self.assertEqual(sound["findings"], [])

    def is_named(self, expected, findings):
        """The first finding is the one expected."""
        self.assertTrue(findings)
        fields = {key: expected[key] for key in ("kind", "stage", "tensor", "ranks")
                  if key in expected}  # fmt: skip
        named = [{key: finding.get(key) for key in fields} for finding in findings]
        if group := expected.get("group"):
            fields["group"] = group
            for one, finding in zip(named, findings):
                one["group"] = {key: finding.get("group", {}).get(key) for key in group}
        named = named[:1] if expected.get("first") else named
        self.assertIn(fields, named, f"expected such a finding among {findings[:5]}")


def main(path):
    Subject.file = Path(path).resolve()
    result = unittest.TextTestRunner(stream=sys.stdout).run(Subject())
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
