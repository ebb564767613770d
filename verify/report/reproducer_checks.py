"""What a program has to look at to show a finding of the reference pipeline: pure functions of the
finding and of the evidence. main_looks.cc.j2 has the C++ of each check.
"""

import dataclasses
import json
import os
import re

import reproducer_faults as faults
import reproducer_training as training
from reproducer_shared import NotShown, age, facts_of, quoted

# Stages that only Save or Restore reaches.
LATE_STAGES = ("saved", "restored")

# What C++ calls a dtype whose elements are shown as numbers.
FLOAT_TYPES = {"F64": "double", "F32": "float", "F16": "at::Half", "BF16": "at::BFloat16"}

NO_PROGRAM = {
    "verifier": "it is about the evidence, not about the pipeline",
    "input": "it is about the files of a checkpoint; the message says all there is",
    "memory": "it is about the memory of a process, and a program's ranks are threads of one, whose memory is "
              "not told apart",
    "other": "it was compared with what another rank has, which after a step may be what is wrong",
    "before": "what was there before the step was wrong already, as another finding says",
}  # fmt: skip

# The same of the optimizer's state, by their size.
STATE_TYPES = {4: "float", 2: "at::BFloat16"}

# How the message of a finding says which stage it was compared with, and of which phase if of another.
COMPARED_WITH = r"differs from (?:its value at )?`([\w@.]+)`(?: of phase (\w+))?"

# How the message of a finding says what a field should have been.
FIELD_EXPECTED = r"(?:the model declares|at `built` it was|its placements give|in memory the model's strides give|on rank \d+ it is) (.*)$"
FIELDS = ("dtype", "shape", "local_shape", "kind", "persistent", "requires_grad", "attributes",
          "order of dims")  # fmt: skip


@dataclasses.dataclass
class Plan:
    """A check, where it looks and what it expects."""

    check: str
    expected: str  # for people
    stage: str = ""
    tensor: str = ""
    ranks: list = dataclasses.field(default_factory=list)
    field: str = ""
    step: int = 0  # of the stage
    state: bool = False  # whether the tensor is of the optimizer's state
    kept_at: tuple = ()  # phase, stage and step at which there was what is expected
    signal: int = 0  # that ends a rank, and with it the process
    float_type: str = ""  # what the bits of an element are shown as, if a number
    safetensors: bool = False  # what is on disk, else DCP
    seconds: int = 0  # that ranks have to come to their end
    wait_ms: int = 0  # that a rank waits for another
    recovers: bool = False  # whether an older save is to be restored, since the newest is damaged
    loses: bool = False  # whether ranks are lost by the fault itself
    hangs: bool = False  # whether ranks may have to be ended
    constants: dict = dataclasses.field(default_factory=dict)  # name -> {"type", "text"}, in C++

    def constant(self, cpp_type, name, text):
        self.constants[name] = {"type": f"const {cpp_type}", "text": text}
        return self

    @property
    def reads_saved(self):
        return self.check.startswith("saved")

    @property
    def at_disk(self):
        return self.check.startswith("disk")

    @property
    def reads_step(self):
        return self.check in ("disk_element", "disk_key", "disk_opens")

    @property
    def needs_saves(self):
        """Whether more than the last save matters."""
        return self.recovers or self.check in ("disk_names", "disk_latest", "disk_manifest", "stale")

    @property
    def whole(self):
        """Whether it is about all that a phase does."""
        return self.check in ("ends", "collective") or self.judges

    @property
    def judges(self):
        """Whether it is about what is left of a job that was struck by a fault."""
        return self.check in [make.__name__ for make in faults.CHECKS.values()]

    @property
    def at_the_end(self):
        return self.check in ("tiles", "finite", "collective", "places")

    @property
    def watches(self):
        return not (self.reads_saved or self.at_disk or self.whole or self.check in ("keys", "reloads"))

    @property
    def finds_slot(self):
        free = ("names", "groups", "rng", "stale", "strangers", "places")
        return self.watches and self.check not in free or self.check == "disk_element"

    @property
    def shows_bits(self):
        return self.check in ("element", "saved_element", "disk_element")

    @property
    def finds_element(self):
        return self.check in ("element", "disk_element")

    @property
    def ulp(self):
        return "kUlp" in self.constants


