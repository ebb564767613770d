"""Ids are paths: of properties, planted bugs, faults and decisions; those written of exist."""

import re
from pathlib import PurePosixPath

from .tree import Finding

_ID = re.compile(r'\.id = "([^"]+)"')


def check(tree):
    properties = ids_in(tree, "properties/", "PropertyRegistration")
    bugs = ids_in(tree, "fixtures/bugs/", "BugRegistration")
    for path, ids in properties.items():
        place = PurePosixPath(path)
        yield from held(path, ids, f"{place.parent.name}.{place.stem}")
    for path, ids in bugs.items():
        yield from held(path, ids, PurePosixPath(path).stem, lambda one: one.replace(".", "_"))
    yield from faults(tree)
    yield from written(tree, [one for ids in (properties | bugs).values() for _, one in ids])
    yield from decisions(tree)


def ids_in(tree, folder, mark) -> dict[str, list[tuple[int, str]]]:
    """By file that has the mark: (line, id) of each."""
    return {
        path: [(n, m[1]) for n, line in tree.lines(path) for m in _ID.finditer(line)]
        for path in tree.cpp
        if path.startswith(folder) and path.endswith(".cc") and mark in tree.text(path)
    }


def held(path, ids, expected, as_in_path=str):
    for line, one in ids:
        if as_in_path(one) != expected:
            yield Finding(
                path, line, f"the id is '{one}': expected one that is '{expected}' as a path"
            )
    if not ids:
        yield Finding(path, 1, f"no id in it: expected one that is '{expected}' as a path")


def faults(tree):
    """A fault's id may be an argument: that it stands in its file as a literal is what is asked."""
    for path in tree.cpp:
        stem = PurePosixPath(path).stem
        if (
            path.startswith("verify/faults/")
            and "_" in stem
            and "FaultRegistration" in tree.text(path)
        ):
            literals = re.findall(r'"([a-z]+/[a-z-]+)"', tree.text(path))
            if stem not in {re.sub("[-/]", "_", one) for one in literals}:
                yield Finding(path, 1, f"no id in it that is '{stem}' as a path")


def written(tree, known):
    """In Markdown, `domain.name` is a property or bug, `subject.name` one of fixtures/subjects."""
    fields = "".join(tree.text(p) for p in tree.named(".json") if p.startswith("fixtures/schema/"))
    domains = {one.split(".")[0] for one in known}
    subjects = {PurePosixPath(p).stem for p in tree.python if p.startswith("fixtures/subjects/")}
    for path in tree.markdown:
        for number, line in tree.lines(path):
            for domain, name in re.findall(r"`([a-z]+)\.([a-z]\w+)`", line):
                if domain == "subject" and name not in subjects and subjects:
                    yield Finding(path, number, f"`subject.{name}`: there is no such subject")
                elif (
                    domain in domains
                    and f"{domain}.{name}" not in known
                    and not (name in _ENDINGS or f'"{name}"' in fields)
                ):
                    yield Finding(
                        path, number, f"`{domain}.{name}`: no such property or planted bug"
                    )


def decisions(tree):
    """Numbered from 1 without a gap, and those that are written of are there."""
    found = [path for path in tree.markdown if "/decisions/" in path]
    numbers = []
    for path in found:
        match = re.match(r"(\d{4})-[a-z0-9-]+\.md$", PurePosixPath(path).name)
        if match:
            numbers.append(int(match[1]))
        elif PurePosixPath(path).name != "README.md":
            yield Finding(path, 1, "the name is not NNNN-what-was-decided.md")
    for wanted, number in enumerate(sorted(numbers), 1):
        if number != wanted:
            yield Finding(
                found[0], 1, f"decision {number:04}: expected {wanted:04} next, each number once"
            )
            return
    for path in [*tree.markdown, *tree.cpp, *tree.python]:
        for number, line in tree.lines(path):
            for said in re.findall(r"\b[Dd]ecision (\d{4})\b", line):
                if numbers and int(said) not in numbers:
                    yield Finding(path, number, f"decision {said}: there is none")


_ENDINGS = {"py", "cc", "md", "json"}
