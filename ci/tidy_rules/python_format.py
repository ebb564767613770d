"""ruff format, as pyproject.toml says, changes nothing."""

import json
from pathlib import Path

from .python_check import ruff
from .tree import Finding


def check(tree):
    told = json.loads(ruff(tree, "format", "--check", "--output-format", "json"))
    for path in sorted({one["filename"] for one in told}):
        path = Path(path).relative_to(tree.root).as_posix()
        yield Finding(path, 1, "expected as `ruff format` lays it out")
