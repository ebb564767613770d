"""Writes a Markdown report and a standalone script for the findings of a run of a Python subject:

    python reproducer.py RESULT.json EVIDENCE_DIR OUT_DIR [--python PYTHON]

PYTHON is the subject's own (this one, unless given). Findings of one root share a script. A script
is run, in an empty directory and without Shardproof, and is kept only if it was seen to fail as the
finding says. OUT_DIR/reproducers.json says what came of each finding, by its fingerprint:

    {"schema": 1, "left_out": 0, "findings": {"63d598fe15a2f407":
        {"script": "loading-ties_kept-1.py" or null, "report": "loading-ties_kept-1.md", "seen": true}}}

`seen` is false for what the script does not check by itself: the consequences of what it does.
Exit code: 0, also if no script was seen to fail; 2 if the input cannot be read.
"""

import argparse
import ast
import dataclasses
import json
import math
import os
import pprint
import re
import signal
import subprocess
import sys
import tempfile
import textwrap

import jinja2

HERE = os.path.dirname(os.path.abspath(__file__))
# The folder that holds the package: beside this one in the repository, around it where installed.
PACKAGE = os.path.join(os.path.dirname(HERE), "python")
if not os.path.isdir(PACKAGE):
    PACKAGE = os.path.dirname(os.path.dirname(HERE))
# After this folder, whose html.py would hide the standard module html.
sys.path.append(sys.path.pop(0))
sys.path.append(PACKAGE)

import embed
from reproducer_shared import (
    REPORTS_MAX, NotShown, age, facts_of, read_result, report_text, templates, title_of, write_index,
)  # fmt: skip
from shardproof._dtypes import DTYPES

TENSORS_MAX = 50  # in one script
MADE_BYTES_MAX = 2 << 30  # of a checkpoint that a script makes by itself
HANG_SECONDS = 30  # at least, before a script calls a rank hung
STARTUP_SECONDS = 120  # imports, and the making of a checkpoint


# ---- what to check -------------------------------------------------------------------------------


@dataclasses.dataclass
class Plan:
    """What a script does about a finding: functions of reproducer_parts.py and their constants."""

    check: str
    look: str = "look_at_values"
    expected: str = ""
    constants: dict = dataclasses.field(default_factory=dict)
    of_tensor: dict = dataclasses.field(default_factory=dict)  # constants that are joined

    @property
    def at_the_end(self):
        """Whether it is about run() as a whole, and not about one stage."""
        return self.look != "look_at_values" or self.check in ("check_saved", "check_peak")

    def root(self):
        return json.dumps([self.check, self.look, self.expected, self.constants], sort_keys=True)


def tie_of(oracle, name):
    return next((tie for tie in oracle["ties"] if name in tie), [name])


def against(finding):
    """What a difference of values is a difference from: (function, reference phase and stage)."""
    here, message = (finding["phase"], finding["stage"]), finding["message"]
    if named := re.search(r"differs from `([\w@.]+)` of phase (\w+)", message):
        return "expected_from_reference", (named.group(2), named.group(1))
    if named := re.search(r"differs from (?:the model|its value) at `([\w@.]+)`", message):
        return "expected_from_reference", (here[0], named.group(1))
    for words, found in (
        ("the checkpoint", ("expected_from_checkpoint", None)),
        ("the plain path", ("expected_from_reference", ("plain", "ready"))),
        ("rank 0 at `loaded`", ("expected_from_reference", (here[0], "loaded"))),
        (r"its initial value|rank \d+", ("expected_from_reference", here)),
    ):
        words = words if "|" in words else re.escape(words)
        if re.search(rf"differs from ({words})|(is .*, )({words}) has", message):
            return found
    raise NotShown("what it was compared with cannot be had with torch alone")


