"""The command: python -m tidy_rules, which ci/tidy runs."""

import argparse
import importlib
import sys
from pathlib import Path

from . import exceptions
from .tree import Tree

RULES = {
    "layers": "src/ and the oracle include only what they may; folders make no circle",
    "python_layers": "packages of Python make no circle",
    "cpp_format": "clang-format 14 changes nothing",
    "columns": "no line of C++, Python, CMake or shell is longer than 100 columns",
    "line_ends": "text ends every line with a line feed alone",
    "sizes": "no file of C++ or Python is longer than 500 lines",
    "functions": "no function of C++ or Python, nor what a script does, is longer than 70 lines",
    "dead_files": "every file is built, included, imported or named by another",
    "ids": "ids of properties, bugs, faults and decisions are their paths",
    "phase_names": "C++ names phases and stages by their enumerators, not by literals",
    "links": "links and paths in Markdown lead somewhere",
    "words": "nothing names a machine's own paths or a registry's host",
    "read_back": "no code reads a sentence of a finding or an error back",
    "python_check": "ruff check finds nothing",
    "python_format": "ruff format changes nothing",
    "exceptions": "the list of exceptions allows no more than in earlier commits",
}


def main():
    shown = "\n".join(f"  {name:14} {what}" for name, what in RULES.items())
    parser = argparse.ArgumentParser(
        prog="ci/tidy",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Holds files against rules, and prints what breaks them: FILE:LINE: what.\n\n"
        f"Rules:\n{shown}\n\n"
        f"{exceptions.PATH} lists what may break them for now; it may only shrink.",
        epilog="Exit code: 0 nothing is wrong, 1 something is, 2 a rule cannot be looked at.",
    )
    parser.add_argument("rules", nargs="*", metavar="RULE", help="only these")
    parser.add_argument("--root", type=Path, default=Path(), help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true", help="heed no exceptions")
    parser.add_argument(
        "--shrink", action="store_true", help="take out of the exceptions what is no longer needed"
    )
    options = parser.parse_args()
    unknown = [rule for rule in options.rules if rule not in RULES]
    if unknown:
        parser.error(f"unknown rule '{unknown[0]}': expected one of {', '.join(RULES)}")
    try:
        sys.exit(run(options))
    except (exceptions.BadList, ImportError, OSError, RuntimeError) as error:
        print(f"ci/tidy: {error}", file=sys.stderr)
        sys.exit(2)


def run(options) -> int:
    tree = Tree(options.root.resolve())
    listed = tree.root / exceptions.PATH
    text = "" if options.all or not listed.exists() else listed.read_text(encoding="utf-8")
    allowed = exceptions.parse(text)
    names = options.rules or list(RULES)
    found = {name: list(module(name).check(tree)) for name in names}
    if options.shrink:
        text = exceptions.shrunk(text, found)
        listed.write_text(text, encoding="utf-8")
        allowed = exceptions.parse(text)
    wrong = [
        finding
        for name in names
        for finding in exceptions.judge(found[name], allowed.get(name, {}))
    ]
    if unknown := allowed.keys() - RULES:
        raise exceptions.BadList(f"{exceptions.PATH}: [{min(unknown)}] is no rule")
    for finding in dict.fromkeys(wrong):
        print(finding)
    left = sum(size for name in names for size, _ in allowed.get(name, {}).values())
    print(
        f"ci/tidy: {len(tree.files)} files, {len(names)} rules: {len(wrong)} found; excused: {left}"
    )
    return 1 if wrong else 0


def module(name):
    return importlib.import_module(f".{name}", __package__)


if __name__ == "__main__":
    main()
