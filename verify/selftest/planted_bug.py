#!/usr/bin/env python3
"""A planted bug is caught by each property that it names, alone: planted_bug.py ID

Each of the properties in the bug's killed_by, with all others off, must fail, with findings of its
own. The same case without the bug must pass under all properties: what is found is the bug.
"""

import sys
import unittest

from command import CommandTest
from registry import listed_bugs

HANG = 4
OF_VALUES = ("differs", "clobbered", "dtype", "shape")  # held against something


class PlantedBug(CommandTest):
    bug = ""

    def runTest(self):
        killers = listed_bugs(self.shardproof("list", "bugs").out)[self.bug]
        self.assertTrue(killers, "names no property that must catch it")
        for killer in killers:
            with self.subTest(property=killer):
                self.is_caught(killer)
        with self.subTest("without the bug"):
            self.is_clean(killers)

    def run_with(self, killer):
        return self.shardproof("verify", "--bug", self.bug, "--property", killer, "--json", "-")

    def is_caught(self, killer):
        done = self.run_with(killer)
        self.assertIn(done.code, (1, HANG), str(done))
        findings = done.json()["findings"]
        self.assertEqual({finding["property"] for finding in findings}, {killer}, str(done))
        if done.code == HANG:
            self.assertIn("hang", {finding["kind"] for finding in findings}, str(done))
        for finding in findings:
            if finding["kind"] in OF_VALUES:
                self.assertIn("what", finding.get("against", {}), finding["message"])

    def is_clean(self, killers):
        case = self.run_with(killers[0]).json()["case"]
        self.assertEqual(case["bug"], self.bug)
        path = self.write("clean.json", {**case, "bug": ""})
        document = self.judged("replay", path, code=0)
        self.assertEqual(document["findings"], [])
        verdicts = {one["id"]: one["verdict"] for one in document["properties"]}
        for killer in killers:
            self.assertEqual(verdicts[killer], "pass", f"{killer} did not judge the clean case")


def main(bug):
    PlantedBug.bug = bug
    result = unittest.TextTestRunner(stream=sys.stdout).run(PlantedBug())
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
