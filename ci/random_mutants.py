#!/usr/bin/env python3
"""Small mistakes in C++, drawn at random, for ci/mutate --random.

    random_mutants.py plant SOURCE COUNT SEED LIST.json
    random_mutants.py drop LIST.json LOG
    random_mutants.py show LIST.json

`plant` makes COUNT of them in the *.cc files under SOURCE/src, all at once: mistake and original
stand beside each other, and the environment variable SHARDPROOF_MUTANT says whose mistake is made
when the program runs. So one build serves them all. `drop` takes back those that LOG, of a build,
has errors of. `show` prints number, verdict so far (planted, no build, equivalent), file, line and
change, separated by tabs.

A line is changed only where it is a whole statement or the head of one, as clang-format leaves it.
"""

import dataclasses
import json
import random
import re
import sys
import tomllib
from pathlib import Path

SWITCH = "src/core/mutant_switch.h"
SWITCH_TEXT = """\
#pragma once
#include <cstdlib>
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
inline bool ShardproofMutant(int number) {
  static const char* const text = std::getenv("SHARDPROOF_MUTANT");
  static const int chosen = text == nullptr ? 0 : std::atoi(text);
  return chosen == number;
}
"""
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
# What clang-format sets between spaces is an operator, and no bracket of a template.
SWAPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||",
           "||": "&&", "+": "-", "-": "+", "*": "+", "/": "*", "%": "/"}  # fmt: skip
OPERATOR = re.compile(r" (<=?|>=?|[=!]=|&&|\|\||[-+*/%]) ")
NUMBER = re.compile(r"(?<![\w.])[01](?![\w.'])")
TRUTH = re.compile(r"\b(true|false)\b")
DECLARED = re.compile(r"^(const |auto\b|\w[\w:<>*&, ]* [*&]?\w+ = )")
CALL = re.compile(r"^(SP_TRY\(.*\)|[A-Za-z][\w.:>\[\]-]*\(.*\)|[a-z][\w.>\[\]()-]* [-+|&]?= .*);$")
SKIPPED = re.compile(
    r"constexpr|static_assert|SP_CHECK|SP_ASSIGN|[.]reserve\("
    r"|^(case|default|using|return;|delete|\})"
)
TEXT_MAX = 100


@dataclasses.dataclass
class Mutant:
    """One change: `line`, from 1 on, of `file` is `after` in place of `before`; `planted` has
    both, but for the number."""

    file: str
    line: int
    before: str
    after: str
    planted: str
    number: int = 0
    verdict: str = "planted"

    @property
    def change(self):
        before, after = self.before.strip(), self.after.strip()
        return f"{before} -> {after}" if after else f"{before} left out"


