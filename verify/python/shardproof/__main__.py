"""The command of the installed package: `shardproof`, or `python -m shardproof`.

Becomes the program in _bin, which is built against one torch. A missing or another one is named
here: the loader would say which symbol it lacks, or nothing.
"""

import os
import pathlib
import sys
from importlib import metadata

_BAD_INPUT = 2


def refuse(why):
    print(f"shardproof: {why}", file=sys.stderr)
    sys.exit(_BAD_INPUT)


def check_torch(expected):
    """What follows a +, as in 2.15.0+cpu, changes no interface."""
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        refuse(f"{sys.executable} has no torch: expected {expected}, which it was built against")
    if found.split("+")[0] != expected.split("+")[0]:
        refuse(
            f"{sys.executable} has torch {found}: expected {expected}, which it was built "
            "against; install Shardproof again for this torch"
        )


def main():
    package = pathlib.Path(__file__).resolve().parent
    program = package / "_bin" / "shardproof"
    if not program.exists():
        refuse(f"{program}: no such file; expected a package that pip installed")
    from ._built import TORCH_VERSION

    check_torch(TORCH_VERSION)
    os.environ["SHARDPROOF_PYTHON"] = sys.executable
    started_as = sys.argv[0] if os.access(sys.argv[0], os.X_OK) else "shardproof"
    os.execv(program, [started_as, *sys.argv[1:]])


if __name__ == "__main__":
    main()