def plan_values(finding, oracle):
    name = finding["tensor"]
    if finding["property"] == "loading.derived_buffers":
        formula = oracle["derived"].get(name, oracle["derived"].get(name.replace("original_", "")))
        if formula is None:
            raise NotShown("its formula is not in the evidence")
        values = [float("nan") if isinstance(one, str) else one for one in formula["values"]]
        return Plan("check_values", expected="expected_from_formula",
                    constants={"ULP": formula["ulp_max"]}, of_tensor={"FORMULA": {name: values}})  # fmt: skip
    function, reference = against(finding)
    key = next((one for one in tie_of(oracle, name) if one in oracle["source"]["tensors"]), name)
    of_tensor = {"KEYS": {name: key}} if key != name else {}
    if finding["stage"] == "saved":
        if reference:
            raise NotShown("the saved value of a buffer that the model made itself")
        return Plan("check_saved", expected=function, constants={"SAVED": "differs"},
                    of_tensor=of_tensor)  # fmt: skip
    # State of an optimizer may lie on each rank as a piece of its own.
    is_own = reference is not None and reference[0] == finding["phase"] and (
        reference[1] != finding["stage"] and finding["stage"].endswith(".optimizer"))  # fmt: skip
    return Plan("check_values", expected=function,
                constants={"REFERENCE": reference, "OWN": is_own}, of_tensor=of_tensor)  # fmt: skip


def plan_saved(finding, oracle):
    kind = {"duplicate": "twice", "saved-twice": "twice", "not-saved": "absent"}
    what = kind.get(finding["kind"], finding["kind"])
    tie = tie_of(oracle, finding["tensor"])
    others = [one for one in tie if one != finding["tensor"]]
    shared = {"SHARED": {finding["tensor"]: others[0]}} if what == "twice" and others else {}
    return Plan("check_saved", constants={"SAVED": what}, of_tensor=shared)


def plan_field(finding, oracle):
    field = finding["kind"].removeprefix("unlike-").partition(" ")[0]
    field = {"rebuilt": "object", "attribute": "attributes"}.get(field, field)
    if finding["kind"].startswith("unlike-"):
        return Plan("check_alike", constants={"FIELD": field})
    built = field == "object" or "at `built`" in finding["message"]
    reference = (finding["phase"], "built") if built else None
    return Plan("check_fields", constants={"FIELD": field, "REFERENCE": reference})


def plan_sharing(finding, oracle):
    other = re.search(r"memory with ([^,;]+)", finding["message"])
    if not other:
        raise NotShown("the finding does not say with what it shares memory")
    return Plan("check_sharing", constants={"MUST_SHARE": finding["kind"] == "untied"},
                of_tensor={"SHARED": {finding["tensor"]: other.group(1)}})  # fmt: skip


def plan_key_report(finding, oracle):
    what = "missing" if re.search(r"are missing", finding["message"]) else "unexpected"
    return Plan("check_key_report", constants={"KEY_REPORT": what})


def plan_memory(finding):
    if finding["kind"] == "committed":
        return Plan("check_pages")
    limit = int(re.search(r"\d+", finding["expected"]).group())
    return Plan("check_peak", of_tensor={"LIMITS": dict.fromkeys(finding["ranks"], limit)})


def plan_training(finding):
    """Of findings about training that are not of values; None for those that are."""
    kind, stage = finding["kind"], finding["stage"]
    saved = ("train", stage.replace("restored", "saved", 1))
    if finding["property"] == "training.optimizer_live":
        return Plan("check_live")
    if kind == "option":
        return Plan("check_options", constants={"REFERENCE": saved})
    if kind == "rng":
        return Plan("check_rng", constants={"REFERENCE": saved})
    if kind == "idle":
        before = re.search(r"than at `([\w@.]+)`", finding["message"]).group(1)
        return Plan("check_steps_act", constants={"REFERENCE": (finding["phase"], before)})
    if kind == "lost":
        return Plan("check_defined")
    return None


