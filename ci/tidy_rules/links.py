"""In Markdown, every relative link leads to a file, and so does every path in backticks.

In backticks, a path is what begins with a folder of the top: `verify/cli`, `ci/test -L unit`.
Patterns (`*`, `<id>`) need one match; a placeholder in capitals, as in `verify/X.cc`, needs none.
"""

import posixpath
import re

from .tree import Finding

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_QUOTED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.*<>{}-]+(?:/[\w.*<>{}-]+)*/?")


def check(tree):
    tops = {path.split("/")[0] for path in tree.files if "/" in path}
    for path in tree.markdown:
        for number, line in outside_fences(tree, path):
            for target in _LINK.findall(line):
                if not leads(tree, path, target):
                    yield Finding(path, number, f"the link to {target} leads nowhere")
            for quoted in _QUOTED.findall(line):
                place = quoted.split(" ")[0].partition(":")[0]
                is_path = "/" in place and place.split("/")[0] in tops and _PATH.fullmatch(place)
                if is_path and not names_one(tree, place):
                    yield Finding(path, number, f"`{place}`: there is no such file")


def outside_fences(tree, path):
    is_fenced = False
    for number, line in tree.lines(path):
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
        elif not is_fenced:
            yield number, line


def leads(tree, path, target) -> bool:
    if re.match(r"[a-z]+:|#", target):
        return True
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target.partition("#")[0]))
    return tree.exists(place)


def names_one(tree, place) -> bool:
    if re.search(r"(?:^|[/_])[A-Z]+(?=[/._]|$)", place) and not tree.exists(place):
        return True
    pattern = re.sub(r"<[^>]*>", "*", place)
    if "*" not in pattern and "{" not in pattern:
        return tree.exists(place)
    return any(True for _ in tree.root.glob(re.sub(r"\{[^}]*\}", "*", pattern).rstrip("/")))
