#!/usr/bin/env python3
"""A property holds on the reference pipeline: property_holds.py ID WORLD

Judges everything.json on so many ranks with all other properties off: it must pass, and must have
compared something.
"""

import sys
import unittest

from command import REPOSITORY, CommandTest

CASE = REPOSITORY / "fixtures" / "cases" / "everything.json"
FAULTS = "fault.every_fault_fires"


class PropertyHolds(CommandTest):
    property_id, world = "", 0

    def runTest(self):
        words = ["verify", "--case", CASE, "--world", self.world, "--property", self.property_id]
        if self.property_id == FAULTS:  # it judges only a run that has a fault to fire
            words += ["--inject", "file/flip@odd.f32.weight:1"]
        document = self.judged(*words, code=0)
        self.assertEqual(document["findings"], [])
        judged = [one for one in document["properties"] if one["verdict"] != "skip"]
        self.assertEqual([one["id"] for one in judged], [self.property_id])
        self.assertGreater(judged[0]["comparisons"], 0)
        self.assertEqual(document["case"]["mesh"], [{"name": "dp_shard", "size": self.world}])


def main(property_id, world):
    PropertyHolds.property_id, PropertyHolds.world = property_id, int(world)
    result = unittest.TextTestRunner(stream=sys.stdout).run(PropertyHolds())
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
