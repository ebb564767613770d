"""No code takes a sentence of a finding, an error or a fault apart: what it needs is a field.

Looked for in Python: SENTENCES and some other fields of a record, directly or by way of a variable
of the same function or an argument of another, in a call of re, before a method that cuts text, or
after `in`.
Looked for in C++: a method that searches or cuts text
- on SENTENCES, except for a line break,
- on _WORDS, which may be data as well, for a literal with a letter or a blank in it,
- on whatever else for a literal of several words;
a comparison with such a literal; and SENTENCES in a function of std::regex.
Tests may: what a sentence says is what they are about. What somebody else's program says has no
fields: _OTHERS lists it, and what here is no sentence.
"""

import ast
import re

from .tree import Finding

SENTENCES = {"claim", "detail", "expected", "explanation", "message", "reason", "seen", "why"}
_OF_PYTHON = SENTENCES | {"how", "line", "said", "told", "what"}
CUTS = {
    "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "rindex", "rfind",
    "rpartition", "rsplit", "split", "splitlines", "startswith", "translate",
}  # fmt: skip
_WORDS = {"error", "exit", "how", "last", "line", "said", "text", "told", "what"}
# In C++ these two are bytes of tensors, too.
_SENTENCES_OF_CPP = SENTENCES - {"expected", "seen"}
_WORDS_OF_CPP = _WORDS | {"expected", "seen"}

# By file, what is read there: the name of the variable, or the literal.
_OTHERS = {
    "ci/results.py": {"message": "is why a test was skipped, as GoogleTest has it"},
    "fixtures/bugs/comm_root_of_the_half.cc": {" error": "ends the name of what is broadcast"},
    "fixtures/bugs/fault_cause_not_told.cc": {" error": "ends the name of what is broadcast"},
    "fixtures/bugs/fault_lost_rank_not_looked_at.cc": {"message": "is made vague"},
    "fixtures/bugs/memory_staging_rounded_up.cc": {"the bucket of ": "begins a purpose of memory"},
    "fixtures/bugs/offload_buffer_in_flight_reused.cc": {
        "the optimizer's staging": "is a purpose of memory"
    },
    "properties/fault/damage_recovered.cc": {"message": "must name the tensor, to people"},
    "properties/fault/damage_refused.cc": {
        "message": "must name the file or the tensor, to people",
        "signal": "begins how a rank ended, as the evidence has it",
    },
    "properties/fault/ends_as_stated.cc": {
        "message": "must name rank and cause, to people",
        "rank": "likewise",
        "rank ": "likewise",
        "this ": "likewise, before it",
        "its process ": "must be true of the rank, to people",
        " stopped": "likewise",
        "its connections with ": "likewise",
        "it has left": "likewise",
        "it does not answer": "likewise",
        "signal": "begins how a rank ended, as the evidence has it",
        "signal 11": "is how a rank ended, as the evidence has it",
    },
    "properties/fault/every_rank_finishes.cc": {
        "message": "has the words of libc and gloo",
        "signal": "begins how a rank ended, as the evidence has it",
    },
    "properties/fault/others_spared.cc": {
        "message": "must name what is in the way, to people",
        "signal": "begins how a rank ended, as the evidence has it",
    },
    "properties/loading/source_accepted.cc": {"message": "names what is refused, to people"},
    "src/aten/torch_try.h": {"\\nException raised from": "is c10's"},
    "src/comm/communicator.cc": {". This is typically": "is gloo's", "] ": "is gloo's"},
    "src/comm/roll_call.cc": {"reset by peer": "is libc's"},
    "src/pickle/pickle_call.cc": {"torch._utils.": "begins a name of Python's in a pickle"},
    "verify/crash_states/open_file.cc": {" (deleted)": "is the kernel's"},
    "verify/interpose/firings.cc": {"undone": "is a key of JSON"},
    "verify/oracle/decoder_config.cc": {"torch.": "begins a dtype in a config"},
    "verify/python/shardproof/_versions/_table.py": {"message": "is only laid out in one line"},
    "verify/reproduce/program.py": {"why": "is only laid out in lines"},
    "verify/rank/leaks.cc": {") ": "is the kernel's, in /proc/PID/stat"},
    "verify/verdict/refusal.cc": {"message": "names what is refused, to people"},
    "verify/verdict/select.cc": {" (": "is before why, in how a rank ended in the evidence"},
}