def plan_for(finding, oracle):
    """The Plan of a finding. Raises NotShown."""
    kind, domain = finding["kind"], finding["property"].partition(".")[0]
    if finding["class"] == "verifier":
        raise NotShown("it is about the evidence, not about the subject")
    if finding["class"] == "input":
        raise NotShown("it is about the files of the checkpoint; the message says all there is")
    if domain == "memory":
        return plan_memory(finding)
    if domain == "conformance":
        raise NotShown("it is about what the subject says of itself")
    if finding["property"] == "fault.every_rank_finishes":
        return Plan("check_nothing", "look_at_ends")
    if finding["property"] == "fault.ends_as_stated" and kind != "not-named":
        return Plan("check_nothing", "look_at_struck")
    if domain == "fault":
        raise NotShown("no script shows what is left after a fault, or what is said of it; Shardproof does it again: "
                       "`shardproof replay case.json`")  # fmt: skip
    if finding["property"] == "sharding.collectives_in_order":
        return Plan("check_nothing", "look_at_collectives")
    if (training := plan_training(finding)) is not None:
        return training
    if finding["property"] == "loading.descriptors_kept" and not kind.startswith("local"):
        return plan_field(finding, oracle)
    plans = {
        "differs": plan_values, "clobbered": plan_values, "dtype": plan_values,
        "shape": plan_values, "meta": "check_meta", "nan": "check_finite", "inf": "check_finite",
        "undefined": "check_defined", "absent": "check_defined", "not-in-model": "check_names",
        "not-declared": "check_names", "rebuilt": plan_field, "untied": plan_sharing,
        "aliased": plan_sharing, "concealed": plan_key_report, "invented": plan_key_report,
        "incomplete": "check_layout", "chunk": "check_layout", "gap": "check_layout",
        "overlap": "check_layout", "partial": "check_layout", "local_shape": "check_layout",
        "local": "check_layout", "extra": plan_saved, "duplicate": plan_saved,
        "saved-twice": plan_saved, "not-saved": plan_saved,
    }  # fmt: skip
    if kind == "absent" and finding["stage"] == "saved":
        return plan_saved(finding, oracle)
    plan = plans.get("unlike" if kind.startswith("unlike-") else kind.partition(" ")[0])
    plan = plan_field if kind.startswith("unlike-") else plan
    if plan is None:
        raise NotShown(f"no script checks findings of kind {kind}")
    made = Plan(plan) if isinstance(plan, str) else plan(finding, oracle)
    if made.expected == "expected_from_checkpoint" or made.check in ("check_finite", "check_saved"):
        check_own_keys(finding, oracle)
    return made


def check_own_keys(finding, oracle):
    """A script reads a tensor by its name. Raises NotShown where the checkpoint has other keys."""
    for one in tie_of(oracle, finding["tensor"]):
        if keys := oracle["source"]["tensors"].get(one, {}).get("keys"):
            raise NotShown(f"checkpoints keep {one} under other keys ({keys[0]}: {len(keys)} in all)")


@dataclasses.dataclass
class Group:
    """Findings of one root: those that a script checks, and those that follow from them."""

    plan: Plan | None
    phase: str
    stage: str
    why_not: str = ""
    findings: list = dataclasses.field(default_factory=list)
    also: list = dataclasses.field(default_factory=list)
    slug: str = ""


ACTS = {"rank/kill": "kill", "rank/stop": "stop", "rank/leave": "leave", "rank/slow": "slow"}


def faults_of(result, evidence):
    """Where and how a script strikes its ranks itself. Raises NotShown of what only Shardproof can do."""
    faults = []
    for fault in result["case"]["faults"]:
        said = re.fullmatch(r"(\d+)@([a-z]+)(?:@(\d+))?", fault["where"])
        if fault["id"] not in ACTS or not said:
            raise NotShown(f"it takes a fault that Shardproof injects: `shardproof verify --subject "
                           f"{result['case']['subject']} --inject {fault['id']}@{fault['where']}`, with the rest "
                           "as in case.json")  # fmt: skip
        struck = [phase for phase in result["compared"]["phases"]
                  for fact in facts_of(evidence, phase, int(said.group(1)))
                  if (fact["record"], fact.get("id"), fact.get("where")) == ("fault", fault["id"], fault["where"])]
        step = int(said.group(3)) if said.group(3) else None
        faults += [(phase, int(said.group(1)), said.group(2), step, ACTS[fault["id"]]) for phase in struck[:1]]
    return faults


