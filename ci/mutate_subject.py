"""Makes small mistakes in a sound subject and in the helpers that it uses, and tells what catches
each; see ci/mutate --help. The subject itself stays as it is."""

import argparse
import ast
import dataclasses
import json
import random
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

from subject_mutants import Mutant, mutants_of
from subject_runs import REPOSITORY, literal, python_of, ran, warm

HELPERS = REPOSITORY / "verify" / "python" / "shardproof" / "subjects"
CASES = REPOSITORY / "fixtures" / "cases"
EQUIVALENT = REPOSITORY / "ci" / "equivalent_mutants.toml"
PACKAGE = "shardproof.subjects"
CAUGHT_MIN = 0.9  # of all mistakes; one that is told as inconclusive is not caught
# The more it says, the more it weighs; what catches it comes before all of these.
WEIGHT = {"pass": 0, "compared less": 1, "inconclusive": 2}
# A helper of the package is the one beside the subject.
LOADED = """\
import importlib.util as _util, sys as _sys
import shardproof.subjects as _subjects
for _name in {names}:
    _path = f"{folder}/{{_name}}.py"
    _spec = _util.spec_from_file_location(f"shardproof.subjects.{{_name}}", _path)
    _sys.modules[_spec.name] = _util.module_from_spec(_spec)
    setattr(_subjects, _name, _sys.modules[_spec.name])
    _spec.loader.exec_module(_sys.modules[_spec.name])
"""


@dataclasses.dataclass
class Subject:
    """path, the files that it imports (file name -> path), and its runs, each as words."""

    path: Path
    beside: dict
    packaged: dict
    runs: list


