"""The files that rules look at, and what they find in them."""

import dataclasses
import functools
import os
from pathlib import Path, PurePosixPath

# Not part of the repository: what is built, installed or cached.
_LEFT_OUT_AT_TOP = {".git", ".venv", "build"}
_LEFT_OUT = {"__pycache__", ".pytest_cache", ".ruff_cache"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that breaks a rule.

    key: what an exception names, without blanks; the file if it is "".
    size: how much of the rule it breaks; an exception allows so much of one key in total.
    """

    path: str
    line: int
    what: str
    key: str = ""
    size: int = 1

    @property
    def exception(self) -> str:
        return self.key or self.path

    def __str__(self):
        return f"{self.path}:{self.line}: {self.what}"


class Tree:
    """A checkout at `root`. Paths are relative to it, with slashes. Keeps what it has read."""

    def __init__(self, root):
        self.root = Path(root)

    @functools.cached_property
    def files(self) -> list[str]:
        """Sorted; links and what is ignored left out."""
        found = []
        for folder, folders, names in os.walk(self.root):
            is_top = Path(folder) == self.root
            left_out = _LEFT_OUT | (_LEFT_OUT_AT_TOP if is_top else set())
            folders[:] = [
                name for name in folders if name not in left_out and not name.endswith(".egg-info")
            ]
            paths = (Path(folder, name) for name in names)
            found += [p.relative_to(self.root).as_posix() for p in paths if not p.is_symlink()]
        return sorted(found)

    @functools.cached_property
    def cpp(self) -> list[str]:
        return self.named(".cc", ".h", ".hpp", ".c", ".cu", ".cuh")

    @functools.cached_property
    def python(self) -> list[str]:
        return self.named(".py")

    @functools.cached_property
    def cmake(self) -> list[str]:
        return [path for path in self.named(".cmake", ".txt") if _is_cmake(path)]

    @functools.cached_property
    def shell(self) -> list[str]:
        """Those that begin with #!/usr/bin/env bash."""
        plain = [path for path in self.files if "." not in PurePosixPath(path).name]
        plain += [path for path in self.files if path.startswith(".ci/")]
        return [path for path in plain if self.data(path)[:64].startswith(b"#!/usr/bin/env bash")]

    @functools.cached_property
    def markdown(self) -> list[str]:
        return self.named(".md")

    def named(self, *endings) -> list[str]:
        return [path for path in self.files if path.endswith(endings)]

    @functools.cache  # noqa: B019
    def data(self, path) -> bytes:
        return (self.root / path).read_bytes()

    @functools.cache  # noqa: B019
    def text(self, path) -> str:
        return self.data(path).decode("utf-8", "replace")

    def lines(self, path):
        """(number from 1, line without its end) of each."""
        return enumerate(self.text(path).split("\n"), 1)

    def exists(self, path) -> bool:
        return (self.root / path).exists()


def _is_cmake(path) -> bool:
    return path.endswith(".cmake") or PurePosixPath(path).name == "CMakeLists.txt"
