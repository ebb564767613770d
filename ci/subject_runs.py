"""Runs of subjects, one after another, with a Python that imports once for all of them."""

import ast
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import mutants

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "verify" / "python"
WARM = REPOSITORY / "verify" / "selftest" / "warm_python.py"
CRASH = "fault.every_rank_finishes"  # what a rank that raises is told by
SECONDS_MAX = 300


def literal(path, name):
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and [getattr(one, "id", "") for one in node.targets] == [
            name
        ]:
            return ast.literal_eval(node.value)
    return None


def python_of(path, torch):
    """The interpreter of the environment that a subject needs; this one if it needs none."""
    needs = literal(path, "NEEDS")
    if not needs:
        return sys.executable
    command = [REPOSITORY / "ci" / "environment", "--torch", torch, needs]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]


@contextlib.contextmanager
def warm(python):
    """A Python that is `python` and has imported torch before it is started: otherwise most of a
    run's processor time is imports."""
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        path = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")]))
        os.environ |= {"SHARDPROOF_BUILD": folder, "SHARDPROOF_TORCH_PYTHON": python,
                       "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}  # fmt: skip
        subprocess.run([WARM, "start"], check=True)
        try:
            yield str(WARM)
        finally:
            subprocess.run([WARM, "stop"], check=True)


def ran(program, words, result):
    """(verdict, by what or why) of one run of the command: named by a property, crashed,
    inconclusive, compared less (which only a baseline says), or pass."""
    command = [program, "verify", "--json", result, "--no-confirm", *words]
    Path(result).unlink(missing_ok=True)  # of a run before
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return "crashed", "hang"
    if done.returncode == 0:
        return "pass", ""
    document = mutants.read(result)
    if document is None:
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return "inconclusive", said
    verdict, by, _ = mutants.of_case(document)
    if verdict == "caught":
        only_crashed = {one["property"] for one in document["findings"]} == {CRASH}
        verdict = "crashed" if only_crashed else "named"
    elif not any(one["verdict"] == "inconclusive" for one in document["properties"]):
        notes = document.get("gate", {}).get("notes")
        verdict, by = ("compared less", notes[0]) if notes else (verdict, by)
    return verdict, by
