"""No function of C++ or Python is longer than 70 lines, as lizard counts them.

A lambda within a function is a part of it; of one that is in none, as in what initialises a
constant, lizard knows nothing: it is counted here. What a module of Python does when it is loaded,
beside definitions, imports and literals, is counted as one function, too.
"""

import ast
import re

import lizard

from .tree import Finding

LINES_MAX = 70


def check(tree):
    for path in [*tree.cpp, *tree.python]:
        text = tree.text(path)
        if text.count("\n") <= LINES_MAX:
            continue
        # Decoded here: lizard would ask the locale.
        functions = lizard.analyze_file.analyze_source_code(path, text).function_list
        found = [
            (function.start_line, function.length, name_of(function)) for function in functions
        ]
        if path.endswith(".py"):
            found.append((1, lines_of_module(ast.parse(text, path)), "module"))
        else:
            within = [(function.start_line, function.end_line) for function in functions]
            found += lambdas_outside(text, within)
        for line, length, name in found:
            if length > LINES_MAX:
                what = f"{name} has {length} lines: expected at most {LINES_MAX}"
                yield Finding(path, line, what, f"{path}:{name}", length)


def name_of(function) -> str:
    """Without blanks and namespace; of a GoogleTest, which is a macro, with its two names."""
    name = function.name.removeprefix("shardproof::")
    if name in ("TEST", "TEST_F", "TEST_P"):
        name = function.long_name.removeprefix("shardproof::")
    return re.sub(r"\s+", "", name)


def lines_of_module(module) -> int:
    """How many lines of it do something."""
    return sum(node.end_lineno - node.lineno + 1 for node in module.body if does_something(node))


def does_something(node) -> bool:
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr):
        return not (node.value is None or is_literal(node.value))
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return not isinstance(node, definitions)


def is_literal(node) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


_NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"'
    r"|\"(?:[^\"\\\n]|\\.)*\"|(?<!\w)'(?:[^'\\\n]|\\.)+'",
    re.DOTALL,
)
_LAMBDA = re.compile(
    r"(?<![\w)\]\[])\[[^\[\];{}]*\]\s*(?:\([^;{}]*\)\s*(?:mutable\b\s*)?(?:->[^;{}=]*)?)?\{"
)


def lambdas_outside(text, within) -> list[tuple[int, int, str]]:
    """(first line, lines, name) of each lambda of C++ that begins in none of the functions."""
    text = _NO_CODE.sub(lambda token: "\n" * token[0].count("\n"), text)
    found = []
    for match in _LAMBDA.finditer(text):
        begin = text.count("\n", 0, match.start()) + 1
        if any(first <= begin <= last for first, last in within):
            continue
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        found.append((begin, text.count("\n", match.start(), end) + 1, f"lambda@{begin}"))
    return found
