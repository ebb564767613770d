"""src/ includes nothing of the verifier, the oracle nothing of the pipeline; and ci/layers.py.

That reads the include graph and the targets that CMake links, and prints a line for each thing that
its layers forbid, with exit code 1. Where it is not there, that is a finding.
"""

import re
import subprocess
import sys

from .includes import includes_of, reached, unreadable
from .tree import Finding

GRAPH = "ci/layers.py"
ABOVE = ("verify/", "properties/", "fixtures/")
# What the oracle shares with the pipeline: errors, quoting, digests, patterns of names, and the
# names of stages.
SHARED = ("src/core/", "src/text/", "src/digest/", "src/pattern/", "src/stage/")


def check(tree):
    yield from forms(tree)
    yield from src(tree)
    yield from oracle(tree)
    yield from graph(tree)


def forms(tree):
    for path in tree.cpp:
        for line, text in unreadable(tree, path):
            yield Finding(path, line, f'expected #include "path from the top", found {text}')


def src(tree):
    for path in tree.cpp:
        if path.startswith("src/"):
            for line, included in includes_of(tree, path):
                if included.startswith(ABOVE):
                    what = f"src/ includes {included}: expected nothing of {', '.join(ABOVE)}"
                    yield Finding(path, line, what)


def oracle(tree):
    for path in tree.cpp:
        if path.startswith("verify/oracle/"):
            for included, by in sorted(reached(tree, path).items()):
                if included.startswith("src/") and not included.startswith(SHARED):
                    way = "" if by == path else f" by way of {by}"
                    what = f"the oracle includes {included}{way}: expected none of the pipeline"
                    yield Finding(path, 1, what)


def graph(tree):
    if not tree.exists(GRAPH):
        yield Finding(GRAPH, 1, "it is not there: the folders' layers are not looked at")
        return
    words = [sys.executable, GRAPH]
    done = subprocess.run(words, cwd=tree.root, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if done.returncode not in (0, 1) or done.stderr or bool(lines) != (done.returncode == 1):
        raise RuntimeError(
            f"{GRAPH}: exit code {done.returncode}, {len(lines)} lines: expected 1 and what is "
            f"wrong, or 0 and nothing: {done.stderr.strip()}"
        )
    for line in lines:
        match = re.fullmatch(r"([^\s:]+):(\d+): (.+)", line)
        yield Finding(match[1], int(match[2]), match[3]) if match else Finding(GRAPH, 1, line)
