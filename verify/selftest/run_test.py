#!/usr/bin/env python3
"""Runs one method of a unittest module, as one ctest: run_test.py MODULE.CLASS.METHOD

Exit code 0: passed; 1: failed; 77: skipped, with a line "skipped: REASON".
"""

import sys
import unittest


def main(name):
    suite = unittest.defaultTestLoader.loadTestsFromName(name)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    if not result.wasSuccessful() or result.testsRun == 0:
        return 1
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    return 77 if result.skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
