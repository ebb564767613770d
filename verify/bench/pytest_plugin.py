#!/usr/bin/env python3
"""60 tests of 2 ranks by the pytest plugin, beside the same tests as PyTorch's test cases.

`--target pytest_plugin` calls it. All run in turn, round after round; the table has medians, the
start of pytest and of all ranks included. Seconds of the cores are those that all processes used,
which other load changes less. A MultiProcessTestCase starts its ranks for each test, so
that only a few of its tests are run in a round. Nothing passes or fails here.
"""

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "python"
WORLD = 2

# What, tests a round, the command.
PLUGIN = ["-m", "pytest", "-q", "-p", "shardproof.pytest_plugin", "-p", "no:cacheprovider",
          "-c", os.devnull, f"--rootdir={HERE}", HERE / "round_trip_plugin.py"]  # fmt: skip
CONTENDERS = [
    ("the pytest plugin", 60, PLUGIN),
    ("`MultiProcContinuousTest`", 60, [HERE / "round_trip_tests.py", "Continuous"]),
    ("`MultiProcessTestCase`", 3, [HERE / "round_trip_tests.py", "Spawned"]),
]


def cores_seconds():
    """Of all processes that ended so far, down from this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_of(tests, command):
    """Of one run, on the clock and of the cores; raises if a test does not pass."""
    with tempfile.TemporaryDirectory() as scratch:  # what they save
        environment = dict(os.environ, ROUND_TRIP_CASES=str(tests), ROUND_TRIP_WORLD=str(WORLD),
                           OMP_NUM_THREADS="1", TMPDIR=scratch,
                           PYTHONPATH=f"{PACKAGE}{os.pathsep}{HERE}")  # fmt: skip
        began, used = time.monotonic(), cores_seconds()
        done = subprocess.run([sys.executable, *command], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        seconds = time.monotonic() - began, cores_seconds() - used
    ran = f"{tests} passed" in done.stdout or f"Ran {tests} tests" in done.stdout
    assert done.returncode == 0 and ran, done.stdout
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="at least 1; one more warms up")
    arguments = parser.parse_args()
    figures = {what: [] for what, _, _ in CONTENDERS}
    for number in range(arguments.rounds + 1):  # the first warms up
        for what, tests, command in CONTENDERS:
            figures[what].append(seconds_of(tests, command))
        print(f"round {number}: " + ", ".join(f"{k} {v[-1][0]:.1f} s, of the cores "
              f"{v[-1][1]:.1f} s" for k, v in figures.items()) + ";",
              f"load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    print(f"\n{platform.processor() or platform.machine()}, {os.cpu_count()} cores; tests of "
          f"{WORLD} ranks, medians of {arguments.rounds} rounds\n")  # fmt: skip
    print("| what | tests | seconds | least, most | of the cores | a test | of the cores |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for what, tests, _ in CONTENDERS:
        found = [clock for clock, _ in figures[what][1:]]
        median = statistics.median(found)
        cores = statistics.median(cores for _, cores in figures[what][1:])
        print(f"| {what} | {tests} | {median:.1f} | {min(found):.1f}, {max(found):.1f} | "
              f"{cores:.1f} | {median / tests:.2f} | {cores / tests:.2f} |")  # fmt: skip


if __name__ == "__main__":
    main()
