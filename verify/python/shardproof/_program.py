"""The command `shardproof`, as the Python side finds it."""

import pathlib
import shutil


def find() -> str | None:
    """The program of the installed package, else what PATH has."""
    beside = pathlib.Path(__file__).parent / "_bin" / "shardproof"
    return str(beside) if beside.exists() else shutil.which("shardproof")
