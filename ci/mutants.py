#!/usr/bin/env python3
"""What ci/mutate reads of JSON, and what it writes as JSON.

    mutants.py judge RESULT.json EXIT_CODE STEP CASE_FILES CASE.json
    mutants.py unit LOG EXIT_CODE
    mutants.py document TORCH CASES SEED < RESULTS
    mutants.py score KILLED_MIN NAMED_MIN [FLOOR.toml] < RESULTS

`judge` reads what `shardproof verify` left, and prints three lines: pass, named (by a property),
weak (caught by nothing that says what is wrong) or inconclusive; by which properties, or else why;
in which step, and where of it. Of several cases that one counts that says most. The case that shows
it goes to CASE.json.
`unit` reads what a program of unit tests printed, and prints two lines: pass or caught; by which
tests.
`document` turns lines of tab-separated patch, verdict, by, where and seconds into one document.
`score` prints how many percent of those that were judged are caught, and by a property. Exit code
1: fewer than so many; with FLOOR.toml, which has the shares `killed` and `named` of an earlier
measure, so few that a draw of this size would have them once in a hundred nights if nothing had
changed.
"""

import json
import math
import re
import sys
import tomllib
from pathlib import Path

FAIL = 3  # Verdict::kFail
ENDED = (124, 137)  # by `timeout`
PASSED = (0, 77)  # 77: this machine does not permit the fault, whatever is planted
SHOWN_MAX = 4
# Says of a rank only that it refused, crashed or did not end.
WEAKER = "fault.every_rank_finishes"


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


def of_failed(failure):
    """Of one generated case. One that took its process along, or did not end, was not judged: the
    clean checkout does not do that."""
    outcome = failure["outcome"]
    if outcome["findings"]:
        return "caught", properties_of(one[0] for one in outcome["findings"])
    if outcome["exit"] == "hang":
        return "caught", f"hang ({outcome['reason']})"
    if outcome["exit"]:
        return "caught", f"crash ({outcome['exit']})"
    return "inconclusive", outcome["reason"]


def of_generated(document):
    """Of a run of generated cases, by that which says most. The first few that failed are kept; the
    counts by property tell of all."""
    summary = document["summary"]
    failures = summary["failures"] + summary["unclear"]
    if not failures:
        return None
    failures.sort(key=lambda one: (not is_named(of_failed(one)[1]),
                                   one["outcome"]["verdict"] != FAIL))  # fmt: skip
    verdict, by = of_failed(failures[0])
    tallies = summary.get("properties", {})
    counted = [one for one in tallies if tallies[one]["failed"] and one != WEAKER]
    if counted and not is_named(by):
        return "caught", properties_of(counted), None
    return verdict, by, failures[0]


def place_of(failure, case_files):
    """Which of the generated cases, or which file: these come first, and are numbered for
    themselves."""
    index = failure["outcome"]["index"]
    if failure["numbered"]:
        return f"first in case {index}"
    return sorted(Path(case_files).rglob("*.json"))[index].name


def read(path):
    """What a run left; None if that is nothing, or not whole."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def how_it_ended(code):
    if code in ENDED:
        return "caught", "hang (the command did not end)"
    if code > 128:
        return "caught", f"crash (signal {code - 128} of the command)"
    return "inconclusive", f"exit code {code}"


def judge(result, exit_code, step, case_files):
    """(verdict, by, where, the case or None)."""
    code = int(exit_code)
    if code in PASSED:
        return "pass", "", step, None
    document = read(result)
    if document and "summary" in document:
        found = of_generated(document)
        # One that had to be ended may have left what says more than that.
        if found and (code not in ENDED or is_named(found[1])):
            verdict, by, failure = found
            if not failure:
                return verdict, by, step, None
            return verdict, by, f"{step}, {place_of(failure, case_files)}", failure["case"]
    elif document and code not in ENDED:
        verdict, by, case = of_case(document)
        return verdict, by, step, case
    return *how_it_ended(code), step, None


def of_unit(log, exit_code):
    """(verdict, by) of a program of unit tests, by what it printed."""
    code = int(exit_code)
    if code == 0:
        return "pass", ""
    if code in ENDED:
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
    return bool(re.match(r"\w+[.]\w", by)) and by != WEAKER


def counts_of(patches):
    """(judged, caught, caught by a property)."""
    judged = [one for one in patches if one["verdict"] in ("caught", "survived", "inconclusive")]
    caught = [one for one in judged if one["verdict"] == "caught"]
    return len(judged), len(caught), sum(is_named(one["by"]) for one in caught)


def is_fall(judged, count, percent):
    """Whether so few of those that were judged tell that less than so many percent of all are
    caught: by chance alone (each is drawn for itself) they are as few once in a hundred draws."""
    share = percent / 100
    chance = sum(
        math.comb(judged, k) * share**k * (1 - share) ** (judged - k) for k in range(count + 1)
    )
    return chance < 0.01


def score(patches, minima, floor=None):
    """(the line to print, whether it is enough). `minima`, `floor`: percent caught, and by a
    property."""
    judged, *counts = counts_of(patches)
    killed, named = (100 * count / max(1, judged) for count in counts)
    bounds = minima if floor is None else floor
    word = "at least" if floor is None else "floor"
    line = (f"{killed:.1f} % caught ({word} {bounds[0]:g}), "
            f"{named:.1f} % by a property ({word} {bounds[1]:g}) of {judged}")  # fmt: skip
    if floor is None:
        return line, killed >= minima[0] and named >= minima[1]
    fallen = any(is_fall(judged, count, bound) for count, bound in zip(counts, floor, strict=True))
    return line + (": it has fallen" if fallen else ""), not fallen


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
        *of_run, case_path = arguments
        *texts, case = judge(*of_run)
        if texts[0] == "caught":
            texts[0] = "named" if is_named(texts[1]) else "weak"
        if case and texts[0] in ("named", "weak"):
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
        *minima, floor = [*arguments, None][:3]
        if floor is not None:
            shares = tomllib.loads(Path(floor).read_text(encoding="utf-8"))
            floor = (shares["killed"], shares["named"])
        line, enough = score(document_of(sys.stdin), tuple(map(float, minima)), floor)
        print(line)
        sys.exit(0 if enough else 1)
    torch, cases, seed = arguments
    document = {"schema": 1, "torch": torch, "cases": int(cases), "seed": int(seed),
                "patches": document_of(sys.stdin)}  # fmt: skip
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
