"""Reads what `shardproof list` prints, and what the source tree holds."""

import ast
import re

from command import REPOSITORY


def listed_ids(text):
    """The ids, in order: the lines that are not indented, without @WHERE."""
    return [line.split("@")[0] for line in text.splitlines() if line and not line.startswith(" ")]


def listed_bugs(text):
    """{bug: [property that must catch it]} of `list bugs`."""
    bugs, current = {}, None
    for line in text.splitlines():
        if line and not line.startswith(" "):
            current = line
        elif match := re.fullmatch(r"  must turn red: (.*)", line):
            bugs[current] = [name for name in match[1].split(", ") if name]
    return bugs


def listed_killers(text):
    """{property: [bug that it must catch]} of `list properties`."""
    killers, current = {}, None
    for line in text.splitlines():
        if line and not line.startswith(" "):
            current = line
        elif match := re.fullmatch(r"  killed by: (.*)", line):
            killers[current] = [name for name in match[1].split(", ") if name]
    return killers


def sources_with(pattern, mark):
    """The .cc files below the repository that match the pattern and hold the mark."""
    return [path for path in sorted(REPOSITORY.glob(pattern))
            if mark in path.read_text(encoding="utf-8")]  # fmt: skip


def properties_on_disk():
    """Ids, which are the paths."""
    files = sources_with("properties/*/*.cc", "PropertyRegistration")
    return sorted(f"{path.parent.name}.{path.stem}" for path in files)


def bugs_on_disk():
    """Ids, which are the file names with the first underscore a dot."""
    files = sources_with("fixtures/bugs/*.cc", "BugRegistration")
    return sorted(path.stem.replace("_", ".", 1) for path in files)


def faults_on_disk():
    """Ids, which are the file names with the first underscore a slash, and others hyphens."""
    files = sources_with("verify/faults/*.cc", "const FaultRegistration")
    return sorted(path.stem.replace("_", "/", 1).replace("_", "-") for path in files)


def constants_of(path):
    """{name: text} of what a module gives a name to at its top."""
    named = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts, strict=True)
        for one, text in pairs:
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                named[one.id] = text.value
    return named
