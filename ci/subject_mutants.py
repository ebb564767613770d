"""Small mistakes in a Python file, for ci/mutate --subject: each changes one place.

A mistake is one that an engineer makes and that still runs: a call left out, an argument left out
or in another's place, a constant that is another, a condition turned, a rank taken for its
neighbour. What a subject declares of itself (CANNOT, RUNS, ...) stays as it is.
"""

import ast
import copy
import dataclasses

COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
            ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot,
            ast.IsNot: ast.Is}  # fmt: skip
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
            ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv}  # fmt: skip
RANK = "(case.rank + 1) % case.world_size"
TEXT_MAX = 90


@dataclasses.dataclass(frozen=True)
class Mutant:
    """kind: what is done, in words. change: "before -> after", and function: the innermost that it
    is in, as the list of equivalent ones names them. source: the whole file with it."""

    file: str
    line: int
    kind: str
    change: str
    source: str
    function: str = ""


def mutants_of(file, source):
    """All mistakes that can be made in `source`, the text of `file`, in its order."""
    tree = ast.parse(source)
    _note_parents(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt) and not _is_declaration(node):
            for kind, where, instead, *words in _changes(node):
                found.append(_mutant(file, source, kind, where, instead, *words))
    unique = {mutant.source: mutant for mutant in found if mutant.source != source}
    return sorted(unique.values(), key=lambda mutant: (mutant.line, mutant.kind, mutant.change))


def _note_parents(tree):
    for parent in ast.walk(tree):
        for child in ast.iter_child_nodes(parent):
            child.parent = parent


def _above(node):
    while hasattr(node, "parent"):
        node = node.parent
        yield node


def _is_declaration(node):
    """Of the module: its docstring, its imports, what it declares of itself."""
    top = [node, *_above(node)][-2:][0]
    return isinstance(top, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom | ast.Expr)


def _changes(node):
    """(kind, the node that is replaced, its text instead), and maybe before and after in words."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "call left out", node, "pass"
        case ast.FunctionDef(decorator_list=[decorator, *_]):
            yield "decorator left out", decorator, "lambda function: function"
        case ast.Call():
            yield from _of_call(node)
        case ast.If() | ast.IfExp() | ast.While():
            yield "condition turned", node.test, f"not ({ast.unparse(node.test)})"
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
            for clause in node.generators:
                for test in clause.ifs:
                    yield "condition left out", test, "True"
        case ast.Compare(ops=[operator]) if type(operator) in COMPARED:
            if isinstance(operator, ORDERED) or not _is_condition(node):
                yield "comparison", node, _with(node, ops=[COMPARED[type(operator)]()])
        case ast.BinOp(op=operator) if type(operator) in COMPUTED:
            yield "operator", node, _with(node, op=COMPUTED[type(operator)]())
        case ast.BoolOp(values=[first, *others]):
            yield "part of a condition left out", node, ast.unparse(first)
            yield "part of a condition left out", node, " and ".join(map(ast.unparse, others))
        case ast.Attribute(value=ast.Name(id="case"), attr="rank"):
            yield "another rank", node, RANK
        case ast.Constant():
            yield from _of_constant(node)
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield "nothing returned", node, "return None"


def _of_call(node):
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None and not _is_turned(keyword.value):
            rest = node.keywords[:index] + node.keywords[index + 1 :]
            yield "argument left out", node, _with(node, keywords=rest), _short_call(node, keyword)
    plain = [not isinstance(one, ast.Starred) for one in node.args]
    for index in range(len(node.args) - 1):
        if plain[index] and plain[index + 1]:
            args = list(node.args)
            args[index : index + 2] = args[index + 1], args[index]
            yield "arguments swapped", node, _with(node, args=args)


def _of_constant(node):
    if isinstance(node.value, bool):
        yield "constant", node, repr(not node.value)
    elif isinstance(node.value, int):
        yield "constant", node, repr(node.value + 1)
        if node.value == 1:
            yield "constant", node, "0"


def _is_turned(value):
    """Of an argument: whether it is a mistake by its value, as of True and False, or none, as of
    rates: a job with another rate is another job."""
    return isinstance(value, ast.Constant) and isinstance(value.value, bool | float)


def _is_condition(node):
    """Whether turning it is the same as turning the condition that it is."""
    return isinstance(node.parent, ast.If | ast.IfExp | ast.While) and node.parent.test is node


def _with(node, **fields):
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return ast.unparse(changed)


def _short_call(node, keyword):
    """Before and after, where one argument of a call counts."""
    function = ast.unparse(node.func)
    return f"{function}(..., {keyword.arg}={ast.unparse(keyword.value)})", f"{function}(...)"


def _mutant(file, source, kind, node, instead, words=None):
    text = source.encode()
    lines = text.splitlines(keepends=True)
    begin = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    before, after = words or _in_words(node, instead)
    change = f"{_short(before)} -> {_short(after)}"
    if isinstance(node, ast.expr):  # as it binds where it stands
        instead = f"({instead})"
    changed = (text[:begin] + instead.encode() + text[end:]).decode()
    functions = (each.name for each in _above(node) if isinstance(each, ast.FunctionDef))
    return Mutant(file, node.lineno, kind, change, changed, next(functions, ""))


def _in_words(node, instead):
    """Before and after; of a constant or a rank with what it stands in: alone it does not say
    where."""
    if instead == RANK:
        keyword = node.parent.parent
        before = ast.unparse(keyword if isinstance(keyword, ast.keyword) else node.parent)
        return before, before.replace(ast.unparse(node), f"({instead})")
    if not isinstance(node, ast.Constant):
        return ast.unparse(node), instead
    if isinstance(node.parent, ast.keyword):
        before, _ = _short_call(node.parent.parent, node.parent)
        return before, before.replace(f"={ast.unparse(node)})", f"={instead})")
    before, value = ast.unparse(node.parent), node.value
    node.value = ast.literal_eval(instead)
    after = ast.unparse(node.parent)
    node.value = value
    return before, after


def _short(text):
    text = " ".join(text.split())
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."
