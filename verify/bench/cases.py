#!/usr/bin/env python3
"""Cases a minute: generated ones, simulated and over Gloo, beside a round trip as a PyTorch test.

`--target cases` calls it. The closest rival is a MultiProcContinuousTest, which starts its ranks
once for all its tests; a MultiProcessTestCase starts them for each. All run in turn, round after
round; the table has medians and ratios. Starting the command is in its figures, as starting the
test and its ranks is in theirs. Nothing passes or fails here.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORLD = 4

# What, cases a round, least cases a minute.
GENERATED = [("sim", 600, 6000), ("gloo", 150, 1500)]
# A class of round_trip_tests.py, what it is, tests a round.
TESTS = [("Continuous", "MultiProcContinuousTest", 150), ("Spawned", "MultiProcessTestCase", 3)]


def generated(shardproof, transport, cases, seed, work):
    """Cases a minute of `verify --generate`; raises if one does not pass."""
    result = work / "cases.json"
    began = time.monotonic()
    subprocess.run([shardproof, "verify", "--generate", str(cases), "--transport", transport,
                    "--world", str(WORLD), "--seed", str(seed), "--json", result],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    seconds = time.monotonic() - began
    passed = json.loads(result.read_text())["summary"]["passed"]
    assert passed == cases, f"{passed} of {cases} cases passed"
    return cases / seconds * 60


def test_cases(kind, tests):
    """Tests a minute of a class of round_trip_tests.py; raises if one does not pass."""
    with tempfile.TemporaryDirectory() as scratch:  # what they save
        began = time.monotonic()
        subprocess.run([sys.executable, HERE / "round_trip_tests.py", kind], check=True,
                       env=dict(os.environ, ROUND_TRIP_CASES=str(tests), OMP_NUM_THREADS="1",
                                TMPDIR=scratch),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        return tests / (time.monotonic() - began) * 60


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardproof", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    figures = {name: [] for name in ("sim", "gloo", *(kind for kind, _, _ in TESTS))}
    for number in range(arguments.rounds + 1):  # the first warms up
        for transport, cases, _ in GENERATED:
            figures[transport].append(
                generated(arguments.shardproof, transport, cases, number, arguments.work)
            )
        for kind, _, tests in TESTS:
            figures[kind].append(test_cases(kind, tests))
        print(
            f"round {number}: " + ", ".join(f"{k} {v[-1]:.0f}" for k, v in figures.items()),
            flush=True,
        )
    medians = {what: statistics.median(each[1:]) for what, each in figures.items()}
    print(
        f"\n{platform.processor() or platform.machine()}, {os.cpu_count()} cores; "
        f"cases of {WORLD} ranks a minute, medians of {arguments.rounds} rounds\n"
    )
    kinds = " | ".join(f"times the {what}" for _, what, _ in TESTS)
    print(f"| what | a minute | bound | {kinds} |\n| --- | --- | --- |{' --- |' * len(TESTS)}")
    rows = [
        (f"generated cases, {transport}", transport, f"at least {least:,}")
        for transport, _, least in GENERATED
    ]
    rows += [
        (f"the round trip as a {what}, {tests} a round", kind, "") for kind, what, tests in TESTS
    ]
    for what, name, bound in rows:
        ratios = " | ".join(f"{medians[name] / medians[kind]:,.1f}" for kind, _, _ in TESTS)
        print(f"| {what} | {medians[name]:,.1f} | {bound} | {ratios} |")


if __name__ == "__main__":
    main()
