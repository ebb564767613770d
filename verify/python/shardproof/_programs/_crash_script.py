"""Writes reproduce.py and report.md for a bad state of a crash test: _crash_script.py TOLD.json DIR

DIR/state holds the state. TOLD.json is what verify/crashtest/scripts.cc says of it. The loaders are
those of _load.py, copied as they stand there, so that the script needs nothing of Shardproof.
"""

import ast
import json
import sys
import textwrap
from pathlib import Path

FUNCTIONS = {
    "dcp": ["load_dcp"],
    "torch": ["load_torch"],
    "safetensors": ["load_safetensors"],
    "files": ["load_torch", "load_safetensors", "load_files"],
}

SCRIPT = '''#!/usr/bin/env python3
"""{title}

{story}

Exits with 1 if the state that lies beside it, in state/, is bad as told, and with 0 if it is not.
--json FILE writes that down for a program.
"""

{imports}
from pathlib import Path

NEW = {new}
OLD = {old}
EXPECTED = {expected}
DEADLINE_S = {deadline_s}

{loader}

def load(directory, what):
    """("loaded", answer), ("refused", why) or ("died", how), of a process of its own."""
    words = {words}
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=DEADLINE_S + 60{options}
        )
    except subprocess.TimeoutExpired:
        return "died", "no end in time"
    if done.returncode < 0:
        return "died", f"signal {{-done.returncode}}"
    if done.returncode == 0:
        return "loaded", done.stdout
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return "refused", lines[-1] if lines else ""


def judge(directory):
    end, said = load(directory, NEW)
    if end == "loaded" and said == NEW["answer"]:
        return "new", ""
    is_same = OLD and OLD | {{"answer": NEW["answer"]}} == NEW
    if end == "loaded" and is_same and said == OLD["answer"]:
        return "old", ""
    if end == "died":
        return "wrong", "the load died: " + said
    if end == "loaded":
        return "wrong", "it loads without an error, and is neither of the two"
    if not OLD:
        return "refused", said
    if not is_same and load(directory, OLD) == ("loaded", OLD["answer"]):
        return "old", ""
    return "wrong", "the load fails, and the previous checkpoint is gone: " + said


def main():
{check}    with tempfile.TemporaryDirectory() as scratch:
        directory = os.path.join(scratch, "state")
        shutil.copytree(Path(__file__).resolve().parent / "state", directory, symlinks=True)
        loaded, line = judge(directory)
    print("expected:", " or ".join(EXPECTED))
    print("loaded:  ", loaded, line)
    is_bad = loaded not in EXPECTED or (loaded == "refused" and not line)
    print("bad: it is as told" if is_bad else "not bad: it is not as told")
    if sys.argv[1:2] == ["--json"]:
        Path(sys.argv[2]).write_text(json.dumps({{"bad": is_bad}}))
    return 1 if is_bad else 0


if __name__ == "__main__":
{entry}    sys.exit(main())
'''

CHECK = """    if not os.path.isdir(RUNS_IN):
        print(f"{RUNS_IN} is gone, from where the load was run: "
              "RUNS_IN is to name another directory")
        return 2
"""

ENTRY = """    if sys.argv[1:2] == ["--load"]:
        directory, what = sys.argv[2], json.loads(sys.argv[3])
        load_it = {function}
        try:
            answer = answer_of(load_it(*place_of(directory, what)))
        except BaseException as error:
            sys.exit(reason_of(error, directory))
        sys.stdout.write(answer)
        sys.exit(0)
"""

REPORT = """# {title}

`{command}` saves a checkpoint. If at one moment of it {crash}, {what_is_left}.

- **Expected**: {expected}
- **Seen**: {line}
- **Crash model**: {model} ({crash})
- **Versions**: {versions}
- **Shown by**: `python3 reproduce.py`, which loads `state/`, what is left on disk: {loaded}

## What the save did

Below the directory that is looked at, in this order; `>>>` marks the crash.

```
{operations}
```

Not on disk after the crash: {lost}
"""


