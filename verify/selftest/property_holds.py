#!/usr/bin/env python3
"""Properties hold on the reference pipeline: property_holds.py WORLD DEVICE [ID]

Judges everything.json on so many ranks with its tensors on that device, by one property with all
others off if one is named, else by all: each must pass, and must have compared something. What a
property cannot judge on a device or in this case it is not asked, but one that is named gets the
case and, where it is about tensors on a device, the device that it needs. Exit code 77: there is no
such device here.
"""

import json
import sys
import unittest

from command import REPOSITORY, CommandTest, without_device

CASE = REPOSITORY / "fixtures" / "cases" / "everything.json"


class PropertyHolds(CommandTest):
    world, device, named = 0, "cpu", None

    def runTest(self):
        listed = self.shardproof("list", "properties", "--json")
        self.assert_exit(listed, 0)
        properties = {one["id"]: one for one in json.loads(listed.out) if not one["only_subjects"]}
        case, device = json.loads(CASE.read_text(encoding="utf-8")), self.device
        if self.named:
            case |= properties[self.named]["case_needs"]
            if properties[self.named]["judged_on"] == "device" and device == "cpu":
                device = "isolated"
            expected = {self.named}
        else:
            other = "device" if device == "cpu" else "host"
            expected = {
                one["id"]
                for one in properties.values()
                if one["judged_on"] != other and one["case_needs"].items() <= case.items()
            }
        words = ["--property", self.named] if self.named else []
        document = self.judged(
            "verify",
            "--case",
            self.write("case.json", case),
            "--world",
            self.world,
            "--device",
            device,
            *words,
            code=0,
        )
        self.assertEqual(document["findings"], [])
        judged = {one["id"]: one for one in document["properties"] if one["verdict"] != "skip"}
        self.assertEqual(set(judged), expected)
        for one in judged.values():
            self.assertGreater(one["comparisons"], 0, one["id"])
        self.assertEqual(document["case"]["mesh"], [{"name": "dp_shard", "size": self.world}])


def main(world, device, named=None):
    if device == "cuda" and (why := without_device(device)):
        print(why)
        return 77
    PropertyHolds.world, PropertyHolds.device, PropertyHolds.named = int(world), device, named
    result = unittest.TextTestRunner(stream=sys.stdout).run(PropertyHolds())
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
