#!/usr/bin/env python3
"""Properties hold on the reference pipeline: property_holds.py WORLD ID [ID ...]

Judges everything.json on so many ranks, by one property with all others off if one is named, else by
all: each of those named must pass, and must have compared something.
"""

import sys
import unittest

from command import REPOSITORY, CommandTest

CASE = REPOSITORY / "fixtures" / "cases" / "everything.json"
FAULTS = "fault.every_fault_fires"


class PropertyHolds(CommandTest):
    world, ids = 0, ()

    def runTest(self):
        words = ["verify", "--case", CASE, "--world", self.world]
        expected = set(self.ids)
        if len(expected) == 1:
            words += ["--property", *expected]
        if expected == {FAULTS}:  # it judges only a run that has a fault to fire
            words += ["--inject", "file/flip@odd.f32.weight:1"]
        else:
            expected -= {FAULTS}
        document = self.judged(*words, code=0)
        self.assertEqual(document["findings"], [])
        judged = {one["id"]: one for one in document["properties"] if one["verdict"] != "skip"}
        self.assertEqual(set(judged), expected)
        for one in judged.values():
            self.assertGreater(one["comparisons"], 0, one["id"])
        self.assertEqual(document["case"]["mesh"], [{"name": "dp_shard", "size": self.world}])


def main(world, *ids):
    PropertyHolds.world, PropertyHolds.ids = int(world), ids
    result = unittest.TextTestRunner(stream=sys.stdout).run(PropertyHolds())
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