def groups_of(result, run):
    """All findings, each in one group."""
    groups, by_root, by_tensor = [], {}, {}
    for finding in sorted(result["findings"], key=lambda one: age(one, result["compared"])):
        try:
            plan, why_not = plan_for(finding, run.oracle), ""
            faults_of(result, run.evidence)  # if it can
            run.phases_for(finding["phase"], plan.constants.get("REFERENCE"))
        except NotShown as reason:
            plan, why_not = None, str(reason)
        tensor = finding["tensor"] or (plan.check + plan.look if plan else why_not)
        stage = "" if plan and plan.at_the_end else finding["stage"]
        root = (plan.root() if plan else why_not, finding["phase"], stage)
        if plan and plan.look != "look_at_values":
            root = tensor = plan.look  # the first rank that failed; the others are consequences
        same = (tensor, finding["kind"] if root != tensor else "")
        earlier = by_tensor.get(same)
        if earlier and (finding["tensor"] or earlier.phase != finding["phase"]):
            earlier.also.append(finding)
            continue
        group = by_root.get(root)
        if group is None or len(group.findings) >= TENSORS_MAX:
            group = by_root[root] = Group(plan, finding["phase"], finding["stage"], why_not)
            groups.append(group)
        group.findings.append(finding)
        if plan and group.plan:
            for name, values in plan.of_tensor.items():
                group.plan.of_tensor.setdefault(name, {}).update(values)
        by_tensor[same] = group
    for number, group in enumerate(groups):
        first = group.findings[0]
        group.slug = re.sub(r"[^\w-]+", "-", f"{number + 1:02d}-{first['property']}-{first['kind']}")
    return groups


# ---- writing a script ----------------------------------------------------------------------------


class Run:
    """What a run was: its orders, what the oracle said, and the code that it ran."""

    def __init__(self, result, evidence):
        self.result, self.evidence = result, evidence
        with open(os.path.join(evidence, "oracle.json"), encoding="utf-8") as file:
            self.oracle = json.load(file)
        self.orders = {}
        for phase in result["compared"]["phases"]:
            path = os.path.join(evidence, phase, "order.json")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    self.orders[phase] = (path, json.load(file))
        if not self.orders:
            raise ValueError(f"{evidence}: no order.json of any phase: no run of a Python subject")
        subject = result["case"]["subject"]
        self.folders = [os.path.dirname(os.path.abspath(subject))]
        self.folders += [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep)
                         if one and not os.path.isdir(os.path.join(one, "shardproof"))]  # fmt: skip
        self.modules, self.imported, self.left = embed.modules_of(subject, self.folders)
        self.subject = os.path.basename(subject)
        self.case_source = embed.Source(os.path.join(PACKAGE, "shardproof", "case.py"))
        self.parts_source = embed.Source(os.path.join(HERE, "reproducer_parts.py"))

    @property
    def is_synthetic(self):
        return bool(self.result["case"]["model"].get("tensors"))

    def case_of(self, phase):
        """The fields of the Case of a rank of that phase."""
        from shardproof.case import read_order

        return dataclasses.asdict(read_order(self.orders[phase][0], 0)[0])

    def phases_for(self, phase, reference):
        """The phase, after the one whose checkpoint it resumes and the one it is compared with."""
        for one in filter(None, (phase, reference and reference[0])):
            if one not in self.orders:
                raise NotShown(f"phase {one} left no order of what it was asked for")
        needed = [phase]
        if reference and reference[0] not in needed:
            needed.insert(0, reference[0])
        order = self.orders[phase][1]
        if order["resumes"]:
            saver = [one for one, (_, other) in self.orders.items()
                     if other["saves"] and other["save_to"] == order["save_to"]]  # fmt: skip
            needed = [one for one in saver if one not in needed] + needed
        return needed


def literal(value, width=96):
    return pprint.pformat(value, width=width, compact=True, sort_dicts=False)


def text_literal(text):
    """A module as a string that can be read."""
    if "'''" in text or not text.endswith("\n"):
        return pprint.pformat(text, width=96)
    return f"r'''{text}'''" if "\\" in text else f"'''\\\n{text}'''"


