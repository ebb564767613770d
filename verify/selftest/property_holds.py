#!/usr/bin/env python3
"""Properties hold on the reference pipeline: property_holds.py WORLD DEVICE ID [ID ...]

Judges everything.json on so many ranks with its tensors on that device, by one property with all others
off if one is named, else by all: each of those named must pass, and must have compared something. What a
property cannot judge on a device it is not asked. Exit code 77: there is no such device here.
"""

import sys
import unittest

from command import REPOSITORY, CommandTest, without_device

CASE = REPOSITORY / "fixtures" / "cases" / "everything.json"
FAULTS = {
    "fault.every_fault_fires": ["--inject", "file/flip@odd.f32.weight:1"],
    "fault.damage_recovered": ["--inject", "file/rot@1000"],
    **dict.fromkeys(["fault.after_equals_undisturbed", "fault.ends_as_stated", "fault.nothing_leaks",
                     "fault.nothing_lost"], ["--inject", "file/enospc@0", "--judge-faults"]),
}  # fmt: skip
# Of the host's memory alone: where faults act and what commits pages; and of a device's.
HOST_ONLY = {*FAULTS, "memory.no_page_commit"}
DEVICE_ONLY = {"memory.device_peak", "offload.state_where_asked"}


class PropertyHolds(CommandTest):
    world, device, ids = 0, "cpu", ()

    def runTest(self):
        words = ["verify", "--case", CASE, "--world", self.world, "--device", self.device]
        expected = set(self.ids)
        if len(expected) == 1:
            words += ["--property", *expected]
        if len(expected) == 1 and expected <= set(FAULTS):  # judges only a run that has a fault to fire
            words += FAULTS[self.ids[0]]
        elif len(expected) > 1:
            expected -= set(FAULTS) | (DEVICE_ONLY if self.device == "cpu" else HOST_ONLY)
        document = self.judged(*words, code=0)
        self.assertEqual(document["findings"], [])
        judged = {one["id"]: one for one in document["properties"] if one["verdict"] != "skip"}
        self.assertEqual(set(judged), expected)
        for one in judged.values():
            self.assertGreater(one["comparisons"], 0, one["id"])
        self.assertEqual(document["case"]["mesh"], [{"name": "dp_shard", "size": self.world}])


def main(world, device, *ids):
    if device == "cuda" and (why := without_device(device)):
        print(why)
        return 77
    PropertyHolds.world, PropertyHolds.device, PropertyHolds.ids = int(world), device, ids
    result = unittest.TextTestRunner(stream=sys.stdout).run(PropertyHolds())
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
