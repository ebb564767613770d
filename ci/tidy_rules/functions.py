"""No function of C++ or Python is longer than 70 lines, as lizard counts them."""

import re

import lizard

from .tree import Finding

LINES_MAX = 70


def check(tree):
    for path in [*tree.cpp, *tree.python]:
        if tree.text(path).count("\n") <= LINES_MAX:
            continue
        # Decoded here: lizard would ask the locale.
        found = lizard.analyze_file.analyze_source_code(path, tree.text(path))
        for function in found.function_list:
            if function.length > LINES_MAX:
                name = name_of(function)
                what = f"{name} has {function.length} lines: expected at most {LINES_MAX}"
                key = f"{path}:{name}"
                yield Finding(path, function.start_line, what, key, function.length)


def name_of(function) -> str:
    """Without blanks and namespace; of a GoogleTest, which is a macro, with its two names."""
    name = function.name.removeprefix("shardproof::")
    if name in ("TEST", "TEST_F", "TEST_P"):
        name = function.long_name.removeprefix("shardproof::")
    return re.sub(r"\s+", "", name)
