"""clang-format 14, with the .clang-format of the folder, changes nothing."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import clang_format

from .tree import Finding

# As Debian 12's: another one lays out lines otherwise.
VERSION = "14.0.6"
_AT_ONCE = 100


def check(tree):
    program = str(Path(clang_format.__file__).parent / "data/bin/clang-format")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if f"version {VERSION}" not in said:
        raise RuntimeError(
            f"{said.strip()}: expected version {VERSION}, as ci/requirements pins it"
        )

    def look(paths):
        words = [program, "--dry-run", "--ferror-limit=0", *paths]
        done = subprocess.run(words, cwd=tree.root, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"clang-format: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stderr

    groups = [tree.cpp[i : i + _AT_ONCE] for i in range(0, len(tree.cpp), _AT_ONCE)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for text in pool.map(look, groups):
            yield from findings_of(text)


def findings_of(text):
    """One a line that it would change."""
    seen = set()
    for match in re.finditer(r"^(.+?):(\d+):\d+: (?:warning|error): ", text, re.MULTILINE):
        place = match[1], int(match[2])
        if place not in seen:
            seen.add(place)
            yield Finding(*place, "expected as clang-format 14 lays it out")
