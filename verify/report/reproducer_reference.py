"""Writes a Markdown report and a C++ program for the findings of a run of the reference pipeline:

    python reproducer_reference.py RESULT.json EVIDENCE_DIR OUT_DIR
        [--source CHECKOUT] [--build BUILD_TREE] [--torch-python PYTHON]

A program is a folder with main.cc and CMakeLists.txt. It runs the job on the sources of the pipeline
in CHECKOUT, linked with what BUILD_TREE has of them already, and on nothing of the verifier. It is
built and run, and is kept only if it was seen to fail. Findings of one root share a program.
OUT_DIR/case.json is the case, for `shardproof replay`. OUT_DIR/reproducers.json says what came of
each finding, by its fingerprint:

    {"schema": 1, "left_out": 0, "findings": {"63d598fe15a2f407": {"script": null,
        "program": "01-loading-ties_kept-untied" or null, "report": "01-loading-ties_kept-untied.md", "seen": true}}}

`seen` is false for what the program does not check by itself.
Exit code: 0, also if no program was seen to fail; 2 if the input cannot be read.
"""

import argparse
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

# After this folder, whose html.py would hide the standard module html.
sys.path.append(sys.path.pop(0))

import jinja2
import reproducer_faults as faults
import reproducer_training as training
from reproducer_checks import LATE_STAGES, Plan, coordinates_of, descriptor_at, plan_for
from reproducer_job import job_of, mesh_text, source_files
from reproducer_shared import (
    REPORTS_MAX, NotShown, age, quoted, read_result, report_text, templates, title_of, write_index,
)  # fmt: skip

PROGRAMS_MAX = 3  # each takes most of a minute to compile
BUILD_SECONDS = 900
RUN_SECONDS = 120
LIBRARIES = tuple(f"src/{library}.a" for library in (
    "libpipeline", "libpattern", "libnumeric", "libpickle", "digest/libdigest", "libtext"))  # fmt: skip


class Run:
    """What a run was, and what the oracle said."""

    def __init__(self, result, evidence):
        self.result, self.evidence, self.case = result, evidence, result["case"]
        with open(os.path.join(evidence, "oracle.json"), encoding="utf-8") as file:
            self.oracle = json.load(file)

    def descriptor(self, finding):
        """What the finding's first rank said that the tensor is. Raises NotShown."""
        rank = (finding["ranks"] or [0])[0]
        return descriptor_at(self.evidence, finding["phase"], rank, finding["stage"], finding["tensor"])

    def shard_group(self, finding):
        """The ranks that hold the whole of the tensor together, the finding's first among them. Raises NotShown."""
        first = (finding["ranks"] or [0])[0]
        placements = self.descriptor(finding).get("placements", [])
        if not placements:
            return [first]
        # Ranks that differ in no axis but those that cut it.
        alike = [axis for axis, one in enumerate(placements) if "shard" not in one["kind"]]
        at = {rank: coordinates_of(self.evidence, finding["phase"], rank) for rank in range(finding["world_size"])}
        return [rank for rank, place in at.items() if all(place[axis] == at[first][axis] for axis in alike)]


@dataclasses.dataclass
class Group:
    """Findings of one root: the first is what a program checks."""

    plan: Plan | None
    why_not: str
    slug: str = ""
    findings: list = dataclasses.field(default_factory=list)
    also: list = dataclasses.field(default_factory=list)


