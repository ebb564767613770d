#!/usr/bin/env python3
"""A case of fixtures/cases passes under all properties: by its own strategy if it names one, else
by each.

    case_passes.py FILE [DEVICE]

Exit code 77: there is no such device here.
"""

import json
import sys
import unittest
from pathlib import Path

from command import REPOSITORY, CommandTest, without_device

SCHEMA = REPOSITORY / "fixtures" / "schema" / "case.schema.json"


class CasePasses(CommandTest):
    path, device = "", "cpu"

    def runTest(self):
        case = json.loads(Path(self.path).read_text(encoding="utf-8"))
        if self.device == "cpu":  # a machine with a GPU need not have the library
            import jsonschema

            jsonschema.validate(case, json.loads(SCHEMA.read_text(encoding="utf-8")))
        self.assertTrue(case.get("why"), "does not say what it is for")
        every = ("rank0-broadcast", "rank0-scatter", "each-reads-own", "plain")
        for strategy in (case["strategy"],) if "strategy" in case else every:
            with self.subTest(strategy=strategy):
                words = [
                    "verify",
                    "--case",
                    self.path,
                    "--strategy",
                    strategy,
                    "--device",
                    self.device,
                ]
                # Each rank of each phase starts CUDA anew, which takes seconds.
                timeout = 60 if self.device == "cpu" else 150
                document = self.judged(*words, code=0, timeout=timeout)
                self.assertEqual(document["findings"], [])
                self.assertGreater(document["compared"]["comparisons"], 0)


def main(path, device="cpu"):
    if device == "cuda" and (why := without_device(device)):
        print(why)
        return 77
    CasePasses.path, CasePasses.device = path, device
    result = unittest.TextTestRunner(stream=sys.stdout).run(CasePasses())
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
