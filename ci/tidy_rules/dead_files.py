"""No file is unused: a header is included, a source compiled, a script run, a template read.

A source is compiled if CMake's lists above it take the whole folder, or if one or a script names
it; programs (main.cc, *_main.cc, *_bench.cc, *_fuzz.cc) have to be named. All else is used if
another file has its name, or if it lies in a folder whose files are found by a pattern.
"""

import posixpath
import re
from pathlib import PurePosixPath

from .includes import includes_of
from .tree import Finding

# Found by a pattern, each by the file that is named.
FOUND = {
    r"^fixtures/subjects/.*\.py$": "verify/selftest/CMakeLists.txt",
    r"^fixtures/issues/[^/]+/.*\.py$": "verify/selftest/CMakeLists.txt",
    r"^verify/selftest/test_.*\.py$": "verify/selftest/CMakeLists.txt",
    r"^verify/subjects/.*\.py$": "verify/python/CMakeLists.txt",
    r"_test\.py$": "ci/CMakeLists.txt",
    r"^ci/tidy_rules/": "ci/tidy",
}
_PROGRAM = re.compile(r"(?:^|_)(?:main|bench|fuzz)$")


def check(tree):
    included = {place for path in tree.cpp for _, place in includes_of(tree, path)}
    words = {path: words_of(tree, path) for path in [*tree.cmake, *tree.shell]}
    for path in tree.cpp:
        if path.endswith((".h", ".hpp", ".cuh")):
            if path not in included:
                yield Finding(path, 1, "nothing includes it")
        elif path not in included and not is_compiled(path, words):
            yield Finding(
                path, 1, "nothing compiles it: expected its folder or itself in a CMakeLists.txt"
            )
    yield from unnamed(tree)


def words_of(tree, path) -> set[str]:
    text = re.sub(r"#.*", "", tree.text(path))
    return {word.strip("\"'") for word in re.split(r"[\s()=]+", text)}


def is_compiled(path, words) -> bool:
    place = PurePosixPath(path)
    from_above = f"{place.parent.name}/{place.name}"
    if any(
        word == path or word.endswith(f"/{from_above}")
        for listed in words.values()
        for word in listed
    ):
        return True
    for folder in place.parents:
        own = place.relative_to(folder).as_posix()
        whole = posixpath.dirname(own) or "."
        for listed in (w for by, w in words.items() if PurePosixPath(by).parent == folder):
            if own in listed or any(word.endswith(f"/{own}") for word in listed):
                return True
            takes_all = f"{whole}/*.cc" in listed or whole in listed
            takes_all = takes_all or (whole == "." and takes_own(listed))
            if takes_all and not _PROGRAM.search(place.stem):
                return True
    return False


def takes_own(listed) -> bool:
    return "*.cc" in listed or ("shardproof_module" in listed and "FOLDERS" not in listed)


def unnamed(tree):
    """Scripts, templates and included lists that no other file has the name of."""
    texts = {
        p: tree.text(p) for p in tree.files if p.endswith(_CODE) or "." not in PurePosixPath(p).name
    }
    for path in [*tree.python, *tree.named(".j2", ".inc", ".map")]:
        place = PurePosixPath(path)
        if place.stem in ("__init__", "__main__") or any(
            re.search(pattern, path) and tree.exists(by) for pattern, by in FOUND.items()
        ):
            continue
        name = re.compile(rf"(?<![\w]){re.escape(place.stem)}(?![\w])")
        if not any(name.search(text) for other, text in texts.items() if other != path):
            yield Finding(
                path, 1, "nothing names it: expected a file that imports, runs or reads it"
            )


_CODE = (".py", ".cc", ".h", ".cmake", ".txt", ".toml", ".j2", ".md")
