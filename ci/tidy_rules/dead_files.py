"""No file is unused: a header is included, a source compiled, a script run, a template read.

A source is compiled if CMake's lists above it take the whole folder, or if one or a script names
it; programs (main.cc, *_main.cc, *_bench.cc, *_fuzz.cc) have to be named. A module of Python is
used if another imports it; it and all else are if code, and not only a document, has the file's
name, or if it lies in a folder whose files are found by a pattern.
"""

import ast
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
    r"^ci/requirements/torch-.*\.txt$": "ci/setup",
    r"^ci/requirements/environments/.*\.txt$": "ci/environment",
    r"^ci/(?:environment|nightly|reproduce|test|verify|mutate|tidy)$|^\.ci/": "CONTRIBUTING.md",
    r"^fixtures/(?:issues/)?cases/.*\.json$": "verify/selftest/CMakeLists.txt",
    r"^verify/maps/ready/.*\.map$": "verify/python/CMakeLists.txt",
    r"^fixtures/stored/make_.*\.py$": "verify/selftest/test_stored_formats.py",
    r"^fixtures/examples/.*\.py$": "verify/python/README.md",
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
    """Scripts, modules, data and templates that nothing imports and no code has the name of."""
    texts = {p: tree.text(p) for p in tree.files if is_code(p)}
    imports = {path: imported_by(tree, path) for path in tree.python}
    for path in [*tree.python, *tree.named(*_DATA), *tree.shell]:
        place = PurePosixPath(path)
        if place.name in _KNOWN_TO_TOOLS or any(
            re.search(pattern, path) and tree.exists(by) for pattern, by in FOUND.items()
        ):
            continue
        if any(place.stem in stems for other, stems in imports.items() if other != path):
            continue
        before = "(?<=/)" if path in tree.shell else r"(?<![\w.-])"  # its name may be any word
        name = re.compile(rf"{before}{re.escape(place.name)}(?![\w-])|-m {place.stem}\b")
        if not any(name.search(text) for other, text in texts.items() if other != path):
            yield Finding(
                path, 1, "nothing names it: expected a file that imports, runs or reads it"
            )


def imported_by(tree, path) -> set[str]:
    """Names of modules, and what may be one."""
    found = set()
    for node in ast.walk(ast.parse(tree.text(path), path)):
        if isinstance(node, ast.Import):
            found |= {part for one in node.names for part in one.name.split(".")}
        elif isinstance(node, ast.ImportFrom):
            found |= {*(node.module or "").split("."), *(one.name for one in node.names)}
    return found


def is_code(path) -> bool:
    return path.endswith(_CODE) or "." not in PurePosixPath(path).name


_CODE = (".py", ".cc", ".h", ".cmake", ".txt", ".toml", ".j2", ".in")
_DATA = (".j2", ".inc", ".map", ".in", ".cmake", ".txt", ".json", ".toml")
_KNOWN_TO_TOOLS = {
    "__init__.py", "__main__.py", "conftest.py", "CMakeLists.txt", "CMakePresets.json",
    "pyproject.toml",
}  # fmt: skip
