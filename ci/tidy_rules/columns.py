"""No line of C++, Python, CMake or shell is longer than 100 columns."""

from .tree import Finding

COLUMNS_MAX = 100


def check(tree):
    for path in [*tree.cpp, *tree.python, *tree.cmake, *tree.shell]:
        for number, line in tree.lines(path):
            if len(line) > COLUMNS_MAX:
                yield Finding(path, number, f"{len(line)} columns: expected at most {COLUMNS_MAX}")
