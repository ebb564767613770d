"""The command of the installed package: `shardproof`, or `python -m shardproof`.

Becomes the program in _bin, which does what is about files, and for all else becomes the engine of
the package shardproof-engine. That one is built against one torch. Where it is missing, or another
torch is there, the program is told what to say: the loader would name a symbol that it lacks, or
nothing.
"""

import errno
import importlib.util
import os
import pathlib
import platform
import sys
from importlib import metadata

_BAD_INPUT = 2
_PIP = f"{sys.executable} -m pip install"
_BUILD_AGAIN = f"{_PIP} --force-reinstall --no-deps --no-cache-dir shardproof-engine"


def refuse(why):
    print(f"shardproof: {why}", file=sys.stderr)
    sys.exit(_BAD_INPUT)


def find_torch():
    """The folder and the version of the torch that this Python imports, or None. It is not
    imported, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    folder = pathlib.Path(spec.origin).parent
    # Another torch may lie further on in sys.path.
    for found in metadata.distributions(name="torch", path=[str(folder.parent)]):
        return folder, found.version
    try:
        return folder, metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def why_unfit(engine, expected):
    """Why the engine in the folder cannot run, in one line with the command that mends it; or
    None. What follows a +, as in 2.15.0+cpu, changes no interface."""
    torch = find_torch()
    if torch is None:
        return (
            f"{sys.executable} has no torch: expected {expected}, which shardproof-engine was "
            f"built against: {_PIP} torch=={expected}"
        )
    folder, found = torch
    if found.split("+")[0] != expected.split("+")[0]:
        return (
            f"{sys.executable} has torch {found}: expected {expected}, which shardproof-engine was "
            f"built against: {_BUILD_AGAIN}"
        )
    beside = engine.parent / "torch"
    if beside.exists() and beside.resolve() != folder.resolve():
        return (
            f"there are two torches: Python imports that of {folder}, and shardproof-engine would "
            f"load that of {beside}: {_BUILD_AGAIN}"
        )
    return None


def find_engine():
    """\\returns the engine's program, or "", and why there is none to run, in one line."""
    spec = importlib.util.find_spec("shardproof_engine")
    if spec is None or spec.origin is None:
        return "", f"shardproof-engine is not installed: {_PIP} shardproof-engine"
    from shardproof_engine import TORCH_VERSION

    folder = pathlib.Path(spec.origin).resolve().parent
    why = why_unfit(folder, TORCH_VERSION)
    return ("", why) if why else (str(folder / "_bin" / "shardproof-engine"), "")


def why_it_does_not_start(program, error):
    again = f"{_PIP} --force-reinstall shardproof"
    if error.errno == errno.ENOEXEC:
        return f"{program} is not a program for {platform.machine()}: {again}"
    if error.errno == errno.ENOENT:
        return f"{program} needs a Linux with glibc 2.28 or newer, which this is not"
    return f"{program} cannot be run: {error.strerror}"


def main():
    package = pathlib.Path(__file__).resolve().parent
    program = package / "_bin" / "shardproof"
    if not program.exists():
        refuse(f"{program}: no such file; expected a package that pip installed")
    engine, why_none = find_engine()
    os.environ["SHARDPROOF_PYTHON"] = sys.executable
    os.environ["SHARDPROOF_PACKAGE"] = str(package)
    os.environ["SHARDPROOF_ENGINE"] = engine
    os.environ["SHARDPROOF_NO_ENGINE"] = why_none
    started_as = sys.argv[0] if os.access(sys.argv[0], os.X_OK) else "shardproof"
    try:
        os.execv(program, [started_as, *sys.argv[1:]])
    except OSError as error:
        refuse(why_it_does_not_start(program, error))


if __name__ == "__main__":
    main()