def checkpoint_constants(oracle):
    """How the checkpoint's keys, dtypes and files differ from what the model would save."""
    source = oracle["source"]["tensors"]
    declared = {one["name"]: one for one in oracle["declared"]}
    dtype = lambda one: str(DTYPES[one["dtype"]])
    extra = [f"{name!r}: ({dtype(one)}, {one['shape']})" for name, one in source.items()
             if name not in declared]  # fmt: skip
    other = [f"{name!r}: {dtype(one)}" for name, one in source.items()
             if name in declared and one["dtype"] != declared[name]["dtype"]]  # fmt: skip
    return {
        "LACKS": literal(sorted(name for name in declared if name not in source)),
        "EXTRA": "{" + ", ".join(extra) + "}",
        "OTHER_DTYPE": "{" + ", ".join(other) + "}",
        "FILES": str(max(1, len({one["file"] for one in source.values()}))),
    }


def checkpoint_bytes(oracle):
    return sum(DTYPES[one["dtype"]].itemsize * math.prod(one["shape"])
               for one in oracle["source"]["tensors"].values())  # fmt: skip


def script_of(group, run, needs_checkpoint):
    """The text of a group's script."""
    plan, first = group.plan, group.findings[0]
    reference = plan.constants.get("REFERENCE")
    phases = run.phases_for(group.phase, reference)
    names = list(dict.fromkeys(one["tensor"] for one in group.findings if one["tensor"]))
    order = run.orders[group.phase][1]
    least = HANG_SECONDS if any(one["kind"] == "hang" for one in group.findings) else 60
    scale = max(1.0, 1000 * least / order["case"]["deadline_ms"])  # a busy machine is not a hang

    ulp = "ULP" in plan.constants
    faults = faults_of(run.result, run.evidence)
    facts = {'self.model.get("tensors")': run.is_synthetic, "FAULTS": bool(faults), "REFERENCE": reference is not None,
             "here == REFERENCE": reference is not None, "STAGE is None": plan.at_the_end,
             "here == (PHASE, STAGE)": not plan.at_the_end, "CONFIG": not run.is_synthetic,
             'PHASE != "memory"': group.phase != "memory", "LIMITS": plan.check == "check_peak",
             "missing is not None or unexpected is not None": plan.check == "check_key_report"}  # fmt: skip
    facts = {ast.unparse(ast.parse(text)): holds for text, holds in facts.items()}
    own_names = {name for name in run.parts_source.definitions if name.isupper()}
    own_names |= {"Case", "check", "expected", "look", "remember", *(["differing"] if ulp else [])}
    remember = REMEMBER.get(plan.check, "remember_fields") if reference else ""
    parts = embed.Copy(own_names, facts)
    parts.heading("what is checked")
    for check, (source, name) in MEASURES.items():
        if plan.check == check:
            parts.add(embed.Source(os.path.join(PACKAGE, "shardproof", source)), name)
    for name in (plan.check, plan.expected, remember, "differing_by_ulp" if ulp else ""):
        if name:
            parts.add(run.parts_source, name)
    parts.heading("the job")
    parts.add(run.parts_source, plan.look)
    parts.add(run.parts_source, "main")
    parts.heading("what run() is given and, below, run() itself")
    used = set().union(*map(embed.attributes_in, run.modules.values()),
                       embed.attributes_in(parts.text()))  # fmt: skip
    case_text, kept = embed.class_text(
        run.case_source, "Case", used | {"rank", "checkpoint", "world_size", "mesh", "phase"}, facts
    )
    parts.add(run.case_source, "Case", case_text)
    asked = {phase: {name: value for name, value in run.case_of(phase).items()
                     if name in kept - {"rank", "checkpoint"}} for phase in phases}  # fmt: skip
    for fields in asked.values():
        if "save_to" in fields:
            fields["save_to"] = os.path.basename(fields["save_to"])
        if not run.is_synthetic:
            fields.pop("model", None)
    config = {}
    config_path = os.path.join(order["source"], "config.json")
    if not run.is_synthetic and os.path.exists(config_path):
        with open(config_path, encoding="utf-8") as file:
            config = json.load(file)

    constants = {
        "PHASE": literal(group.phase),
        "STAGE": literal(None if plan.at_the_end else group.stage),
        "TENSORS": literal(names),
        "NEEDS_CHECKPOINT": literal(needs_checkpoint),
        "TIMEOUT": literal(round(order["timeout_ms"] * scale / 1000, 1)),
        "DEADLINE": literal(round(order["case"]["deadline_ms"] * scale / 1000, 1)),
        "REFERENCE": literal(reference),
        "FAULTS": literal(faults),
        "SUBJECT": literal(run.subject),
        "PRELOAD": literal(preload(run.imported, config, group.phase == "memory")),
        **checkpoint_constants(run.oracle),
        **{name: literal(value) for name, value in plan.constants.items() if name != "REFERENCE"},
        **{name: literal(value) for name, value in plan.of_tensor.items()},
    }  # fmt: skip
    constants = {**CONSTANTS, **constants}
    constants = {name: value for name, value in constants.items()
                 if re.search(rf"\b{name}\b", parts.text())}  # fmt: skip
    return templates().get_template("reproducer.py.j2").render(
        first=first, group=group, plan=plan, run=run, constants=constants,
        imports=parts.import_lines(), definitions=parts.text(), needs_checkpoint=needs_checkpoint,
        ulp=ulp, may_fail=any(act != "slow" for *_, act in faults), debug=plan.look == "look_at_collectives",
        remember=remember, phases=literal(asked), config=literal(config),
        title="\n".join(textwrap.wrap(title_of(first), 96)),
        versions=run.result["versions"], needs=needs_of(run.imported, config),
        modules={name: text_literal(text) for name, text in run.modules.items()},
    )  # fmt: skip