# ---- values --------------------------------------------------------------------------------------


def keys_of(name, oracle):
    """The keys that hold a tensor in a checkpoint, one after the other."""
    for checkpoint in (*oracle["saved"].values(), oracle["source"]):
        if name in checkpoint["tensors"]:
            return checkpoint["tensors"][name].get("keys") or [name]
    return [name]


def names_of(names):
    return "{" + ", ".join(map(quoted, names)) + "}"


def true_bits(name, index, size, oracle):
    """The bits that the oracle knows of an element, by the checkpoint or as an initial value; None if it does not."""
    if not next((one.get("persistent", True) for one in oracle["declared"] if one["name"] == name), False):
        return None
    tie = next((tie for tie in oracle["ties"] if name in tie), [name])
    for tensors in (oracle["source"]["tensors"], oracle["missing"]):
        for known in (tensors[one] for one in tie if one in tensors):
            for stretch in known.get("bytes", []):
                data, at = bytes.fromhex(stretch["hex"]), index * size - stretch["start"]
                if 0 <= at and at + size <= len(data):
                    return int.from_bytes(data[at : at + size], "little")
    return None


def element(finding, plan, run):
    bits = re.search(r"\((0x[0-9a-f]+)\)$", finding["expected"])
    if not bits or finding.get("index") is None:
        raise NotShown("the finding does not name the element and its bits")
    # What another rank, path or stage has may be what is wrong: the program would fail when all is mended.
    truth = true_bits(finding["tensor"], finding["index"], len(bits.group(1)) // 2 - 1, run.oracle)
    if truth is not None and truth != int(bits.group(1), 16):
        raise NotShown("what it was compared with is itself not what the checkpoint has")
    plan.expected = f"element {finding['index']} of {finding['tensor']} to be {finding['expected']}"
    declared = next((one["dtype"] for one in run.oracle["declared"] if one["name"] == finding["tensor"]), "")
    plan.float_type = FLOAT_TYPES.get(declared, "")
    plan.constant("uint64_t", "kElement", f"{finding['index']}u")
    plan.constant("uint64_t", "kBits", f"{bits.group(1)}u")
    if finding["stage"] == "saved":
        plan.check = "saved_element"
        plan.constant("size_t", "kElementBytes", str(len(bits.group(1)) // 2 - 1))
        plan.constant("std::vector<std::string>", "kKeys", names_of(keys_of(finding["tensor"], run.oracle)))
    elif finding["property"] == "loading.derived_buffers":
        ulp = re.search(r"within (\d+) ulp", finding["message"])
        if not ulp:
            raise NotShown("the finding does not say how near it has to be")
        plan.constant("int64_t", "kUlp", ulp.group(1))
        plan.expected += f", within {ulp.group(1)} ulp"
    return plan


def trained_element(finding, plan, run):
    """An element of a training job that has taken steps: what a step makes of what was there, or what the
    program itself has seen at an earlier stage."""
    bits = re.search(r"\((0x[0-9a-f]+)\)$", finding["expected"])
    if not bits or finding.get("index") is None:
        raise NotShown("the finding does not name the element and its bits")
    name, size = finding["tensor"], len(bits.group(1)) // 2 - 1
    declared = next((one for one in run.oracle["declared"] if one["name"] == name), {})
    plan.float_type = STATE_TYPES.get(size, "") if plan.state else FLOAT_TYPES.get(declared.get("dtype"), "")
    plan.check = "element"
    plan.expected = f"element {finding['index']} of {name} at `{finding['stage']}` to be"
    plan.constant("uint64_t", "kElement", f"{finding['index']}u")
    said = re.search(COMPARED_WITH, finding["message"])
    if said:
        plan.kept_at = (said.group(2) or finding["phase"], *training.moment_of(said.group(1)))
        plan.expected += f" what it was at `{said.group(1)}` of phase {plan.kept_at[0]}"
        if finding["property"] != "checkpoint.training_files":
            return plan
        plan.check = "disk_element"
        plan.expected = plan.expected.replace(f" at `{finding['stage']}`", ", on disk,")
        return on_disk(finding, plan, run).constant("size_t", "kElementBytes", str(size))
    if finding["property"] == "training.steps_by_formula":
        expect_sound_start(finding, run)
    else:
        is_trained = plan.state or declared.get("kind") != "buffer" and declared.get("requires_grad", True)
        truth = None if is_trained else true_bits(name, finding["index"], size, run.oracle)
        if truth != int(bits.group(1), 16):
            raise NotShown(NO_PROGRAM["other"])
    plan.expected += f" {finding['expected']}"
    return plan.constant("uint64_t", "kBits", f"{bits.group(1)}u")


def expect_sound_start(finding, run):
    """What a step makes is known if what was there before it was right. Raises NotShown."""
    moment, compared = training.moment_of(finding["stage"]), run.result["compared"]
    for one in run.result["findings"]:
        is_before = one["phase"] == finding["phase"] and age(one, compared) < age(finding, compared)
        if is_before and training.moment_of(one["stage"]) != moment:
            raise NotShown(NO_PROGRAM["before"])


def field(finding, plan, run):
    name = finding["kind"].removeprefix("unlike-")
    expected = finding["expected"]
    if not expected:
        said = re.search(FIELD_EXPECTED, finding["message"])
        expected = said.group(1) if said else ""
    if not expected or not (name in FIELDS or name.startswith("attribute ")) or " more" in expected:
        raise NotShown(f"no program checks {name}")
    declared = next((one for one in run.oracle["declared"] if one["name"] == finding["tensor"]), {})
    if finding["kind"].startswith("unlike-") and field_text(declared, name) not in ("", expected):
        raise NotShown("what it was compared with is itself not what the model declares")
    plan.field, plan.expected = name, f"{name} of {finding['tensor']} to be {expected}"
    if name == "local_shape":
        by_placements(finding, plan, run)
    plan.constant("std::string", "kExpected", quoted(expected))
    if finding["stage"] == "saved":
        plan.check = "saved_field"
        plan.constant("std::vector<std::string>", "kKeys", names_of(keys_of(finding["tensor"], run.oracle)))
    return plan


def field_text(declared, name):
    """A field of a declared tensor as a finding has it, or nothing if it is not said."""
    value = declared.get(name, "")
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def by_placements(finding, plan, run):
    """What is expected follows from the placements that the rank had, which may be what is wrong."""
    placements = run.descriptor(finding).get("placements", [])
    text = "".join(f"{one['kind']}({one.get('dim', 0)})/{one.get('split_factor', 1)} " for one in placements)
    plan.constant("std::string", "kPlacements", quoted(text))


def finite(finding, plan, run):
    allowed = re.fullmatch(r"(\d+) NaN, (\d+) Inf", finding["expected"])
    if not allowed:
        raise NotShown("the finding does not say how many may be")
    plan.ranks = run.shard_group(finding)
    plan.expected = f"at most {finding['expected']} in {finding['tensor']}"
    return plan.constant("int64_t", "kNan", allowed.group(1)).constant("int64_t", "kInf", allowed.group(2))


# ---- shards and collectives ----------------------------------------------------------------------


def owned(finding, plan, run):
    if " more" in finding["expected"]:
        raise NotShown("it is cut into more stretches than the finding names")
    by_placements(finding, plan, run)
    plan.expected = f"rank {finding['ranks'][0]} to own {finding['expected']} of {finding['tensor']}, as its " \
                    f"placements say: {json.loads(plan.constants['kPlacements']['text'])}".rstrip()  # fmt: skip
    return plan.constant("std::string", "kExpected", quoted(finding["expected"]))


def tiles(finding, plan, run):
    plan.ranks = run.shard_group(finding)
    elements = 1
    for size in run.descriptor(finding)["shape"]:
        elements *= size
    plan.expected = f"each of the {elements} elements of {finding['tensor']} to be owned by one of ranks " \
                    f"{', '.join(map(str, plan.ranks))}"  # fmt: skip
    return plan.constant("size_t", "kElements", str(elements))


def collective(finding, plan, run):
    number = re.search(r"collective (\d+) is", finding["message"])
    others = [rank for rank in range(finding["world_size"]) if rank not in finding["ranks"]]
    if not number or not others:
        raise NotShown("the finding does not say which collective differs")
    plan.tensor, plan.stage = "", ""
    plan.expected = f"collective {number.group(1)} to be {finding['expected']} on every rank"
    return plan.constant("size_t", "kNumber", number.group(1)).constant("int64_t", "kOther", str(others[0]))


def ends(finding, plan, run):
    signal = re.search(r"ended by signal (\d+)", finding["message"])
    plan.loses = faults.loses(finding, run.case)  # as it was asked
    if finding["kind"] not in ("error", "hang") and not plan.loses and not (finding["kind"] == "lost" and signal):
        raise NotShown("it is about how a process ended")
    plan.expected, plan.tensor, plan.stage = "every rank to come to its end without an error", "", ""
    plan.hangs = finding["kind"] == "hang" and not plan.loses
    if finding["kind"] == "lost" and not plan.loses:
        plan.signal, plan.ranks = int(signal.group(1)), []
    return plan


# ---- what is saved, resumed or held by the optimizer ---------------------------------------------


def saved_before(finding, run):
    """The moment of the save that a resume has begun with. Raises NotShown."""
    _, step = training.moment_of(finding["stage"])
    if step not in training.saved_steps(run.case):
        raise NotShown("no save is of the step that was restored")
    return "train", "saved", step


def option(finding, plan, run):
    said = re.search(r": its (\S+) is .*, it was .* when it was saved$", finding["message"])
    if not said:
        raise NotShown("the finding does not say which option it is")
    plan.kept_at = saved_before(finding, run)
    plan.expected = f"{said.group(1)} of {finding['tensor']} to be what it was when it was saved"
    return plan.constant("std::string", "kOption", quoted(said.group(1)))


def rng(finding, plan, run):
    plan.kept_at = saved_before(finding, run)
    plan.expected = "the random number generator to be in the state that it was in when it was saved"
    return plan


def stale(finding, plan, run):
    last = training.saved_steps(run.case)[-1]
    plan.tensor, plan.step, plan.expected = "", 0, f"the last save to be restored, of step {last}"
    return plan.constant("int64_t", "kLast", str(last))


def held(finding, plan, run):
    is_frozen = finding["kind"] == "frozen"
    plan.expected = f"the optimizer {'not ' if is_frozen else ''}to hold {finding['tensor']}" \
                    f"{'' if is_frozen else ' once'}"  # fmt: skip
    return plan.constant("int", "kHeld", "0" if is_frozen else "1")


def strangers(finding, plan, run):
    plan.tensor, plan.expected = "", "the optimizer to hold nothing that is none of the model's"
    return plan


def places(finding, plan, run):
    asked = re.fullmatch(r"from (\S+) to (\S+) elements", finding["expected"])
    if not asked:
        raise NotShown("the finding does not say how much was asked for")
    plan.tensor, plan.expected = "", f"the host to have the state of {finding['expected'].removeprefix('from ')}"
    return plan.constant("double", "kLeast", asked.group(1)).constant("double", "kMost", asked.group(2))


def state_names(finding, plan, run):
    is_wanted = finding["kind"] != "extra"
    plan.check = "names"
    plan.expected = f"{plan.tensor} {'' if is_wanted else 'not '}to be there at `{finding['stage']}`"
    return plan.constant("bool", "kToBeThere", str(is_wanted).lower())


def on_disk(finding, plan, run):
    """Which save has the finding's tensor, and under which name its reader gives it."""
    step = training.moment_of(finding["stage"])[1] or training.saved_steps(run.case)[-1]
    key, prefix = finding["tensor"], "optimizer.state."
    kept = run.case["training"]
    plan.safetensors = kept["format"] == "safetensors"
    in_parts = {one["name"] for one in run.oracle["declared"] if one.get("stored")}
    if (plan.safetensors or kept["split_fused"]) and (key in in_parts or key.rpartition(".")[0] in in_parts):
        raise NotShown("the checkpoint keeps the tensor in parts, or under another name")
    if plan.state:
        key = prefix + key.removeprefix(prefix)
    plan.constant("std::string", "kStep", quoted(training.step_name(step)))
    return plan.constant("std::string", "kKey", quoted(key.removeprefix("model."))) if key else plan


def disk_key(finding, plan, run):
    is_wanted = finding["kind"] == "absent"
    plan.state = plan.state or not is_wanted and not finding["tensor"].startswith("model.")
    plan.expected = f"{finding['tensor']} {'' if is_wanted else 'not '}to be in the checkpoint"
    plan.tensor = ""
    return on_disk(finding, plan, run).constant("bool", "kToBeThere", str(is_wanted).lower())


def disk_opens(finding, plan, run):
    plan.expected = "the checkpoint to be readable"
    return on_disk(finding, plan, run)


def disk_latest(finding, plan, run):
    last = training.kept_steps(run.case)[-1]
    plan.expected = f"the file `latest` to name {last}"
    return plan.constant("std::string", "kLast", quoted(last))


def disk_names(finding, plan, run):
    kept = training.kept_steps(run.case)
    plan.expected = f"{', '.join(kept)} and `latest` alone"
    return plan.constant("std::set<std::string>", "kNames", names_of(["latest", *kept]))


def disk_manifest(finding, plan, run):
    step = re.search(r"(step-\d+) has no manifest", finding["message"])
    plan.expected = f"{step.group(1)} to have a manifest"
    return plan.constant("std::string", "kStep", quoted(step.group(1)))


def reloads(finding, plan, run):
    plan.expected = "what was saved to be loaded, with the digests that its manifest says"
    return plan


# ---- names, keys and objects ---------------------------------------------------------------------


def sharing(finding, plan, run):
    other = re.search(r"memory with ([^,;]+)", finding["message"])
    if not other:
        raise NotShown("the finding does not say with what it shares memory")
    tied = finding["kind"] == "untied"
    plan.expected = f"{finding['tensor']} and {other.group(1)} {'' if tied else 'not '}to share memory"
    plan.constant("std::string", "kOther", quoted(other.group(1)))
    return plan.constant("bool", "kShared", str(tied).lower())


def keys(finding, plan, run):
    plan.field = "missing" if re.search(r"keys are missing", finding["message"]) else "unexpected"
    said = finding["kind"] == "concealed"
    plan.expected = f"{finding['tensor']} {'' if said else 'not '}to be reported as {plan.field}"
    plan.stage = ""
    return plan.constant("bool", "kToBeSaid", str(said).lower())


def names(finding, plan, run):
    plan.tensor = finding["message"].rpartition(": ")[2].partition(", ")[0]
    there = finding["kind"] == "not-in-model"
    plan.expected = f"{plan.tensor} {'' if there else 'not '}to be in the model"
    return plan.constant("bool", "kToBeThere", str(there).lower())


def saved_keys(finding, plan, run):
    name, kind = finding["tensor"], finding["kind"]
    tie = next((tie for tie in run.oracle["ties"] if name in tie), [name])
    found = tie if len(tie) > 1 else keys_of(name, run.oracle)[:1]
    wanted = 0 if kind == "extra" else 1
    plan.expected = f"{wanted} of these keys in the saved checkpoint: {', '.join(found)}"
    plan.tensor = ""
    plan.constant("std::vector<std::string>", "kKeys", names_of(found))
    return plan.constant("size_t", "kWanted", str(wanted))


def says(check, expected):
    """A check that needs to know no more than where to look."""

    def made(finding, plan, run):
        plan.check, plan.expected = check, expected.format(**finding)
        return plan

    return made


CHECKS = {
    "differs": element, "clobbered": element, "dtype": field, "shape": field, "nan": finite, "inf": finite,
    "meta": says("meta", "{tensor} not to be on the meta device"),
    "undefined": says("defined", "{tensor} to have a value"),
    "rebuilt": says("rebuilt", "{tensor} to be the object that it was at `built`"),
    "chunk": owned, "gap": tiles, "overlap": tiles, "incomplete": tiles, "untied": sharing,
    "aliased": sharing, "concealed": keys, "invented": keys, "not-in-model": names, "not-declared": names,
    "extra": saved_keys, "duplicate": saved_keys, "saved-twice": saved_keys, "not-saved": saved_keys,
    "not-held": held, "held-twice": held, "frozen": held, "stranger": strangers, "option": option, "rng": rng,
    "stale": stale, "too-little": places, "too-much": places,
    "groups": says("groups", "the optimizer to have the groups that it had at `bound`"),
    "options": says("groups", "the optimizer to have the options that it had at `bound`"),
    "members": says("groups", "the optimizer to hold what it held at `bound`, in that order"),
}  # fmt: skip


# Findings of a training job that are of the same kind as others and about something else.
FILE_CHECKS = {"absent": disk_key, "extra": disk_key, "unreadable": disk_opens}
ROOT_CHECKS = {"latest": disk_latest, "leftover": disk_names, "absent": disk_names, "unsealed": disk_manifest,
               "damaged": reloads}  # fmt: skip
STATE_CHECKS = {"lost": state_names, "extra": state_names, "absent": state_names}


def trained(finding):
    """The check of a finding of a training job, or nothing if it is one of CHECKS."""
    kind, property_id = finding["kind"], finding["property"]
    has_truth = property_id == "loading.derived_buffers"  # at every stage, by their formula
    if kind == "differs" and not has_truth and training.moment_of(finding["stage"])[0] not in training.BEFORE_STEPS:
        return trained_element
    checks = {"checkpoint.commit_whole": ROOT_CHECKS, "checkpoint.training_files": FILE_CHECKS}
    return checks.get(property_id, STATE_CHECKS).get(kind)


def plan_for(finding, run):
    """The Plan of a finding. Raises NotShown."""
    domain, kind = finding["property"].partition(".")[0], finding["kind"]
    if domain == "memory" or finding["class"] in ("verifier", "input"):
        raise NotShown(NO_PROGRAM["memory" if domain == "memory" else finding["class"]])
    faults.strikes_of(run)  # if it can be told
    trains = finding["phase"] in training.PHASES
    make = trained(finding) if trains else None
    make = make or CHECKS.get(kind)
    if finding["property"] in faults.CHECKS:
        make = faults.CHECKS[finding["property"]]
    elif finding["property"] == "fault.every_rank_finishes":
        make = ends
    elif finding["property"] == "sharding.collectives_in_order":
        make = collective
    elif finding["property"] == "loading.descriptors_kept" and kind != "rebuilt" or kind.startswith("unlike-"):
        make = field
    elif kind == "absent" and finding["stage"] == "saved" and not trains:
        make = saved_keys
    if make is None:
        raise NotShown(f"no program checks findings of kind {kind}")
    stage, step = training.moment_of(finding["stage"])
    plan = Plan(make.__name__, "", stage, finding["tensor"], finding["ranks"], step=step)
    plan.state = finding["stage"].endswith(".optimizer") and \
                 all(finding["tensor"] != one["name"] for one in run.oracle["declared"])  # fmt: skip
    plan.wait_ms, plan.seconds = faults.wait_ms(run.case), faults.seconds_of(run.case)
    plan.recovers = trains and any(fault["id"] == "file/rot" for fault in run.case["faults"])
    plan = make(finding, plan, run)
    if plan.judges:
        plan.ranks, plan.stage, plan.step, plan.tensor = [], "", 0, ""
    if plan.watches and not plan.ranks:
        plan.ranks = list(range(finding["world_size"]))
    if plan.reads_saved or plan.at_disk or plan.check == "reloads":
        plan.ranks, plan.stage, plan.step = [], "", 0
    return plan


# ---- evidence ------------------------------------------------------------------------------------


def coordinates_of(evidence, phase, rank):
    """Where on the mesh a rank is. Raises NotShown."""
    first = next(facts_of(evidence, phase, rank), {})
    if "coordinates" not in first:
        raise NotShown(f"rank {rank} left no evidence")
    return first["coordinates"]


def descriptor_at(evidence, phase, rank, stage, tensor):
    """What a rank said that a tensor is at a stage. Raises NotShown."""
    described, current, reached = {}, None, ""
    for fact in facts_of(evidence, phase, rank):
        if fact["record"] == "tensor":
            described[fact["id"]] = fact
        elif fact["record"] == "state" and fact["name"] == tensor:
            current = described.get(fact["tensor"])
        elif fact["record"] == "stage":
            reached = fact["name"] + (f"@{fact['step']}" if fact["step"] else "")
            reached += f".{fact['of']}" if "of" in fact else ""
        elif fact["record"] == "stage_end" and reached == stage and current:
            return current
    raise NotShown(f"rank {rank} left nothing about {tensor} at `{stage}`")
