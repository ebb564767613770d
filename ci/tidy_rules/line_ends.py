r"""Text ends each line with \n alone, without blanks before it, and the last one too.

Another end of a line is a change of every line, which hides what has changed.
"""

import re

from .tree import Finding

# Data that others made, or that is broken on purpose.
_LEFT_OUT = re.compile(
    r"(?:^|/)corpus/|^fixtures/fuzz/|^fixtures/stored/megatron/|\.(?:pt|distcp|metadata)$"
)


def check(tree):
    for path in tree.files:
        data = tree.data(path)
        if _LEFT_OUT.search(path) or b"\0" in data:
            continue
        for number, line in enumerate(data.split(b"\n"), 1):
            if b"\r" in line:
                yield Finding(path, number, r"a carriage return: expected \n alone")
            elif line != line.rstrip():
                yield Finding(path, number, "blanks before the end of the line: expected none")
        if data and not data.endswith(b"\n"):
            yield Finding(path, data.count(b"\n") + 1, "the last line has no end: expected one")