def groups_of(run):
    """All findings, each in one group: a tensor that is wrong once is likely to stay so."""

    def order(finding):
        phase, stage = age(finding, run.result["compared"])
        # What differs in order makes others fail; of the rest, the plainest words.
        stage = -1 if finding["kind"] == "order" else stage
        plain = ("loading.no_meta_left", "loading.equals_source", finding["property"])
        return phase, stage, plain.index(finding["property"])

    plans = {}
    for finding in run.result["findings"]:
        try:
            plans[id(finding)] = plan_for(finding, run), ""
        except NotShown as reason:
            plans[id(finding)] = None, str(reason)
    groups, by_root, by_tensor = [], {}, {}
    for finding in sorted(run.result["findings"], key=lambda one: (plans[id(one)][0] is None, *order(one))):
        plan, why_not = plans[id(finding)]
        tensor = finding["tensor"] or finding["property"]
        if tensor in by_tensor:
            by_tensor[tensor].also.append(finding)
            continue
        root = (plan.check, plan.field, finding["phase"], plan.stage) if plan else why_not
        group = by_root.get(root)
        if group is None:
            group = by_root[root] = Group(plan, why_not)
            groups.append(group)
        group.findings.append(finding)
        by_tensor[tensor] = group
    for number, group in enumerate(groups):
        first = group.findings[0]
        group.slug = re.sub(r"[^\w-]+", "-", f"{number + 1:02d}-{first['property']}-{first['kind']}")
    return groups


# ---- a program -----------------------------------------------------------------------------------


def seed_of(case, phase):
    """Of the order of the ranks, as verify/launch/sim_launcher.cc has it."""
    seed = case["seed"]
    for char in phase.encode():
        seed = (seed * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF) ^ char
    return seed


def phases_for(finding, plan, case, restored, *, saves_all):
    """What the program runs: as much of the finding's phase as leads to its stage.

    restored: the job that a restore is asked for
    saves_all: whether a training job makes every save on the way
    """
    if faults.is_of_struck_job(finding, plan, case):
        phases = faults.phases_for(finding, plan, case, restored)
    elif finding["phase"] in training.PHASES:
        phases = [{"name": name, "mesh": case["resume_mesh" if name == "train_resume" else "mesh"],
                   "work": training.work(name, finding, plan, case, restored, saves_all=saves_all)}
                  for name in training.phases_of(finding, plan)]  # fmt: skip
    else:
        phases = loading_phases(finding, plan, case, restored)
    for phase in phases:
        words = "".join(word.capitalize() for word in phase["name"].split("_"))
        # Where a fault strikes, and where it is asked for, something lies that can be lost.
        struck = bool(case["faults"]) and phase["name"] == faults.struck_phase(case)
        saves = any("Save(" in line for line in phase["work"])
        left = struck and faults.disrupts(case) or case.get("leftovers", False) and phase["name"] != "after"
        phase.setdefault("armed", struck)
        phase["earlier"] = phase.get("earlier", False) or left and saves
        phase.setdefault("save_to", "")
        phase |= {"seed": seed_of(case, phase["name"]), "mesh": mesh_text(phase["mesh"]), "function": f"Phase{words}"}
    return phases


def loading_phases(finding, plan, case, restored):
    late = finding["stage"].removesuffix(".optimizer")
    whole = plan.check == "collective" or plan.check == "ends" and late not in ("built", "loaded", "ready")
    load = ["SP_ASSIGN(const Model model, Load(job, stages, world));"]
    save, restore = ["SP_TRY(Save(model, job, stages, world));"], [f"SP_TRY(Restore({restored}, stages, world));"]
    if finding["phase"] == "resume":
        return [{"name": "values", "mesh": case["mesh"], "work": load + save},
                {"name": "resume", "mesh": case["resume_mesh"], "work": restore}]  # fmt: skip
    saves = finding["phase"] == "values" and (whole or late in LATE_STAGES)
    restores = finding["phase"] == "values" and (whole or late == "restored")
    return [{"name": finding["phase"], "mesh": case["mesh"],
             "work": load + save * saves + restore * restores}]  # fmt: skip


def told_plainly(title, run):
    """Without what was on record of the fault, which is said in plain words, and without where evidence lay."""
    return title.partition("; injected: ")[0].replace(os.path.abspath(run.evidence) + os.sep, "").replace(
        run.evidence + os.sep, "").rstrip()  # fmt: skip


