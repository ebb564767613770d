"""Writes what shows the findings of a run of the reference pipeline:

    python reference.py RESULT.json OUT_DIR --command SHARDPROOF

OUT_DIR/case.json is the case, for `shardproof replay`; OUT_DIR/program.cc has it in a C++ program,
for `ci/reproduce`; every group of findings with one cause has a Markdown report. The case is run
again with SHARDPROOF, so that a report can say whether it fails again. OUT_DIR/reproducers.json
says what came of each finding, by its fingerprint:

    {"schema": 1, "left_out": 0, "findings": {"63d598fe15a2f407": {"script": null,
        "program": "program.cc", "report": "01-loading-ties_kept-untied.md", "seen": true}}}

`seen` says whether the second run had this finding, too.
Exit code: 0, also if nothing failed again; 2 if the input cannot be read.
"""

import argparse
import json
import os
import subprocess
import sys

import jinja2
import reports
from program import program_of

REPLAY_SECONDS = 900


def groups_of(findings):
    """Findings of one kind at one place in the run, from the cause on.

    A tensor that is wrong once is likely to stay so: what else is found of it is a consequence.
    """
    by_root, by_tensor = {}, {}
    for finding in findings:
        tensor = finding["tensor"] or finding["property"]
        if tensor in by_tensor:
            by_tensor[tensor].also.append(finding)
            continue
        root = tuple(finding[key] for key in ("property", "kind", "phase", "stage"))
        by_tensor[tensor] = by_root.setdefault(root, reports.Group())
        by_tensor[tensor].findings.append(finding)
    return reports.name_groups(list(by_root.values()))


def fingerprints_again(command, case_path, properties):
    """The fingerprints of what a second run finds; None if it came to no verdict."""
    if "RANK" in os.environ:  # one of several ranks that somebody else has started
        return None
    words = [command, "replay", case_path, "--json", "-"]
    words += [word for one in properties for word in ("--property", one)]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=REPLAY_SECONDS
        )
        return {one["fingerprint"] for one in json.loads(done.stdout)["findings"]}
    except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return None


def write_all(result, out, command):
    """The case, the program, every group's report, and the index."""
    os.makedirs(out, exist_ok=True)
    findings = result["findings"]
    properties = [one["id"] for one in result["properties"] if one["verdict"] == "fail"]
    case_path = os.path.join(out, "case.json")
    with open(case_path, "w", encoding="utf-8") as file:
        json.dump(result["case"], file, indent=1)
        file.write("\n")
    with open(os.path.join(out, "program.cc"), "w", encoding="utf-8") as file:
        file.write(program_of(result["case"], properties, reports.title_of(findings[0])))
    again = fingerprints_again(command, case_path, properties)
    groups, index = groups_of(findings), {}
    environment = reports.environment_of(sys.executable)
    for group in groups[: reports.REPORTS_MAX]:
        report = reports.write_report(
            out, "reference.md.j2", group, result, subject="reference", python="", again=again,
            environment=environment,
        )  # fmt: skip
        for finding in [*group.findings, *group.also]:
            is_seen = again is not None and finding["fingerprint"] in again
            entry = {"script": None, "program": "program.cc", "report": report, "seen": is_seen}
            index.setdefault(finding["fingerprint"], entry)
    reports.write_index(out, index, len(groups[reports.REPORTS_MAX :]))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result")
    parser.add_argument("out")
    parser.add_argument("--command", required=True)
    parser.add_argument("--redact", action="store_true", help="write reports without values")
    arguments = parser.parse_args()
    try:
        result = reports.read_result(arguments.result, arguments.redact)
        write_all(result, os.path.abspath(arguments.out), arguments.command)
    except (OSError, ValueError, KeyError, TypeError, jinja2.TemplateError) as error:
        print(f"{arguments.result}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