# What a check copies from the package: the file and the function.
MEASURES = {"check_peak": ("_rank.py", "anonymous_bytes"),
            "check_pages": ("_pages.py", "committed_bytes")}  # fmt: skip

# What keeps what a check compares with.
REMEMBER = {"check_values": "remember_values", "check_options": "remember_options",
            "check_rng": "remember_rng", "check_steps_act": "remember_all"}  # fmt: skip

# What a constant is where a finding has nothing to say of it.
CONSTANTS = {"REFERENCE": "None", "OWN": "False", "KEYS": "{}", "FORMULA": "{}", "ULP": "0", "FIELD": "''",
             "SHARED": "{}", "MUST_SHARE": "True", "KEY_REPORT": "''", "SAVED": "''",
             "PHASES": "", "MODULES": "", "CONFIG": ""}  # fmt: skip


def preload(imported, config, measures_memory):
    """What is imported once, before the ranks are forked."""
    ready = ("torch.", "safetensors", "transformers", "accelerate")
    found = [name for name in imported if name.startswith(ready)]
    if measures_memory:  # what torch imports only when it is used is no memory of the model's
        found += ["torch._dynamo", "torch._inductor"]
    return sorted({*found, *(["transformers.models.auto.modeling_auto"] if config else [])})


def needs_of(imported, config):
    found = {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names)
    return sorted(found | {"torch", "safetensors"} | ({"transformers"} if config else set()))


# ---- seeing it fail ------------------------------------------------------------------------------


@dataclasses.dataclass
class Seen:
    """What a run of a script showed."""

    words: list
    code: int | None
    output: str
    fails: list
    missing: list  # findings that its FAIL lines do not name


