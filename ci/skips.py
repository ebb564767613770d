#!/usr/bin/env python3
"""Lists the tests that ctest skipped, by reason, and fails if a required label has no test that ran.

    skips.py RESULTS.xml CATALOGUE.json [LABEL ...]

RESULTS is ctest's --output-junit, CATALOGUE its --show-only=json-v1. A skipped test's reason is what
follows "skipped: " in its output, or what GoogleTest prints for GTEST_SKIP, or its last line.
"""

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict


def reason_of(testcase):
    """Why a <testcase> was skipped, in one line."""
    lines = [line.strip() for line in (testcase.findtext("system-out") or "").splitlines()]
    for line in lines:
        if match := re.search(r"\bskip(?:ped)?: (.+)", line, re.IGNORECASE):
            return match[1]
    for line, following in zip(lines, lines[1:]):
        if line.endswith(": Skipped"):
            return following
    told = [line for line in lines if line]
    return told[-1] if told else testcase.find("skipped").get("message", "no reason given")


def labels_of(catalogue):
    """{test name: its labels}."""
    labels = {}
    for test in catalogue["tests"]:
        properties = {item["name"]: item["value"] for item in test.get("properties", [])}
        labels[test["name"]] = properties.get("LABELS", [])
    return labels


def main(results, catalogue, *required):
    with open(catalogue, encoding="utf-8") as file:
        labels = labels_of(json.load(file))
    skipped, ran = defaultdict(list), set()
    for testcase in ElementTree.parse(results).getroot().iter("testcase"):
        if testcase.get("status") in ("run", "fail"):
            ran.update(labels.get(testcase.get("name"), []))
        else:
            found = testcase.find("skipped")
            reason = reason_of(testcase) if found is not None else testcase.get("status")
            skipped[reason].append(testcase.get("name"))

    for reason, names in sorted(skipped.items()):
        print(f"skipped, {len(names)} test(s): {reason}")
        for name in names[:5]:
            print(f"    {name}")
        if len(names) > 5:
            print(f"    and {len(names) - 5} more")
    unmatched = [label for label in required if label not in ran]
    for label in unmatched:
        known = sum(label in of_test for of_test in labels.values())
        print(f"label {label}: {known} test(s), none of which ran")
    return 1 if unmatched else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
