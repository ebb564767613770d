"""No file of C++ or Python is longer than 500 lines. An exception says how long its file is."""

from .tree import Finding

LINES_MAX = 500


def check(tree):
    for path in [*tree.cpp, *tree.python]:
        count = tree.text(path).count("\n")
        if count > LINES_MAX:
            what = f"{count} lines: expected at most {LINES_MAX}"
            yield Finding(path, LINES_MAX + 1, what, size=count)
