"""Writes a script: what stands in it, and the files beside it that it runs."""

import json
import math
import os
import shutil
import sys
import textwrap

import reports
from run import HERE, PACKAGE

LINE = 100
LABEL = 20  # room for what stands before a value on its line
HANG_SECONDS = 30  # at least, before a script calls a rank hung
BUSY_SECONDS = 60  # the least deadline of a phase: a busy machine is not a hang
# What harness/ has from the package, as it is there.
OF_PACKAGE = (
    "case.py", "_case_defaults.py", "_dtypes.py", "_mesh.py", "_memory/_pages.py", "_phases.py",
)  # fmt: skip


def write_harness(out):
    """The folder harness/, every file as it is."""
    folder = os.path.join(out, "harness")
    ignore = shutil.ignore_patterns("__pycache__", "*_test.py")
    shutil.copytree(os.path.join(HERE, "harness"), folder, ignore=ignore, dirs_exist_ok=True)
    for name in OF_PACKAGE:
        shutil.copyfile(
            os.path.join(PACKAGE, "shardproof", name), os.path.join(folder, os.path.basename(name))
        )


def write_files(run, out):
    """The harness, the subject's own code, and its model."""
    write_harness(out)
    for name, path in run.modules.items():
        target = os.path.join(out, "subject", name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(path, target)
    if run.config_path:
        shutil.copyfile(run.config_path, os.path.join(out, "config.json"))
    if run.is_synthetic:
        with open(os.path.join(out, "model.json"), "w", encoding="utf-8") as file:
            file.write(model_text(run.case["model"]))


def model_text(model):
    """The JSON of a model, a line for each tensor."""
    fields = []
    for name, value in model.items():
        text = json.dumps(value)
        if name == "tensors":
            text = "[\n    " + ",\n    ".join(json.dumps(one) for one in value) + "\n  ]"
        fields.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


class Call:
    """A call as text."""

    def __init__(self, name, arguments):
        self.name, self.arguments = name, arguments

    def text(self, indent=0):
        items = [f"{key}={literal(one, indent + 4)}" for key, one in self.arguments.items()]
        return bracketed(f"{self.name}(", items, ")", indent)


def literal(value, indent=0):
    """A value as Python, on as many lines as it needs where it begins at this indentation."""
    if isinstance(value, Call):
        return value.text(indent)
    if isinstance(value, dict):
        items = [f"{literal(key)}: {literal(one, indent + 4)}" for key, one in value.items()]
        return bracketed("{", items, "}", indent)
    if isinstance(value, list):
        return bracketed("[", [literal(one, indent + 4) for one in value], "]", indent)
    if isinstance(value, tuple):
        return f"({', '.join(literal(one, indent) for one in value)})"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and math.isnan(value):
        return 'float("nan")'
    return repr(value)


def bracketed(begin, items, end, indent):
    """On one line if that fits and none of the items has more, else a line for each."""
    line = begin + ", ".join(items) + end
    if "\n" not in line and indent + LABEL + len(line) <= LINE:
        return line
    inner = " " * (indent + 4)
    return f"{begin}\n" + "".join(f"{inner}{one},\n" for one in items) + " " * indent + end


def job_of(group, run, needs_checkpoint, phases):
    """The call that makes a script's Job."""
    order = run.orders[group.phase]
    least = HANG_SECONDS if any(one["kind"] == "hang" for one in group.findings) else BUSY_SECONDS
    scale = max(1.0, least / run.deadline_s)
    job = {
        "subject": f"subject/{run.subject}",
        "phases": phases,
        "at": (group.phase, group.stage),
        "timeout_s": round(order["timeout_ms"] * scale / 1000, 1),
        "deadline_s": round(run.deadline_s * scale, 1),
    }
    if run.is_synthetic:
        job["model"] = "model.json"
    if not needs_checkpoint:
        config = {"config": "config.json"} if run.config_path else {}
        job["checkpoint"] = Call("RandomCheckpoint", config | run.checkpoint_differences())
    if faults := run.strikes():
        job["faults"] = faults
    return Call("Job", job)


def check_of(group, run):
    """The call that makes a script's check."""
    plan = group.plan
    arguments = {**plan.arguments, **plan.of_tensor}
    if plan.check == "SurvivorsEnd" and all(act == "slow" for *_, act in run.strikes()):
        arguments["may_fail"] = False
    names = list(dict.fromkeys(one["tensor"] for one in group.findings if one["tensor"]))
    if names and not plan.is_of_ends:
        arguments = {"tensors": names, **arguments}
    return Call(plan.check, arguments)


def text_of(group, run, needs_checkpoint):
    """The text of a group's script."""
    plan = group.plan
    phases = {one: run.fields_of(one) for one in run.phases_for(group.phase, plan.reference)}
    job = job_of(group, run, needs_checkpoint, phases)
    text = f"JOB = {job.text()}\nCHECK = {check_of(group, run).text()}\n"
    made = [] if needs_checkpoint else ["RandomCheckpoint"]
    return (
        reports.templates()
        .get_template("script.py.j2")
        .render(
            group=group,
            run=run,
            plan=plan,
            phases=phases,
            text=text,
            uses_torch="(torch." in text or ": torch." in text,
            imported=[*sorted(["Job", plan.check, *made]), "main"],
            needs_checkpoint=needs_checkpoint,
            title="\n".join(textwrap.wrap(reports.title_of(group.first), LINE - 4)),
            needs=needs_of(run),
            versions=run.result["versions"],
        )
    )


def needs_of(run):
    found = {name.split(".")[0] for name in run.imported} - set(sys.stdlib_module_names)
    return sorted(
        found | {"torch", "safetensors"} | ({"transformers"} if run.config_path else set())
    )
