"""C++ names a phase or a stage by its enumerator, and not by a literal.

The names are those of the two tables. What else such a word is, where it is written: a field of a
document (by the call or the braces around it), a capability of a subject, a load strategy beside
others, or what _ELSEWHERE says of a file. Tests may write names out: what is spelled is what they
are about.
"""

import re

from .tree import Finding

TABLES = {
    "verify/case/phase.h": r'\.name = "(\w+)"',
    "src/stage/stage.h": r'StageFacts\{Stage::\w+, "(\w+)"',
}
_HOLDS_TABLE = {*TABLES, "verify/case/phase.cc"}
_IS_TEST = re.compile(r"_test\.cc$|/fixture_\w+\.h$|^properties/\w+_evidence\.h$")

# A comment, a raw string, or literals that are one because nothing stands between them.
_TOKEN = re.compile(
    r'//[^\n]*|R"\(.*?\)"|(?P<text>"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*)', re.DOTALL
)
# What stands before the literal on its line where it is something else.
_OTHERWISE = re.compile(
    r"""(?:
      \bkey\ ==\ | \brecord\ ==\ | \bdocument\[ | \b(?:document|news|first)\.\w+\(
    | \b(?:Known|OneOf|Required|Optional|Begin|Add|ForEach|ForEachMember|ReadByPhase|ReadEntries)
      \((?:fields,\ |document,\ |"record",\ )?
    | \.Begin\( | \.Add\(
    | \bout\[
    | \b(?:WhyCannot|cannot\.contains)\( | \.capabilities\ =\ \{[^}]*
    | "each-reads-own",\ | \bkPlainStrategy\ =\s
    )$""",
    re.VERBOSE,
)
# {"values", x}: a field and its value, in JSON.
_FIELD = re.compile(r"\{$")

_ELSEWHERE = {
    "properties/fault/damage_recovered.cc": {"restored": "a kind of finding"},
    "src/contract/job.cc": {"plain": "a load strategy"},
    "verify/bench/load_bench.cc": {"plain": "a load strategy"},
    "verify/bench/train_bench.cc": {"ready": "what memory is for"},
    "verify/confine/memory_cgroup.cc": {"memory": "a controller of cgroups"},
    "verify/crashtest/run.cc": {"after": "when a path is looked for"},
    "verify/engine/verification.cc": {"again": "the beginning of a directory's name"},
    "verify/case/fields.cc": {"resumed": "a feature of cases"},
    "verify/case/fields_model.cc": {"values": "a field of a tensor"},
    "verify/verdict/facts.cc": {"plain": "what a value is held against"},
    "verify/verdict/registry.cc": {"plain": "a capability", "train": "a capability"},
}


def check(tree):
    names = {path: set() for path in TABLES}
    for path, row in TABLES.items():
        if not tree.exists(path):
            return
        names[path] = set(re.findall(row, tree.text(path)))
        if not names[path]:
            yield Finding(path, 1, "no names in it: expected a table")
    known = set().union(*names.values())
    for path in tree.cpp:
        if path in _HOLDS_TABLE or _IS_TEST.search(path):
            continue
        for line, name in literals(tree.text(path)):
            if name in known and name not in _ELSEWHERE.get(path, {}):
                what = "phase" if name in names["verify/case/phase.h"] else "stage"
                yield Finding(
                    path, line, f'the {what} "{name}" by its name: expected its enumerator'
                )


def literals(text):
    """(line, content) of each literal that nothing around it says to be something else."""
    for token in _TOKEN.finditer(text):
        parts = re.findall(r'"((?:[^"\\\n]|\\.)*)"', token["text"] or "")
        before = text[text.rfind("\n", 0, token.start()) + 1 : token.start()]
        is_field = _FIELD.search(before) and text[token.end() :].lstrip().startswith(",")
        if len(parts) == 1 and not is_field and not _OTHERWISE.search(before):
            yield text.count("\n", 0, token.start()) + 1, parts[0]
