#!/usr/bin/env python3
"""A sound subject passes with every property that applies:
sound_subject.py NAME MESH CHECKPOINT [OPTION=VALUE ...] [--ARGUMENT=VALUE ...]

CHECKPOINT is one of those that make_checkpoints.py makes, or NAME.json of fixtures/cases. A subject
that has NEEDS = "NAME" runs in the environment that ci/environment makes of NAME."""

import sys
import unittest

from command import REPOSITORY, CommandTest, checkpoint
from subject import literal

# Properties that a subject must have been judged by, by what it must not declare that it cannot.
JUDGED = {
    "": {
        "fault.every_rank_finishes", "loading.all_defined", "loading.derived_buffers",
        "loading.descriptors_kept", "loading.equals_source", "loading.no_meta_left",
        "loading.no_new_nan", "sharding.shards_tile",
    },
    "keys": {"loading.keys_match"},
    "save": {"checkpoint.round_trip", "checkpoint.reshard"},
    "train": {"training.optimizer_live", "training.steps_act"},
    "save train": {"checkpoint.training_round_trip", "checkpoint.resume_exact"},
}  # fmt: skip


def source(model):
    """Where the model comes from, as words of the command line."""
    if model.endswith(".json"):
        return "--case", REPOSITORY / "fixtures" / "cases" / model
    return "--checkpoint", checkpoint(model)


def words_of(options):
    for option in options:
        yield from (option,) if option.startswith("--") else ("--option", option)


def interpreter(test, path):
    """The Python of the environment that a subject needs, as words of the command line."""
    needs = literal(path, "NEEDS")
    if needs is None:
        return ()
    return "--python", test.python_of(needs)


class SoundSubject(CommandTest):
    name = mesh = model = ""
    options = ()

    def runTest(self):
        path = REPOSITORY / "verify" / "subjects" / f"{self.name}.py"
        document = self.judged(
            "verify", "--subject", path,
            *source(self.model), "--mesh", self.mesh,
            *words_of(self.options), *interpreter(self, path), code=0, timeout=250,
        )  # fmt: skip
        self.assertEqual(document["findings"], [])
        passed = {one["id"] for one in document["properties"] if one["verdict"] == "pass"}
        cannot = set(literal(path, "CANNOT") or {})
        cannot |= {"train"} if "--steps=0" in self.options else set()
        judged = [ids for needs, ids in JUDGED.items() if not cannot & set(needs.split())]
        self.assertEqual(set.union(*judged) - passed, set())
        for one in document["properties"]:
            self.assertIn(one["verdict"], ("pass", "skip"), one)


def main(name, mesh, model, *options):
    SoundSubject.name, SoundSubject.mesh, SoundSubject.model = name, mesh, model
    SoundSubject.options = options
    result = unittest.TextTestRunner(stream=sys.stdout).run(SoundSubject())
    if result.skipped:
        print(f"skipped: {result.skipped[0][1]}")
        return 77
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