def check(tree):
    for path in tree.python:
        if path.startswith("verify/selftest/") or path.endswith("_test.py"):
            continue
        yield from told(path, read_back(ast.parse(tree.text(path), path)))
    for path in tree.cpp:
        if not re.search(r"_test\.cc$|_fuzz\.cc$|/fixture_\w+\.h$", path):
            yield from told(path, read_back_of_cpp(tree.text(path)))


def told(path, found):
    others = _OTHERS.get(path, {})
    for line, what in sorted(found):
        if what not in others:
            yield Finding(path, line, f'the text "{what}" is read back: expected a field')
    for what in others.keys() - {what for _, what in found}:
        yield Finding(path, 1, f'"{what}" is not read back any more: read_back.py has it still')


_TOKEN_OF_CPP = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>\w*)\(.*?\)(?P=mark)"'
    r"|(?P<literal>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)+')",
    re.DOTALL,
)
# With literals written as "NUMBER".
_CUT_OF_CPP = re.compile(
    r"(?P<name>\w+)(?:\(\)|\))*\s*(?:\.|->)\s*"
    r"(?:compare|contains|ends_with|find|rfind|starts_with|substr)"
    r'\(\s*(?:std::string(?:_view)?\()?(?:"(?P<literal>\d+)")?'
)
_COMPARED = re.compile(r'[=!]=\s*"(?P<literal>\d+)"')
_REGEX = re.compile(r"\bregex_\w+\(\s*(?:\w+(?:\(\))?(?:\.|->))*(?P<name>\w+)")


def read_back_of_cpp(text) -> set[tuple[int, str]]:
    """(line, the variable's name if that is a sentence's, else the literal)."""
    literals = []

    def plain(token):
        if not token["literal"]:
            return "\n" * token[0].count("\n")
        literals.append(token["literal"])
        return f'"{len(literals) - 1}"'

    text = _TOKEN_OF_CPP.sub(plain, text)

    def literal_of(match):
        """A character is none, but for a line break."""
        literal = literals[int(match["literal"])] if match["literal"] else ""
        return literal[1:-1] if literal.startswith('"') or literal == r"'\n'" else ""

    found = []
    for cut in _CUT_OF_CPP.finditer(text):
        literal = literal_of(cut)
        is_of_word = cut["name"] in _WORDS_OF_CPP and re.search(r"[A-Za-z ]", literal)
        if literal == r"\n":
            continue
        if cut["name"] in _SENTENCES_OF_CPP:
            found.append((cut, cut["name"]))
        elif is_of_word or is_of_words(literal):
            found.append((cut, literal))
    for compared in _COMPARED.finditer(text):
        if is_of_words(literal_of(compared)):
            found.append((compared, literal_of(compared)))
    for call in _REGEX.finditer(text):
        if call["name"] in _SENTENCES_OF_CPP:
            found.append((call, call["name"]))
    return {(text.count("\n", 0, match.start()) + 1, what) for match, what in found}


def is_of_words(literal) -> bool:
    return " " in literal and bool(re.search(r"[A-Za-z]", re.sub(r"\\.", "", literal)))


def read_back(module) -> set[tuple[int, str]]:
    """(line, which sentence)."""
    found = set()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    given = arguments_of(module)
    for scope in [module, *(node for node in ast.walk(module) if isinstance(node, functions))]:
        names = dict(given.get(getattr(scope, "name", ""), {}))
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


def arguments_of(module) -> dict[str, dict[str, str]]:
    """By function of the module, its parameters that a call gives a sentence."""
    functions = {node.name: node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
    given = {}
    for node in ast.walk(module):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id in functions:
            parameters = [one.arg for one in functions[node.func.id].args.args]
            for name, value in zip(parameters, node.args, strict=False):
                if sentence := sentence_in(value, {}):
                    given.setdefault(node.func.id, {})[name] = sentence
    return given


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
        return node.slice.value if node.slice.value in _OF_PYTHON else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        key = node.args[0]
        if node.func.attr == "get" and isinstance(key, ast.Constant) and key.value in _OF_PYTHON:
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
