#!/usr/bin/env python3
"""Cases a minute: generated cases, simulated and over Gloo, beside a round trip as a MultiProcessTestCase.

`--target cases` calls it. The three run in turn, round after round; the table has medians and ratios. Starting
the command is in its figures, as starting ranks is in those of the test case. Nothing passes or fails here.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORLD = 4

# What, cases a round, least cases a minute.
GENERATED = [("sim", 600, 6000), ("gloo", 150, 1500)]
TEST_CASES = 3


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


def test_cases():
    """Tests a minute of multi_process_round_trip.py; raises if one does not pass."""
    began = time.monotonic()
    subprocess.run([sys.executable, HERE / "multi_process_round_trip.py"], check=True,
                   env=dict(os.environ, ROUND_TRIP_CASES=str(TEST_CASES), OMP_NUM_THREADS="1"),
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    return TEST_CASES / (time.monotonic() - began) * 60


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardproof", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    figures = {"sim": [], "gloo": [], "test": []}
    for number in range(arguments.rounds + 1):  # the first warms up
        for transport, cases, _ in GENERATED:
            figures[transport].append(
                generated(arguments.shardproof, transport, cases, number, arguments.work))
        figures["test"].append(test_cases())
        print(f"round {number}: " + ", ".join(f"{k} {v[-1]:.0f}" for k, v in figures.items()),
              flush=True)
    medians = {what: statistics.median(each[1:]) for what, each in figures.items()}
    print(f"\n{platform.processor() or platform.machine()}, {os.cpu_count()} cores; cases of {WORLD} ranks a minute, "
          f"medians of {arguments.rounds} rounds\n")
    print("| what | a minute | bound | times the test case |\n| --- | --- | --- | --- |")
    for transport, _, least in GENERATED:
        print(f"| generated cases, {transport} | {medians[transport]:,.0f} | at least {least:,} | "
              f"{medians[transport] / medians['test']:,.0f} |")
    print(f"| the round trip as a MultiProcessTestCase | {medians['test']:.1f} | | 1 |")


if __name__ == "__main__":
    main()
