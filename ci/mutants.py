#!/usr/bin/env python3
"""What ci/mutate reads of JSON, and what it writes as JSON.

    mutants.py judge RESULT.json EXIT_CODE STEP CASE_FILES CASES CASE.json [UNPATCHED.json]
    mutants.py unit LOG EXIT_CODE
    mutants.py document TORCH CASES SEED < RESULTS
    mutants.py score KILLED_MIN NAMED_MIN < RESULTS

`judge` reads what `shardproof verify` left, and prints three lines: pass, caught or inconclusive;
by which properties, or else why; in which step, and where of it. The case that shows it goes to
CASE.json. A run that cannot pass, of an injected fault, is held against what was left without a
patch.
`unit` reads what a program of unit tests printed, and prints two lines: pass or caught; by which
tests.
`document` turns lines of tab-separated patch, verdict, by, where and seconds into one document.
`score` prints how many percent of those that were judged are caught, and by a property. Exit code
1: fewer than so many.
"""

import json
import re
import sys
from pathlib import Path

FAIL = 3  # Verdict::kFail
SHOWN_MAX = 4


def properties_of(ids):
    """Each once, the causes first: "a, b and 3 more"."""
    ids = list(dict.fromkeys(ids))
    more = f" and {len(ids) - SHOWN_MAX} more" if len(ids) > SHOWN_MAX else ""
    return ", ".join(ids[:SHOWN_MAX]) + more


def of_case(document):
    """Of a run of one case."""
    found = properties_of(one["property"] for one in document["findings"])
    if found:
        return "caught", found, document["case"]
    reasons = [one["reason"] for one in document["properties"] if one["verdict"] == "inconclusive"]
    return "inconclusive", (reasons or ["no reason given"])[0], document["case"]


def of_generated(document):
    """Of a run of generated cases. One that took its process along, or did not end, was not judged:
    the clean checkout does not do that."""
    failures = document["summary"]["failures"] + document["summary"]["unclear"]
    failures.sort(key=lambda one: one["outcome"]["verdict"] != FAIL)
    if not failures:
        return "inconclusive", document["reason"] or "no case that did not pass was kept", None
    outcome = failures[0]["outcome"]
    reason = outcome["reason"]
    if outcome["findings"]:
        return "caught", properties_of(one[0] for one in outcome["findings"]), failures[0]
    if outcome["exit"] == "hang":
        return "caught", f"hang ({reason})", failures[0]
    if outcome["exit"]:
        return "caught", f"crash ({outcome['exit']})", failures[0]
    return "inconclusive", reason, failures[0]


def of_fault(document, unpatched):
    """Of a run with an injected fault, which must come out as it does without a patch. Fingerprints
    are the same from run to run."""
    here, there = ({one["fingerprint"]: one["property"] for one in each["findings"]}
                   for each in (document, unpatched))  # fmt: skip
    changed = [
        here.get(one) or there[one] for one in [*here, *there] if (one in here) != (one in there)
    ]
    if not changed:
        return "pass", "", None
    return "caught", f"other findings of {properties_of(changed)}", document["case"]


def place_of(failure, case_files, cases):
    """Which of the generated cases, or which file: these come first, and are numbered for
    themselves."""
    index = failure["outcome"]["index"]
    if failure["numbered"]:
        return f"first in case {index} of {cases}"
    return sorted(Path(case_files).rglob("*.json"))[index].name


def read(path):
    """What a run left; None if that is nothing, or not whole."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def judge(result, exit_code, step, case_files, cases, unpatched=None):
    """(verdict, by, where, the case or None)."""
    code = int(exit_code)
    if code == 0 and not unpatched:
        return "pass", "", step, None
    if code in (124, 137):
        return "caught", "hang (the command did not end)", step, None
    document = read(result)
    if document and unpatched:
        verdict, by, case = of_fault(document, read(unpatched))
        return verdict, by, step, case
    if document and "summary" in document:
        verdict, by, failure = of_generated(document)
        if failure:
            if step != "simulated":
                cases = "20"
            return verdict, by, f"{step}, {place_of(failure, case_files, cases)}", failure["case"]
    elif document:
        verdict, by, case = of_case(document)
        return verdict, by, step, case
    if code > 128:
        return "caught", f"crash (signal {code - 128} of the command)", step, None
    return "inconclusive", f"exit code {code}", step, None


def of_unit(log, exit_code):
    """(verdict, by) of a program of unit tests, by what it printed."""
    code = int(exit_code)
    if code == 0:
        return "pass", ""
    if code in (124, 137):
        return "caught", "unit: hang (the tests did not end)"
    failed = re.findall(r"^\[  FAILED  \] (\w[\w/]*\.\w[\w/]*)", log, re.MULTILINE)
    if failed:
        return "caught", f"unit {properties_of(failed)}"
    return (
        "caught",
        f"unit: crash ({f'signal {code - 128}' if code > 128 else f'exit code {code}'})",
    )


def is_named(by):
    """Whether a property says what is wrong, and not only that a rank refused or did not end."""
    return bool(re.match(r"(other findings of )?\w+\.", by)) and by != "fault.every_rank_finishes"


def score_of(patches):
    """(percent caught, percent caught by a property) of what was judged."""
    judged = [one for one in patches if one["verdict"] in ("caught", "survived", "inconclusive")]
    caught = [one for one in judged if one["verdict"] == "caught"]
    named = [one for one in caught if is_named(one["by"])]
    return tuple(100 * len(some) / max(1, len(judged)) for some in (caught, named))


def document_of(lines):
    """The patches, in order."""
    keys = ("patch", "verdict", "by", "where", "seconds")
    patches = [dict(zip(keys, line.rstrip("\n").split("\t"), strict=True)) for line in lines]
    for patch in patches:
        patch["verdict"] = patch["verdict"].lower()
        patch["seconds"] = int(patch["seconds"])
    return patches


def main(command, *arguments):
    if command == "judge":
        of_run, case_path, unpatched = arguments[:5], arguments[5], arguments[6:]
        *texts, case = judge(*of_run, *unpatched)
        if case and texts[0] == "caught":
            Path(case_path).write_text(json.dumps(case, indent=1) + "\n", encoding="utf-8")
        for text in texts:
            print(" ".join(text.split()))
        return
    if command == "unit":
        log, code = arguments
        for text in of_unit(Path(log).read_text(encoding="utf-8", errors="replace"), code):
            print(text)
        return
    if command == "score":
        killed, named = score_of(document_of(sys.stdin))
        killed_min, named_min = map(float, arguments)
        print(f"{killed:.1f} % caught (at least {killed_min:g}), "
              f"{named:.1f} % by a property (at least {named_min:g})")  # fmt: skip
        sys.exit(0 if killed >= killed_min and named >= named_min else 1)
    torch, cases, seed = arguments
    document = {"schema": 1, "torch": torch, "cases": int(cases), "seed": int(seed),
                "patches": document_of(sys.stdin)}  # fmt: skip
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