def closing(text, start):
    """Where the bracket that is open at `start` is closed; -1: not on this line."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    return -1


def balanced(text):
    depth = 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if depth < 0:
            return False
    return depth == 0


def changes_of(expression):
    """An expression with one mistake, for each."""
    if not balanced(expression) or re.search(r'"|\{|\[[&=]', expression):
        return
    for found in OPERATOR.finditer(expression):
        yield expression[: found.start(1)] + SWAPPED[found[1]] + expression[found.end(1) :]
    for found in NUMBER.finditer(expression):
        other = "1" if found[0] == "0" else "0"
        yield expression[: found.start()] + other + expression[found.end() :]
    for found in TRUTH.finditer(expression):
        other = "true" if found[0] == "false" else "false"
        yield expression[: found.start()] + other + expression[found.end() :]


def expressions_of(line):
    """(start, end, whether it is a condition) of what is computed in a line."""
    head = re.match(r"\s*(?:\} )?(?:else )?(if|while) \(", line)
    if head:
        end = closing(line, head.end() - 1)
        if end > 0 and ";" not in line[head.end() : end]:
            yield head.end(), end, True
    head = re.match(r"\s*for \([^;()]*; ", line)
    if head:
        end = line.find(";", head.end())
        if end > 0:
            yield head.end(), end, True
    head = re.match(r"\s*return (?=[^;]+;$)", line) or re.match(
        r"\s+(?:[\w:<>*&, ]+ [*&]?)?[\w.>\[\]()-]+ (?:[-+|&]?=) (?=[^;]+;$)", line
    )
    if head:
        yield head.end(), len(line) - 1, False


def mutants_of_line(file, number, line, before, after):
    """before, after: the lines around it."""
    text = line.strip()
    if SKIPPED.search(text) or text.startswith(("//", "#", "*", "else")) or line == text:
        return
    for start, end, is_condition in expressions_of(line):
        expression = line[start:end]
        changed = list(changes_of(expression))
        if is_condition and not DECLARED.match(expression) and balanced(expression):
            changed.append(f"!({expression})")
        for other in changed:
            whole = f"bool({expression})" if is_condition else f"({expression})"
            planted = f"(ShardproofMutant(%d) ? ({other}) : {whole})"
            yield Mutant(file, number, line, line[:start] + other + line[end:],
                         line[:start].replace("%", "%%") + planted.replace(" % ", " %% ")
                         + line[end:].replace("%", "%%"))  # fmt: skip
    is_whole = not before.strip() or before.rstrip().endswith((";", "{", "}")) or "//" in before
    if is_whole and CALL.match(text) and balanced(text) and not after.strip().startswith("else"):
        indent = line[: len(line) - len(line.lstrip())]
        yield Mutant(file, number, line, "",
                     f"{indent}if (!ShardproofMutant(%d)) {text.replace('%', '%%')}")  # fmt: skip


def mutants_of(file, source):
    """All mistakes that can be made in a file, in order."""
    lines = source.split("\n")
    found = []
    for i, line in enumerate(lines):
        before = lines[i - 1] if i > 0 else ""
        after = lines[i + 1] if i + 1 < len(lines) else ""
        found += mutants_of_line(file, i + 1, line, before, after)
    return found


def draw(by_file, count, seed):
    """So many, in the order of the files; no two of one line."""
    everything = [mutant for mutants in by_file.values() for mutant in mutants]
    random.Random(seed).shuffle(everything)
    drawn = {}
    for mutant in everything:
        if len(drawn) < count:
            drawn.setdefault((mutant.file, mutant.line), mutant)
    chosen = [drawn[place] for place in sorted(drawn)]
    for number, mutant in enumerate(chosen, 1):
        mutant.number = number
    return chosen


def known_equivalent():
    entries = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutant"]
    return {(one["file"], one["change"]) for one in entries}


def with_mutants(file, source, mutants):
    """The text of a file with them planted; its lines keep their numbers in messages."""
    lines = source.split("\n")
    for mutant in mutants:
        lines[mutant.line - 1] = mutant.planted % (mutant.number,)
    return f'#include "{SWITCH}"\n#line 1 "{file}"\n' + "\n".join(lines)


def plant(root, count, seed, list_path):
    files = sorted(path for path in Path(root, "src").rglob("*.cc")
                   if not path.name.endswith("_test.cc") and "cuda" not in str(path))  # fmt: skip
    names = {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in files}
    chosen = draw({name: mutants_of(name, text) for name, text in names.items()}, count, seed)
    equivalent = known_equivalent()
    for mutant in chosen:
        if (mutant.file, mutant.change) in equivalent:
            mutant.verdict = "equivalent"
    Path(root, SWITCH).write_text(SWITCH_TEXT, encoding="utf-8")
    for name in sorted({mutant.file for mutant in chosen}):
        of_file = [mutant for mutant in chosen if mutant.file == name]
        Path(root, name).write_text(with_mutants(name, names[name], of_file), encoding="utf-8")
    document = {"root": str(root), "mutants": [dataclasses.asdict(mutant) for mutant in chosen]}
    Path(list_path).write_text(json.dumps(document, indent=1), encoding="utf-8")


def drop(list_path, log):
    """Returns how many were dropped."""
    document = json.loads(Path(list_path).read_text(encoding="utf-8"))
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    wrong = set(re.findall(r"(src/[\w./]+\.cc):(\d+):\d+: (?:error|note: in expansion)", text))
    dropped = 0
    for mutant in document["mutants"]:
        if mutant["verdict"] == "no build" or (mutant["file"], str(mutant["line"])) not in wrong:
            continue
        path = Path(document["root"], mutant["file"])
        source = path.read_text(encoding="utf-8")
        planted = mutant["planted"] % (mutant["number"],)
        path.write_text(source.replace(planted, mutant["before"]), encoding="utf-8")
        mutant["verdict"] = "no build"
        dropped += 1
    Path(list_path).write_text(json.dumps(document, indent=1), encoding="utf-8")
    return dropped


def show(list_path):
    document = json.loads(Path(list_path).read_text(encoding="utf-8"))
    for entry in document["mutants"]:
        mutant = Mutant(**entry)
        change = mutant.change
        if len(change) > TEXT_MAX * 2:
            change = change[: TEXT_MAX * 2] + "..."
        print(mutant.number, mutant.verdict, mutant.file, mutant.line, change, sep="\t")


def main(command, *arguments):
    if command == "plant":
        root, count, seed, list_path = arguments
        plant(root, int(count), int(seed), list_path)
    elif command == "drop":
        dropped = drop(*arguments)
        print(dropped)
        return 0 if dropped else 1
    else:
        show(*arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
