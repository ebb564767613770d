#!/usr/bin/env python3
"""Holds every #include of C++ against layers.cmake: ci/layers.py [ROOT]

Prints, one a line: an include that the folder's module does not depend on, a dependency that no
include needs, a folder that layers.cmake does not name, an include of a file that is not there, and
circles of files. Exit code: 0 if nothing is printed, else 1."""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

LISTS = ("FOLDERS", "DEPENDS", "TEST_DEPENDS")
# Made where another target needs it whole, so it is linked but not included.
LINKED_ONLY = {"faults"}


@dataclass
class Module:
    name: str
    place: int  # in layers.cmake, ground first
    lists: dict = field(default_factory=lambda: {key: [] for key in LISTS})


def modules_of(text):
    """The modules of layers.cmake by name."""
    text = re.sub(r"#.*", "", text)
    modules = {}
    for call in re.findall(r"shardproof_(?:module|interface)\(([^)]*)\)", text):
        words = call.split()
        module = Module(words[words.index("NAME") + 1], len(modules))
        key = None
        for word in words:
            if word in LISTS:
                key = word
            elif word.isupper():
                key = None
            elif key:
                module.lists[key].append(word)
        modules[module.name] = module
    return modules


def includes_of(root):
    """(file, line, included file) of every include of a file of the project."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "*.cc", "*.h", "*.hpp", "*.inc"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    for name in sorted(set(listed.stdout.splitlines())):
        if not (root / name).is_file():
            continue
        for number, line in enumerate((root / name).read_text().splitlines(), 1):
            if found := re.match(r'\s*#\s*include\s*"([^"]+)"', line):
                yield name, number, found[1]


def is_test(name):
    """Whether only tests compile a file: they may include what is above their module."""
    return re.search(r"(_test\.cc|/fixture_\w+\.h)$", name) is not None


def circles(edges):
    """The first circle found from each file that is on one, as lists of files."""
    state, path, found = {}, [], []

    def walk(node):
        state[node] = "open"
        path.append(node)
        for other in sorted(edges.get(node, ())):
            if state.get(other) == "open":
                found.append(path[path.index(other) :] + [other])
            elif other not in state:
                walk(other)
        path.pop()
        state[node] = "done"

    for node in sorted(edges):
        if node not in state:
            walk(node)
    return found


def between_folders(edges):
    """The include graph of folders, without tests, which may include what is above them."""
    graph = {}
    for name, included in edges.items():
        for other in () if is_test(name) else included:
            source, target = name.rpartition("/")[0], other.rpartition("/")[0]
            if source != target:
                graph.setdefault(source, set()).add(target)
    return graph


def complaints(root):
    modules = modules_of((root / "layers.cmake").read_text())
    folders = {folder: module for module in modules.values() for folder in module.lists["FOLDERS"]}

    def module_of(name):
        """By the nearest folder above; what lies between the folders of one module is its, too."""
        parts = name.split("/")[:-1]
        for count in range(len(parts), 0, -1):
            folder = "/".join(parts[:count])
            if folder in folders:
                return folders[folder]
        return next(
            (folders[one] for one in folders if one.startswith(parts[0] + "/") and len(parts) == 1),
            None,
        )

    for module in modules.values():
        for target in module.lists["DEPENDS"]:
            if target in modules and modules[target].place >= module.place:
                yield (
                    f"layers.cmake: {module.name} depends on {target}, "
                    "which is not declared above it"
                )
    edges, used = {}, set()
    for name, number, included in includes_of(root):
        where = f"{name}:{number}"
        if not (root / included).is_file():
            yield (
                f"{where}: includes {included}, which is not there (from the root of the checkout)"
            )
            continue
        edges.setdefault(name, set()).add(included)
        source, target = module_of(name), module_of(included)
        missing = [one for one, module in ((name, source), (included, target)) if module is None]
        if missing:
            yield f"{where}: {missing[0]}: layers.cmake does not name its folder"
            continue
        if source is target:
            continue
        if (
            target.name in source.lists["DEPENDS"]
            or is_test(name)
            and target.name in source.lists["TEST_DEPENDS"]
        ):
            used.add((source.name, target.name))
        else:
            direction = "up" if target.place > source.place else "down"
            yield (
                f"{where}: includes {included}, {direction}: "
                f"{source.name} does not depend on {target.name}"
            )
    for module in modules.values():
        for key in ("DEPENDS", "TEST_DEPENDS"):
            for target in module.lists[key]:
                if (
                    target in modules
                    and target not in LINKED_ONLY
                    and (module.name, target) not in used
                ):
                    yield (
                        f"layers.cmake: {module.name} includes nothing of {target}, "
                        f"which its {key} name"
                    )
    for circle in circles(edges):
        yield "circle: " + " -> ".join(circle)
    for circle in circles(between_folders(edges)):
        yield "circle of folders: " + " -> ".join(circle)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
    lines = list(complaints(root))
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