def ran(script, python, run, words, deadline):
    """Runs a script in an empty directory, as someone would who has no Shardproof."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}  # fmt: skip
    environment["PYTHONPATH"] = os.pathsep.join(run.folders if run.left else [])
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as cache:
        environment["TORCHINDUCTOR_CACHE_DIR"] = cache  # torch._dynamo makes one as it is imported
        process = subprocess.Popen(
            [python, script, *words], cwd=empty, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=deadline)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the script and its ranks
            output, _ = process.communicate()
            return None, output + f"\n(ended after {deadline:.0f} s)"


def is_of(line, finding):
    """Whether a FAIL line is of this finding."""
    rank = re.match(r"FAIL: rank (\d+) of", line)
    if finding["ranks"] and (not rank or int(rank.group(1)) not in finding["ranks"]):
        return False
    if finding["property"] in ("fault.every_rank_finishes", "fault.ends_as_stated"):
        raised = re.search(r"subject: (\w+)", finding["seen"] or finding["message"])
        words = {"silent": "exit code", "ended": "raised|ended", "error": f"raised .*{raised.group(1) if raised else ''}", "hang": "still running",
                 "lost": "ended by", "exit": "exit code", "unclosed": "before run"}  # fmt: skip
        return re.search(words.get(finding["kind"], "."), line) is not None
    if finding["property"] == "sharding.collectives_in_order":
        return True
    return not finding["tensor"] or f", {finding['tensor']} " in line


def see(script, group, python, run, words):
    phase_seconds = max(60, run.orders[group.phase][1]["case"]["deadline_ms"] / 1000)
    code, output = ran(script, python, run, words, STARTUP_SECONDS + 3 * phase_seconds)
    fails = [line for line in output.splitlines() if line.startswith("FAIL: ")]
    missing = [one for one in group.findings if not any(is_of(line, one) for line in fails)]
    return Seen(words, code, output, fails, missing)


def reproduce(group, run, out, python):
    """Writes and runs the script of a group. \\returns (Seen or None, needs the real checkpoint)"""
    if not group.plan:
        return None, False
    path = os.path.join(out, group.slug + ".py")
    source = os.path.abspath(run.orders[group.phase][1]["source"])
    ways = [True] if checkpoint_bytes(run.oracle) > MADE_BYTES_MAX else [False, True]
    for needs_checkpoint in ways:
        with open(path, "w", encoding="utf-8") as file:
            file.write(script_of(group, run, needs_checkpoint))
        seen = see(path, group, python, run, ["--checkpoint", source] if needs_checkpoint else [])
        if seen.code == 1 and len(seen.missing) < len(group.findings):
            return seen, needs_checkpoint
    os.unlink(path)
    return seen, True


# ---- the reports ---------------------------------------------------------------------------------


def python_version(python):
    words = [python, "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def report_of(group, run, seen, needs_checkpoint, python):
    offered = seen is not None and seen.code == 1 and len(seen.missing) < len(group.findings)
    source = run.orders[group.phase][1]["source"] if group.phase in run.orders else ""
    output = seen.output if seen else ""
    output = output.replace(os.path.abspath(source), "DIR") if source else output
    return offered, report_text(
        "reproducer_script.md.j2", group, run.result, output, offered=offered, seen=seen,
        needs_checkpoint=needs_checkpoint, python=python_version(python), left=run.left,
        needs=needs_of(run.imported, {} if run.is_synthetic else 1), subject=run.subject,
        reproducer="the script",
    )  # fmt: skip


def write_all(result, evidence, out, python):
    """Every group's script and report, and the index."""
    run = Run(result, evidence)
    groups = groups_of(result, run)
    os.makedirs(out, exist_ok=True)
    index = {}
    for group in groups[:REPORTS_MAX]:
        seen, needs_checkpoint = reproduce(group, run, out, python)
        offered, text = report_of(group, run, seen, needs_checkpoint, python)
        with open(os.path.join(out, group.slug + ".md"), "w", encoding="utf-8") as file:
            file.write(text)
        for finding in [*group.findings, *group.also]:
            is_seen = offered and not (finding in group.also or finding in seen.missing)
            entry = {"script": f"{group.slug}.py" if offered else None,
                     "report": f"{group.slug}.md", "seen": is_seen}  # fmt: skip
            index.setdefault(finding["fingerprint"], entry)
        print(f"{group.slug}: {'seen to fail' if offered else 'no script'}", flush=True)
    write_index(out, index, len(groups[REPORTS_MAX:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("result")
    parser.add_argument("evidence")
    parser.add_argument("out")
    parser.add_argument("--python", default=sys.executable)
    arguments = parser.parse_args()
    try:
        result = read_result(arguments.result)
        # Scripts run in another directory.
        out, python = os.path.abspath(arguments.out), os.path.abspath(arguments.python)
        write_all(result, arguments.evidence, out,
                  python if os.path.exists(python) else arguments.python)
    except (OSError, ValueError, KeyError, TypeError, SyntaxError, jinja2.TemplateError,
            subprocess.SubprocessError) as error:
        print(f"{arguments.result}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
