"""The include graph, from the text of files: "quoted" includes, by their path from the top.

No other form can be read so: an include of ours in angle brackets, or by a macro, is a finding.
"""

import posixpath
import re

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
_OTHER = re.compile(
    r"^\s*(?:/\*.*?\*/\s*)?#\s*(?:include\s*(?:<(?:src|verify|properties|fixtures)/|[A-Za-z_])"
    r"|(?:include_next|import)\b)|^\s*/\*.*?\*/\s*#\s*include"
)


def unreadable(tree, path):
    """(line, text) of each include that the graph does not show."""
    for number, line in tree.lines(path):
        if _OTHER.match(line):
            yield number, line.strip()


def includes_of(tree, path):
    """(line, path of the included file) of each that is a file here."""
    for number, line in tree.lines(path):
        if match := _INCLUDE.match(line):
            beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
            yield number, match[1] if tree.exists(match[1]) else beside


def reached(tree, path) -> dict[str, str]:
    """What a file includes, by way of others too: each with the file that includes it."""
    found = {}
    waiting = [path]
    while waiting:
        by = waiting.pop()
        for _, included in includes_of(tree, by):
            if included not in found and tree.exists(included):
                found[included] = by
                waiting.append(included)
    return found
