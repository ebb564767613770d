"""No Python takes a sentence of a finding or a fault apart: what code needs is a field of its own.

Looked for: "message", "expected", "seen", "explanation" or "detail" of a record, directly or by way
of a variable of the same function, in a call of re, before a method that cuts text, or after `in`.
Tests may: what a sentence says is what they are about.
"""

import ast

from .tree import Finding

SENTENCES = {"message", "expected", "seen", "explanation", "detail"}
CUTS = {
    "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "rindex", "rfind",
    "rpartition", "rsplit", "split", "splitlines", "startswith", "translate",
}  # fmt: skip


def check(tree):
    for path in tree.python:
        if path.startswith(("verify/selftest/", "ci/")) or path.endswith("_test.py"):
            continue
        for line, sentence in sorted(read_back(ast.parse(tree.text(path), path))):
            yield Finding(path, line, f'the sentence "{sentence}" is read back: expected a field')


def read_back(module) -> set[tuple[int, str]]:
    """(line, which sentence)."""
    found = set()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    for scope in [module, *(node for node in ast.walk(module) if isinstance(node, functions))]:
        names = {}
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    names |= bound(target, node.value)
            elif isinstance(node, ast.NamedExpr):
                names |= bound(node.target, node.value)
        if scope is module:
            names = {}  # those of its functions are theirs
        for node in ast.walk(scope):
            for text in texts_taken_apart(node):
                sentence = sentence_in(text, names)
                if sentence:
                    found.add((node.lineno, sentence))
    return found


def bound(target, value) -> dict[str, str]:
    """The names that an assignment gives to sentences."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=False)
        return {name: said for one, other in pairs for name, said in bound(one, other).items()}
    sentence = sentence_in(value, {})
    return {target.id: sentence} if sentence and isinstance(target, ast.Name) else {}


def sentence_in(node, names) -> str:
    """Which sentence an expression is, or falls back on; "" if none."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value if node.slice.value in SENTENCES else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        key = node.args[0]
        if node.func.attr == "get" and isinstance(key, ast.Constant) and key.value in SENTENCES:
            return key.value
    if isinstance(node, ast.BoolOp):
        return next(filter(None, (sentence_in(value, names) for value in node.values)), "")
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def texts_taken_apart(node):
    """The expressions that a node takes apart as text."""
    if isinstance(node, ast.Compare):
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.In | ast.NotIn):
                yield right
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        receiver = node.func.value
        if isinstance(receiver, ast.Name) and receiver.id == "re":
            yield from node.args
        elif node.func.attr in CUTS:
            yield receiver
