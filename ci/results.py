#!/usr/bin/env python3
"""Says what a run of ctest took and what it skipped; fails if a required label has no test that
ran.

    results.py RESULTS.xml CATALOGUE.json GTEST_DIRECTORY [LABEL ...]

RESULTS is ctest's --output-junit, CATALOGUE its --show-only=json-v1. A program of GoogleTest is one
ctest; its cases, with their times and skips, are in GTEST_DIRECTORY/NAME.xml. A skipped test's
reason is what follows "skipped: " in its output, or what GTEST_SKIP was given, or its last line.
"""

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

SLOWEST = 20
SHOWN_OF_A_REASON = 5


@dataclass
class Test:
    """A ctest, or one case of a program of GoogleTest."""

    name: str
    seconds: float
    skipped: str = ""  # the reason; empty if it ran


def reason_of(testcase):
    """Why a <testcase> of ctest was skipped, in one line."""
    lines = [line.strip() for line in (testcase.findtext("system-out") or "").splitlines()]
    for line in lines:
        if match := re.search(r"\bskip(?:ped)?: (.+)", line, re.IGNORECASE):
            return match[1]
    told = [line for line in lines if line]
    return told[-1] if told else testcase.find("skipped").get("message", "no reason given")


def test_of(testcase):
    """A <testcase> of ctest."""
    skipped = ""
    if testcase.get("status") not in ("run", "fail"):
        has_reason = testcase.find("skipped") is not None
        skipped = reason_of(testcase) if has_reason else testcase.get("status")
    return Test(testcase.get("name"), float(testcase.get("time", 0)), skipped)


def cases_of(program, directory):
    """The cases of a GoogleTest program that is the ctest `program`; none if it is no such program,
    or left no results."""
    try:
        root = ElementTree.parse(Path(directory, f"{program}.xml")).getroot()
    except (OSError, ElementTree.ParseError):
        return []
    cases = []
    for case in root.iter("testcase"):
        if case.get("status") == "notrun":
            continue
        reason = ""
        if (skipped := case.find("skipped")) is not None:
            told = skipped.get("message", "").splitlines() or ["no reason given"]
            reason = re.sub(r"^skip(ped)?: ", "", told[-1])
        name = f"{program}: {case.get('classname')}.{case.get('name')}"
        cases.append(Test(name, float(case.get("time", 0)), reason))
    return cases


def labels_of(catalogue):
    """{test name: its labels}."""
    labels = {}
    for test in catalogue["tests"]:
        properties = {item["name"]: item["value"] for item in test.get("properties", [])}
        labels[test["name"]] = properties.get("LABELS", [])
    return labels


def print_times(tests, cases, labels):
    """Minutes by label, and the slowest tests; of a program of many cases, its slowest cases."""
    minutes, counts = defaultdict(float), defaultdict(int)
    for test in tests:
        for label in labels.get(test.name, []):
            minutes[label] += test.seconds / 60
            counts[label] += 1
    print("minutes by label (a test may have several; two tests run at a time):")
    for label in sorted(minutes, key=minutes.get, reverse=True):
        print(f"    {minutes[label]:6.1f}  {label}, {counts[label]} test(s)")
    print(f"    {sum(test.seconds for test in tests) / 60:6.1f}  all, {len(tests)} test(s)")
    whole = [test for test in tests if test.name not in cases]
    single = [case for of_program in cases.values() for case in of_program]
    print(f"the {SLOWEST} slowest (seconds; NAME: CASE is a case of a program):")
    for test in sorted(whole + single, key=lambda test: test.seconds, reverse=True)[:SLOWEST]:
        print(f"    {test.seconds:6.1f}  {test.name}")


def print_skips(tests):
    """By reason, the first few names of each."""
    names_by_reason = defaultdict(list)
    for test in tests:
        if test.skipped:
            names_by_reason[test.skipped].append(test.name)
    for reason, names in sorted(names_by_reason.items()):
        print(f"skipped, {len(names)} test(s): {reason}")
        for name in names[:SHOWN_OF_A_REASON]:
            print(f"    {name}")
        if len(names) > SHOWN_OF_A_REASON:
            print(f"    and {len(names) - SHOWN_OF_A_REASON} more")


def unmatched_labels(tests, cases, labels, required):
    """The required labels of which no test ran. A program all of whose cases were skipped did
    not."""
    ran = set()
    for test in tests:
        of_program = cases.get(test.name)
        if not test.skipped and (not of_program or any(not case.skipped for case in of_program)):
            ran.update(labels.get(test.name, []))
    return [label for label in required if label not in ran]


def main(results, catalogue, gtest_directory, *required):
    labels = labels_of(json.loads(Path(catalogue).read_text(encoding="utf-8")))
    tests = [test_of(one) for one in ElementTree.parse(results).getroot().iter("testcase")]
    cases = {test.name: found for test in tests if (found := cases_of(test.name, gtest_directory))}
    print_times(tests, cases, labels)
    print_skips(tests + [case for of_program in cases.values() for case in of_program])
    unmatched = unmatched_labels(tests, cases, labels, required)
    for label in unmatched:
        known = sum(label in of_test for of_test in labels.values())
        print(f"label {label}: {known} test(s), none of which ran")
    return 1 if unmatched else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
