"""ruff check, with the rules of pyproject.toml, finds nothing."""

import json
import subprocess
from pathlib import Path

from ruff import find_ruff_bin

from .tree import Finding


def ruff(tree, *words):
    """\\returns what it printed. \\raises RuntimeError if it could not look."""
    words = [find_ruff_bin(), *words, "--no-cache", "."]
    done = subprocess.run(words, cwd=tree.root, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"ruff: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def check(tree):
    for one in json.loads(ruff(tree, "check", "--output-format", "json")):
        path = Path(one["filename"]).relative_to(tree.root).as_posix()
        line = one["location"]["row"]
        yield Finding(path, line, f"ruff: {one['code']}: {one['message']}", f"{path}:{one['code']}")
