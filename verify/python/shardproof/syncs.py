"""`shardproof report` of what a trainer and its engines wrote of their syncs:

shardproof report DIR [--json FILE]    # DIR has their *.syncs.jsonl
"""

import argparse
import json
import os
import pathlib
import sys

from ._syncs import _log
from ._syncs._rules import RULES, Log, Logs, Skipped, Unsure

_SHOWN = 20  # findings of a rule
_KEYS = {
    "job": str, "version": int, "manifest": str,
    "trainer": {"weights": str, "steps": int | None, "rate": float | int | None, "rounds": bool},
    "engine": {
        "looked": bool, "looked_at": int | None, "held": int | None, "compared": int, "left": list,
        "count": int, "found": list, "refused": str | None,
    },
}  # fmt: skip
_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}


class BadLog(Exception):
    """One line."""


def main(words) -> int:
    parser = argparse.ArgumentParser(
        prog="shardproof report", allow_abbrev=False, description="Judges logs of syncs."
    )
    parser.add_argument("path", metavar="DIR", help=f"a folder of *{_log.SUFFIX}, or one")
    parser.add_argument("--json", metavar="FILE", help="write the result; - is stdout")
    said = parser.parse_args(words)
    try:
        logs = read(pathlib.Path(said.path))
        result = judge(logs)
        if said.json:
            _write(said.json, result)
    except (BadLog, OSError) as error:
        print(f"shardproof: {error}", file=sys.stderr)
        return 2
    if said.json != "-":
        print(text_of(result, said.path))
    return _CODES[result["verdict"]]


def read(path) -> Logs:
    """\\raises BadLog, OSError."""
    files = sorted(path.glob(f"*{_log.SUFFIX}")) if path.is_dir() else [path]
    sides: dict[str, list[Log]] = {"trainer": [], "engine": []}
    for file in files:
        lines = _lines_of(file)
        side = lines[0]["side"] if lines else None
        if any(each["side"] != side for each in lines):
            raise BadLog(
                f"{file}: it has lines of a trainer and of an engine: expected a file for each"
            )
        if lines:
            sides[side].append(Log(file.name.removesuffix(_log.SUFFIX), lines))
    if len(sides["trainer"]) > 1:
        names = ", ".join(each.name for each in sides["trainer"])
        raise BadLog(f"{path}: logs of several trainers ({names}): expected the log of one")
    if not any(sides.values()):
        raise BadLog(f"{path}: its logs record no sync")
    return Logs(next(iter(sides["trainer"]), None), sides["engine"])


def _lines_of(file) -> list[dict]:
    """What ends without a newline is being written."""
    found = []
    for number, text in enumerate(file.read_bytes().split(b"\n")[:-1], 1):
        try:
            line = json.loads(text)
            if line["syncs"] != _log.SCHEMA:
                raise BadLog(f"{file}, line {number}: schema {line['syncs']!r}, expected 1")
            _check_types(line, _KEYS)
            _check_types(line, _KEYS[line["side"]])
            for each in line.get("found", ()):
                _check_types(each, {"tensor": str, "ranks": list, "what": str})
            for each in line.get("left", ()):
                _check_types({"left": each}, {"left": str})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadLog(
                f"{file}, line {number}: this line is not a record of a sync: {error!r}"
            ) from error
        found.append(line)
    return found


def _check_types(line, keys):
    for key, expected in keys.items():
        if not isinstance(expected, dict) and not isinstance(line[key], expected):
            raise TypeError(f"{key} is {line[key]!r}")


def _unlooked(logs: Logs):
    """Versions that an engine was given, and of which no check looked at everything (`every=`,
    `budget_s=`)."""
    for engine in logs.engines:
        seen = {line["version"] for line in engine.lines
                if line["looked"] and line["looked_at"] == line["held"]}  # fmt: skip
        if left := sorted({line["version"] for line in engine.lines} - seen):
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            yield f"{engine.name}: no check looked at all of version {left[0]}{more}"


def judge(logs: Logs) -> dict:
    rules = [_judged(key, list(rule(logs))) for key, rule in RULES.items()]
    verdicts = {each["verdict"] for each in rules}
    worst = next((each for each in ("fail", "inconclusive") if each in verdicts), "pass")
    checked = [line for engine in logs.engines for line in engine.lines if line["looked"]]
    return {
        "verdict": worst, "rules": rules, "sent": len(logs.sent()), "engines": len(logs.engines),
        "checks": len(checked), "comparisons": sum(line["compared"] for line in checked),
        "not_compared": sorted({*_unlooked(logs), *(e for line in checked for e in line["left"])}),
    }  # fmt: skip


def _judged(key, said) -> dict:
    findings = [each for each in said if isinstance(each, str)]
    unsure = [each.why for each in said if isinstance(each, Unsure)]
    skipped = [each.why for each in said if isinstance(each, Skipped)]
    verdict = "fail" if findings else "inconclusive" if unsure else "skip" if skipped else "pass"
    return {"id": key, "verdict": verdict, "findings": findings, "reasons": [*unsure, *skipped]}


def text_of(result, path) -> str:
    count = sum(len(each["findings"]) for each in result["rules"])
    found = f", {count} finding{'s' * (count != 1)}" if count else ""
    lines = [
        f"shardproof: {result['verdict']}{found}: versions sent {result['sent']}, engines "
        f"{result['engines']}, checks {result['checks']}: {path}"
    ]
    for each in result["rules"]:
        lines += [f"FAIL {each['id']}: {one}" for one in each["findings"][:_SHOWN]]
        if (more := len(each["findings"]) - _SHOWN) > 0:
            lines.append(f"and {more} more of {each['id']}")
        word = {"inconclusive": "inconclusive", "skip": "skipped"}.get(each["verdict"])
        lines += [f"{word} {each['id']}: {one}" for one in each["reasons"] if word]
    passed = [each["id"] for each in result["rules"] if each["verdict"] == "pass"]
    lines += [f"passed  {', '.join(passed)}"] if passed else []
    lines += [f"not compared: {each}" for each in result["not_compared"][:_SHOWN]]
    return "\n".join([*lines, f"{result['verdict']}: {result['comparisons']:,} comparisons"])


def _write(path, result):
    text = json.dumps(result, indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    part = f"{path}.{os.getpid()}.part"
    pathlib.Path(part).write_text(text)
    os.replace(part, path)