def write_program(folder, group, run, attempt):
    """main.cc and CMakeLists.txt. Raises NotShown."""
    finding, case = group.findings[0], run.case
    is_plain = finding["phase"] == "plain"  # the yardstick, without the bug
    bug = "" if is_plain else case["bug"]
    redraws = bool(case["model"].get("from_scratch") or case["model"].get("lora"))  # as verify/rank/worker.cc
    restored = "WithAnotherSeed(job)" if redraws else "job"
    phases = phases_for(finding, group.plan, case, restored, saves_all=attempt.saves_all)
    calls = " ".join(line for phase in phases for line in phase["work"])
    spec, job_lines = job_of(case, "plain" if is_plain else case["strategy"])
    if any("Train(" in line for phase in phases for line in phase["work"]) or finding["phase"] in training.PHASES:
        job_lines += training.job_lines(case)
    strikes = faults.strikes_of(run) if any(phase["armed"] for phase in phases) else []
    of_training = any("Train(" in line for phase in phases if phase["earlier"] for line in phase["work"])
    earlier_step = training.step_name(training.saved_steps(case)[0]) if of_training else ""
    facts = {
        "strikes": strikes, "processes": attempt.processes, "world": faults.world_of(case),
        "told": bool(strikes) or attempt.processes or group.plan.judges, "earlier_step": earlier_step,
        "earlier": any(phase["earlier"] for phase in phases) or group.plan.check == "left",
        "working_on": any(one["seam"] != "rank" and one.get("stage") for one in strikes),
        "loses_ranks": not attempt.processes and any(one["seam"] == "rank" and one["model"] == "lost" for one in strikes),
        "is_after": finding["phase"] == "after",
        "bug": bug, "bug_file": bug.replace(".", "_", 1) + ".cc", "plan": group.plan, "spec": spec,
        "title": textwrap.wrap(told_plainly(title_of(finding), run), 96), "phases": phases,
        "redraws": "WithAnotherSeed(" in calls, "saves_async": "StartSave(" in calls,
        "trains": "Train(" in calls,
        "copies": training.copies(finding, group.plan, case), "checkpoint": source_files(run), "job_lines": job_lines,
        "yields": attempt.yields, "loses": attempt.loses,
    }  # fmt: skip
    environment = templates()
    environment.filters["quoted"] = quoted
    os.makedirs(folder, exist_ok=True)
    for name in ("main.cc", "CMakeLists.txt"):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(environment.get_template(name + ".j2").render(**facts))


@dataclasses.dataclass
class Tools:
    """What a program is built with."""

    source: str
    build: str
    python: str

    def why_not(self, bug):
        """Why nothing can be built here, or nothing."""
        if not os.path.exists(os.path.join(self.source, "src/pipeline/pipeline.h")):
            return "the sources of the pipeline are not here: this is an installed command"
        if shutil.which("cmake") is None:
            return "there is no cmake to build it with"
        lacks = [one for one in LIBRARIES if self.build and not os.path.exists(os.path.join(self.build, one))]
        if lacks:
            return f"the build tree of the command lacks {lacks[0]}"
        if bug and not os.path.exists(os.path.join(self.source, "verify/bug/bug.cc")):
            return "the sources of the planted bug are not here"
        return ""

    def words(self):
        # What the checkout itself is built with may be all there is; CMake's own choice is make.
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        build = [f"-DSHARDPROOF_BUILD={os.path.abspath(self.build)}"] if self.build else []
        return [*generator, f"-DSHARDPROOF_SOURCE={os.path.abspath(self.source)}", *build,
                f"-DTORCH_PYTHON={self.python}"]  # fmt: skip


@dataclasses.dataclass
class Attempt:
    """What of the verifier's surroundings a program has."""

    yields: bool = False  # ranks have turns at files, which change the order of all that follows
    saves_all: bool = False  # a training job makes every save on the way
    loses: bool = False  # what took a file's place is gone if nobody has made that durable
    processes: bool = False  # ranks are processes over Gloo, which have their time


