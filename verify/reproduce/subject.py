"""Writes a Markdown report and a standalone script for the findings of a run of a Python subject:

    python subject.py RESULT.json EVIDENCE_DIR OUT_DIR [--python PYTHON]

PYTHON is the subject's own (this one, unless given). Findings of one root share a script. A script
states the case and the check; harness/, which is copied beside it as it is, runs it, and subject/
is the subject's own code. A script is run in an empty directory, without Shardproof, and is kept
only if it was seen to fail as the finding says. OUT_DIR/reproducers.json says what came of each
finding, by its fingerprint:

    {"schema": 1, "left_out": 0, "findings": {"63d598fe15a2f407":
        {"script": "01-loading-ties_kept-untied.py" or null, "report": "01-....md", "seen": true}}}

`seen` is false for what the script does not check by itself: the consequences of what it does.
Exit code: 0, also if no script was seen to fail; 2 if the input cannot be read.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import jinja2
import reports
from findings import NotShown, raised
from plans import Plan, plan_for
from run import Run
from script import needs_of, text_of, write_files

TENSORS_MAX = 50  # in one script
MADE_BYTES_MAX = 2 << 30  # of a checkpoint that a script makes by itself
STARTUP_SECONDS = 120  # imports, and the making of a checkpoint
PHASE_SECONDS = 60  # at least


@dataclasses.dataclass
class Group(reports.Group):
    """Findings of one root: those that a script checks, and those that follow from them."""

    plan: Plan | None = None
    phase: str = ""
    stage: str = ""
    why_not: str = ""


def plan_of(finding, run):
    """(Plan or None, why there is none)"""
    try:
        plan = plan_for(finding, run.oracle)
        run.strikes()  # if it can
        run.phases_for(finding["phase"], plan.reference)
        return plan, ""
    except NotShown as reason:
        return None, str(reason)


def groups_of(run):
    """All findings, each in one group; they come from the cause on."""
    groups, by_root, by_tensor = [], {}, {}
    for finding in run.result["findings"]:
        plan, why_not = plan_of(finding, run)
        tensor = finding["tensor"] or (plan.check if plan else why_not)
        stage = "" if plan and plan.at_the_end else finding["stage"]
        root = (plan.root() if plan else why_not, finding["phase"], stage)
        if plan and plan.is_of_ends:
            root = tensor = plan.check  # the first rank that failed; the others are consequences
        same = (tensor, finding["kind"] if root != tensor else "")
        earlier = by_tensor.get(same)
        if earlier and (finding["tensor"] or earlier.phase != finding["phase"]):
            earlier.also.append(finding)
            continue
        group = by_root.get(root)
        if group is None or len(group.findings) >= TENSORS_MAX:
            group = Group(
                plan=plan, phase=finding["phase"], stage=finding["stage"], why_not=why_not
            )
            by_root[root] = group
            groups.append(group)
        group.findings.append(finding)
        if plan and group.plan:
            group.plan.join(plan)
        by_tensor[same] = group
    return reports.name_groups(groups)


# ---- seeing it fail ------------------------------------------------------------------------------


@dataclasses.dataclass
class Seen:
    """What a run of a script showed.

    fails: {phase, rank, tensor, kind, what} of each, as the script has it
    missing: findings that none of them is of
    """

    code: int | None
    output: str
    fails: list
    missing: list


def ran(script, python, run, words, deadline):
    """Runs a script in an empty directory, as someone would who has no Shardproof.

    Returns (exit code, or None if it had to be ended; output; what fails).
    """
    launchers = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    environment = {name: value for name, value in os.environ.items() if name not in launchers}
    environment["PYTHONPATH"] = os.pathsep.join(run.folders if run.left else [])
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as scratch:
        # torch._dynamo makes a folder there as it is imported.
        environment["TORCHINDUCTOR_CACHE_DIR"] = scratch
        fails = os.path.join(scratch, "fails.json")
        process = subprocess.Popen(
            [python, script, *words, "--json", fails],
            cwd=empty,
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        try:
            output, _ = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the script and its ranks
            output, _ = process.communicate()
            return None, output + f"\n(ended after {deadline:.0f} s)", []
        if not os.path.exists(fails):
            return process.returncode, output, []
        with open(fails, encoding="utf-8") as file:
            return process.returncode, output, json.load(file)


# How a rank ends in a script, by the kind of the finding.
ENDS = {
    "ended": ("raised", "signal", "exit"),
    "error": ("raised",),
    "exit": ("exit",),
    "hang": ("hang",),
    "lost": ("signal",),
    "silent": ("exit",),
    "unclosed": ("exit",),
}


def is_of(fail, finding):
    """Whether what fails in a script is what a finding says."""
    if finding["ranks"] and fail["rank"] not in finding["ranks"]:
        return False
    if finding["property"] in ("fault.every_rank_finishes", "fault.ends_as_stated"):
        ends = ENDS.get(finding["kind"])
        is_end = ends is None or fail["kind"] in ends
        return is_end and (finding["kind"] != "error" or raised(finding) in ("", fail["raised"]))
    if finding["property"] == "sharding.collectives_in_order":
        return True
    return finding["tensor"] in ("", fail["tensor"])


def see(script, group, python, run, words):
    deadline = STARTUP_SECONDS + 3 * max(PHASE_SECONDS, run.deadline_s)
    code, output, fails = ran(script, python, run, words, deadline)
    output = output.replace(run.source, "DIR")
    missing = [one for one in group.findings if not any(is_of(fail, one) for fail in fails)]
    return Seen(code, output, fails, missing)


def reproduce(group, run, out, python):
    """Writes and runs the script of a group. \\returns (Seen or None, needs the real checkpoint)"""
    if not group.plan:
        return None, False
    path = os.path.join(out, group.slug + ".py")
    ways = [True] if run.checkpoint_bytes() > MADE_BYTES_MAX else [False, True]
    for needs_checkpoint in ways:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text_of(group, run, needs_checkpoint))
        words = ["--checkpoint", run.source] if needs_checkpoint else []
        seen = see(path, group, python, run, words)
        if is_offered(group, seen):
            return seen, needs_checkpoint
    os.unlink(path)
    return seen, True


def is_offered(group, seen):
    return seen is not None and seen.code == 1 and len(seen.missing) < len(group.findings)


# ---- the reports ---------------------------------------------------------------------------------


def python_version(python):
    words = [python, "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def write_all(run, out, python):
    """Every group's script and report, and the index."""
    groups, index, version = groups_of(run), {}, python_version(python)
    environment = reports.environment_of(python)
    os.makedirs(out, exist_ok=True)
    if any(group.plan for group in groups[: reports.REPORTS_MAX]):
        write_files(run, out)
    for group in groups[: reports.REPORTS_MAX]:
        seen, needs_checkpoint = reproduce(group, run, out, python)
        offered = is_offered(group, seen)
        script = f"{group.slug}.py" if offered else None
        text = pathlib.Path(out, script).read_text(encoding="utf-8") if script else ""
        report = reports.write_report(
            out,
            "subject.md.j2",
            group,
            run.result,
            seen.output if seen else "",
            offered=offered,
            seen=seen,
            needs_checkpoint=needs_checkpoint,
            python=version,
            left=run.left,
            needs=needs_of(run),
            subject=run.subject,
            files=run.files,
            environment=environment,
            script=text,
        )
        for finding in [*group.findings, *group.also]:
            is_seen = offered and not (finding in group.also or finding in seen.missing)
            entry = {"script": script, "report": report, "seen": is_seen}
            index.setdefault(finding["fingerprint"], entry)
        print(f"{group.slug}: {'seen to fail' if offered else 'no script'}", flush=True)
    reports.write_index(out, index, len(groups[reports.REPORTS_MAX :]))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result")
    parser.add_argument("evidence")
    parser.add_argument("out")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--redact", action="store_true", help="write reports without values")
    arguments = parser.parse_args()
    try:
        result = reports.read_result(arguments.result, arguments.redact)
        # Scripts run in another directory.
        out, python = os.path.abspath(arguments.out), os.path.abspath(arguments.python)
        python = python if os.path.exists(python) else arguments.python
        write_all(Run(result, arguments.evidence), out, python)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        SyntaxError,
        jinja2.TemplateError,
        subprocess.SubprocessError,
    ) as error:
        print(f"{arguments.result}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
