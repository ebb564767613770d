"""The packages of Python's side, and the modules beside them, import each other in no circle.

Tests are left out: they may look at what is above the module that they try.
"""

import ast
import graphlib
from pathlib import PurePosixPath

from .tree import Finding

ROOT = "verify/python/shardproof/"


def check(tree):
    needs = {}
    for path in tree.python:
        if path.startswith(ROOT) and not path.endswith("_test.py"):
            here = _part(path)
            for line, there in _imports(tree, path):
                if there != here:
                    needs.setdefault(here, {}).setdefault(there, (path, line))
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1][::-1]  # graphlib tells it from what is needed to what needs it
        path, line = needs[circle[0]][circle[1]]
        yield Finding(path, line, f"imports make a circle: {' -> '.join(circle)}")


def _part(path) -> str:
    """The package below shardproof that a file is in, or the module that it is."""
    return path.removeprefix(ROOT).split("/")[0].removesuffix(".py")


def _imports(tree, path):
    """(line, package or module of ours) of each import, wherever in the file it stands."""
    package = ("shardproof", *PurePosixPath(path.removeprefix(ROOT)).parent.parts)
    for node in ast.walk(ast.parse(tree.text(path), path)):
        names = []
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = (*above, *(node.module or "").split(".")) if node.module else above
            whole = module == ("shardproof",)
            names = [(*module, one.name) for one in node.names] if whole else [module]
        elif isinstance(node, ast.Import):
            names = [tuple(one.name.split(".")) for one in node.names]
        for name in names:
            if name[0] == "shardproof" and len(name) > 1:
                yield node.lineno, name[1]