def attempts_for(group, case):
    """Programs to try, one after the other: first the one that has the least."""
    ids = {fault["id"] for fault in case["faults"]}
    alone = Attempt(processes=True)
    if ids & set(faults.PROCESSES_ONLY):
        return (alone,)
    if group.plan.check in ("as_stated", "ends") and case["transport"] == "gloo" and not ids & set(faults.THREADS_ONLY):
        is_late = re.search(r"[Tt]imed out", group.findings[0]["message"])
        threads = (Attempt(), Attempt(yields=True, saves_all=True))
        return (alone, *threads) if is_late else (*threads, alone)
    if group.plan.check == "disk_latest":
        return Attempt(), Attempt(loses=True)
    return Attempt(), Attempt(yields=True, saves_all=True)


@dataclasses.dataclass
class Seen:
    """How a program came out."""

    code: int | None
    output: str
    built: bool = True


def ended(words, seconds, folder):
    """(exit code or None if it had to be ended, output)"""
    try:
        done = subprocess.run(words, cwd=folder, timeout=seconds, encoding="utf-8", errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        return None, f"{late.output or ''}\n(ended after {seconds} s)"


def build_and_run(folder, tools, *more):
    """Builds the program of a folder elsewhere and runs it in an empty directory. \\returns Seen"""
    with tempfile.TemporaryDirectory() as build, tempfile.TemporaryDirectory() as empty:
        for words in (["cmake", "-S", folder, "-B", build, *tools.words(), *more],
                      ["cmake", "--build", build]):  # fmt: skip
            code, output = ended(words, BUILD_SECONDS, empty)
            if code != 0:
                return Seen(code, output, built=False)
        return Seen(*ended([os.path.join(build, "reproducer")], RUN_SECONDS, empty))


def reproduce(group, run, out, tools):
    """Writes, builds and runs the program of a group. \\returns Seen or None; group.why_not says why."""
    if not group.plan:
        return None
    group.why_not = tools.why_not(run.case["bug"])
    if group.why_not:
        return None
    folder, seen = os.path.join(out, group.slug), None
    for attempt in attempts_for(group, run.case):
        try:
            write_program(folder, group, run, attempt)
        except NotShown as reason:
            group.why_not = str(reason)
            return None
        seen = build_and_run(folder, tools)
        if not seen.built or seen.code == 1:
            break
    if seen.code != 1 or not seen.built:
        shutil.rmtree(folder)
    return seen


def write_all(result, evidence, out, tools):
    """Every group's program and report, the case and the index."""
    run = Run(result, evidence)
    groups = groups_of(run)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "case.json"), "w", encoding="utf-8") as file:
        json.dump(run.case, file, indent=1)
        file.write("\n")
    index, programs = {}, 0
    for group in groups[:REPORTS_MAX]:
        if group.plan and programs == PROGRAMS_MAX:
            group.plan, group.why_not = None, f"a report has at most {PROGRAMS_MAX} programs"
        seen = reproduce(group, run, out, tools)
        programs += seen is not None
        offered = seen is not None and seen.built and seen.code == 1
        text = report_text("reproducer_program.md.j2", group, result, seen.output if seen else "",
                           offered=offered, seen=seen, subject="reference", python="",
                           reproducer="the program")  # fmt: skip
        with open(os.path.join(out, group.slug + ".md"), "w", encoding="utf-8") as file:
            file.write(text)
        for finding in [*group.findings, *group.also]:
            index.setdefault(finding["fingerprint"], {
                "script": None, "program": group.slug if offered else None, "report": f"{group.slug}.md",
                "seen": offered and finding is group.findings[0]})  # fmt: skip
        print(f"{group.slug}: {'seen to fail' if offered else 'no program'}", flush=True)
    write_index(out, index, len(groups[REPORTS_MAX:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("result")
    parser.add_argument("evidence")
    parser.add_argument("out")
    parser.add_argument("--source", default="")
    parser.add_argument("--build", default="")
    parser.add_argument("--torch-python", default=sys.executable)
    arguments = parser.parse_args()
    try:
        tools = Tools(arguments.source, arguments.build, arguments.torch_python)
        write_all(read_result(arguments.result), arguments.evidence, os.path.abspath(arguments.out), tools)
    except (OSError, ValueError, KeyError, TypeError, jinja2.TemplateError) as error:
        print(f"{arguments.result}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