def imported(path):
    """All modules that a file may import: of `from a import b`, a and a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = f"{PACKAGE}.{node.module}" if node.level else node.module
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def helpers_of(path):
    """The helpers beside a subject, and those of the package; what imports another is after it."""
    beside, packaged, open_paths = {}, {}, [path]
    while open_paths:
        for module in imported(open_paths.pop()):
            parent, _, stem = module.rpartition(".")
            found, folder = (packaged, HELPERS) if parent == PACKAGE else (beside, path.parent)
            file = folder / f"{stem}.py"
            if parent in ("", PACKAGE) and file.is_file() and file != path:
                found.pop(file.name, None)
                found[file.name] = file
                open_paths.append(file)
    return beside, dict(reversed(packaged.items()))


def runs_of(path, checkpoints):
    """The words of the command for each of RUNS, those first that are the least work."""
    lines = literal(path, "RUNS") or ("on_2: 2 llama-tied-small",)
    runs = []
    for line in sorted(lines, key=lambda line: " nightly:" in line):
        mesh, checkpoint, *options = line.partition(": ")[2].split()
        is_case = checkpoint.endswith(".json")
        model = ["--case", str(CASES / checkpoint)] if is_case else [
            "--checkpoint", str(checkpoints / checkpoint)]  # fmt: skip
        words = ["--mesh", mesh, *model]
        for option in options:
            words += [option] if option.startswith("--") else ["--option", option]
        runs.append(words)
    return runs


def written(subject, folder, mutant=None):
    """The subject with its helpers in a folder, one of them with a mistake. Returns its path."""
    for path in (subject.path, *subject.beside.values(), *subject.packaged.values()):
        text = mutant.source if mutant and mutant.file == path.name else path.read_text()
        if path == subject.path and subject.packaged:
            names = [name.removesuffix(".py") for name in subject.packaged]
            text = LOADED.format(names=names, folder=folder) + text
        (folder / path.name).write_text(text)
    return folder / subject.path.name


def judged(program, subject, baselines, mutant=None):
    """Of all runs: the first that catches it, else the first that says what it could not judge,
    else the first that compared less, else a pass.
    baselines: a folder for the results without a mistake, of which none may be compared less."""
    came = ("pass", "")
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
        folder = Path(scratch)
        path = written(subject, folder, mutant)
        for number, words in enumerate(subject.runs):
            sound, result = str(baselines / f"{number}.json"), str(folder / "result.json")
            words = [*words, "--baseline", sound] if mutant else words
            one = ran(program, ["--subject", str(path), *words], result if mutant else sound)
            if one[0] in ("named", "crashed"):
                return one
            came = max(came, one, key=lambda each: WEIGHT[each[0]])
    return came


def equivalent(subject):
    """(file, function, change) -> why it is no mistake; of function "" it is none in any. Some are
    none in one subject alone, since it does not come to them."""
    listed = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return {(one["file"], one.get("function", ""), one["change"]): one["why"] for one in listed
            if one.get("subject", subject) == subject}  # fmt: skip


def why_none(mutant, known):
    """Why it is no mistake; None if it is one."""
    found = (known.get((mutant.file, name, mutant.change)) for name in (mutant.function, ""))
    return next(filter(None, found), None)


def drawn(subject, count, seed):
    """Some of all mutants, (mutant, why) of those of them that are known to be no mistakes, and how
    many there are."""
    paths = (subject.path, *subject.beside.values(), *subject.packaged.values())
    everything = [mutant for path in paths for mutant in mutants_of(path.name, path.read_text())]
    chosen = random.Random(seed).sample(everything, min(count, len(everything)))
    known = equivalent(subject.path.name)
    whys = [(each, why_none(each, known)) for each in chosen]
    listed = [(each, why) for each, why in whys if why]
    mistakes = [each for each, why in whys if not why]
    return mistakes, listed, len(everything)


def line_of(verdict, mutant: Mutant, by):
    place = f"{mutant.file}:{mutant.line}"
    return f"{verdict:<13}  {place:<24}  {mutant.kind}: {mutant.change}{by and f'  ({by})'}"


def measure(program, subject, baselines, chosen):
    """Prints a line each. Returns what became of how many, and all of it for a document."""
    counts, told = Counter(), []
    for mutant in chosen:
        verdict, by = judged(program, subject, baselines, mutant)
        verdict = "SURVIVED" if verdict == "pass" else verdict
        counts[verdict] += 1
        print(line_of(verdict, mutant, by), flush=True)
        told.append({"file": mutant.file, "line": mutant.line, "kind": mutant.kind,
                     "change": mutant.change, "verdict": verdict.lower(), "by": by})  # fmt: skip
    return counts, told


def parse():
    parser = argparse.ArgumentParser(prog="ci/mutate --subject", allow_abbrev=False)
    parser.add_argument("--subject", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if not asked.subject.is_file():
        parser.error(f"{asked.subject} is not a file")
    if asked.count < 1:
        parser.error("--count: at least one")
    return asked


def main():
    asked = parse()
    with warm(python_of(asked.subject, asked.torch)) as python, \
            tempfile.TemporaryDirectory(prefix="sound-") as baselines:  # fmt: skip
        return measured(asked, python, Path(baselines))


def measured(asked, python, baselines):
    path, build = asked.subject.resolve(), asked.build.resolve()
    runs = [["--python", python, *words] for words in runs_of(path, build / "checkpoints")]
    subject = Subject(path, *helpers_of(path), runs)
    program = str(build / "shardproof")
    verdict, by = judged(program, subject, baselines)
    if verdict != "pass":
        print(f"ci/mutate: without a mistake {path.name} does not pass: {verdict}, {by}; nothing "
              "is measured", file=sys.stderr)  # fmt: skip
        return 5
    mistakes, listed, total = drawn(subject, asked.count, asked.seed)
    counts, mutants = measure(program, subject, baselines, mistakes)
    for mutant, why in listed:
        print(line_of("no mistake", mutant, why))
    number = max(1, len(mistakes))
    caught = counts["named"] + counts["crashed"]
    told = caught + counts["inconclusive"]
    print(f"{caught} of {len(mistakes)} caught ({caught / number:.0%}): "
          f"{counts['named']} named by a property, {counts['crashed']} only raised or hung; "
          f"{told} do not pass ({told / number:.0%}): "
          f"{counts['inconclusive']} more are inconclusive, and say what was not shown; "
          f"{counts['compared less']} only compare less than the baseline, "
          f"{counts['SURVIVED']} survived; "
          f"{len(listed)} are no mistakes; drawn from {total}, seed {asked.seed}")  # fmt: skip
    if asked.json:
        document = {"schema": 1, "subject": path.name, "seed": asked.seed, "mutants": mutants}
        asked.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if caught >= CAUGHT_MIN * number else 1


if __name__ == "__main__":
    sys.exit(main())