LEFT = {"lost": "neither the new checkpoint nor the previous one can be loaded",
        "wrong": "what is left loads without an error, and is neither of the two",
        "died": "loading what is left kills the process or never returns",
        "not durable": "the checkpoint is missing, although the command had ended"}  # fmt: skip


def sources(names):
    text = Path(__file__).with_name("_load.py").read_text()
    found = {node.name: ast.get_source_segment(text, node)
             for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}  # fmt: skip
    return "\n\n\n".join(found[name] for name in names) + "\n\n"


def title_of(told):
    titles = {"lost": "A crash while saving loses both the new and the previous checkpoint",
              "wrong": "A crash while saving leaves a checkpoint that loads and is wrong",
              "died": "A crash while saving leaves a checkpoint whose load dies",
              "not durable": "A checkpoint is not durable when the save has returned"}  # fmt: skip
    if told["what"] == "lost" and told["old"] is None:
        return "A crash while saving leaves a checkpoint that is refused without a reason"
    return titles[told["what"]]


def operations_of(told):
    """With a mark where it crashed; those that are far from it are left out."""
    lines = told["operations"]
    after = told["after"]
    marked = [*lines[:after], ">>> crash", *lines[after:]]
    first, last = max(0, after - 40), after + 20
    left = [f"... {first} operations"] if first else []
    right = [f"... {len(marked) - last} operations"] if last < len(marked) else []
    return "\n".join([*left, *marked[first:last], *right])


def literal(what):
    if what is None:
        return "None"
    lines = [f"    {key!r}: {value!r}," for key, value in what.items()]
    return "{\n" + "\n".join(lines) + "\n}"


def imports_of(more):
    names = ["json", "os", "shutil", "subprocess", "sys", "tempfile", *more]
    return "\n".join(f"import {name}" for name in sorted(names))


def script_of(told):
    kinds = [told[which]["kind"] for which in ("new", "old") if told[which]]
    story = (f"The save: {told['command']}\nThe crash ({told['model']}): {told['crash']}, after "
             f"{told['after']} of {len(told['operations'])} operations.\n"
             f"The last one: {told['last_operation']}\nNot on disk: {told['lost']}")  # fmt: skip
    story = "\n".join(textwrap.fill(line, 98, subsequent_indent="  ") for line in story.split("\n"))
    story = story.replace("\\", "\\\\").replace('"""', "'''")
    parts = {
        "title": title_of(told) + ".",
        "story": story,
        "new": literal(told["new"]),
        "old": literal(told["old"]),
        "expected": told["allowed"],
        "deadline_s": told["deadline_s"],
    }
    if told["loader"]:
        words = f'[word.replace("{{}}", directory) for word in {told["loader"]!r}]'
        return SCRIPT.format(
            **parts,
            imports=imports_of([]),
            loader=f"RUNS_IN = {told['loader_runs_in']!r}"
            "  # what loads may be told by a path from there\n",
            words=words,
            options=", cwd=RUNS_IN",
            check=CHECK,
            entry="",
        )
    needed = ["add", *dict.fromkeys(name for kind in kinds for name in FUNCTIONS[kind])]
    entries = [f'"{kind}": {FUNCTIONS[kind][-1]}' for kind in dict.fromkeys(kinds)]
    table = "{" + ", ".join(entries) + "}"
    return SCRIPT.format(
        **parts,
        imports=imports_of(["ctypes", "hashlib"]),
        loader="\n" + sources([*needed, "place_of", "answer_of", "reason_of"]),
        words='[sys.executable, __file__, "--load", directory, json.dumps(what)]',
        options="",
        check="",
        entry=ENTRY.format(function=f'{table}[what["kind"]]'),
    )


def main():
    told = json.loads(Path(sys.argv[1]).read_text())
    directory = Path(sys.argv[2])
    (directory / "reproduce.py").write_text(script_of(told))
    versions = ", ".join(f"{name} {version}" for name, version in sorted(told["versions"].items()))
    report = REPORT.format(**told | {
        "title": title_of(told), "operations": operations_of(told),
        "what_is_left": LEFT[told["what"]], "versions": versions or "none asked for"})  # fmt: skip
    (directory / "report.md").write_text(report)


if __name__ == "__main__":
    main()
