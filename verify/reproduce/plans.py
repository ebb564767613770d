"""Which check of harness/ shows a finding of a Python subject, and with what arguments."""

import dataclasses
import json

from findings import (
    CHECKPOINT,
    NotShown,
    against,
    key_report,
    limit_bytes,
    shares_with,
    stage_before,
    was_built_so,
)

ENDS = ("EndsWell", "SurvivorsEnd", "SameCollectives")  # checks of how ranks end, and nothing else
TRAIN = "train"  # as `shardproof list phases` has it
SAVED = ("SavedAll", "NotSaved", "SavedOnce", "SavedUnchanged")


@dataclasses.dataclass
class Plan:
    """A class of harness/ and what it is made with.

    arguments: alike for all tensors of a script
    of_tensor: {argument: {tensor or rank: value}}, joined over the findings of a script
    """

    check: str
    arguments: dict = dataclasses.field(default_factory=dict)
    of_tensor: dict = dataclasses.field(default_factory=dict)

    @property
    def reference(self):
        return self.arguments.get("reference")

    @property
    def is_of_ends(self):
        return self.check in ENDS

    @property
    def at_the_end(self):
        """Whether it is about run() as a whole, and not about one stage."""
        return self.is_of_ends or self.check in SAVED or self.check == "PeakMemory"

    def root(self):
        return json.dumps([self.check, self.arguments], sort_keys=True)

    def join(self, other):
        for name, values in other.of_tensor.items():
            self.of_tensor.setdefault(name, {}).update(values)


def tie_of(oracle, name):
    return next((tie for tie in oracle["ties"] if name in tie), [name])


def keys_of(name, oracle):
    """The `keys` of a tensor that the checkpoint has under another of its names."""
    tensors = oracle["source"]["tensors"]
    key = next((one for one in tie_of(oracle, name) if one in tensors), name)
    return {"keys": {name: key}} if key != name else {}


def check_own_keys(finding, oracle):
    """A script reads a tensor by its name. Raises NotShown where the checkpoint has other keys."""
    for one in tie_of(oracle, finding["tensor"]):
        if keys := oracle["source"]["tensors"].get(one, {}).get("keys"):
            said = f"{keys[0]}: {len(keys)} in all"
            raise NotShown(f"checkpoints keep {one} under other keys ({said})")


def plan_values(finding, oracle):
    name, stage = finding["tensor"], finding["stage"]
    if finding["property"] == "loading.derived_buffers":
        return plan_formula(finding, oracle)
    reference = against(finding)
    if reference == CHECKPOINT:
        check_own_keys(finding, oracle)
        check = "SavedUnchanged" if stage == "saved" else "SameAsCheckpoint"
        return Plan(check, of_tensor=keys_of(name, oracle))
    if stage == "saved":
        raise NotShown("it is the saved value of a buffer that the model made itself")
    # State of an optimizer may lie on each rank as a piece of its own.
    is_earlier = reference[0] == finding["phase"] and reference[1] != stage
    own = {"own_rank": True} if is_earlier and stage.endswith(".optimizer") else {}
    return Plan("SameAsReference", {"reference": reference, **own})


def plan_formula(finding, oracle):
    name = finding["tensor"]
    formula = oracle["derived"].get(name, oracle["derived"].get(name.replace("original_", "")))
    if formula is None:
        raise NotShown("its formula is not in the evidence")
    values = [float("nan") if isinstance(one, str) else one for one in formula["values"]]
    return Plan("WithinFormula", {"ulp": formula["ulp_max"]}, {"formula": {name: values}})


def plan_saved(finding, oracle):
    check_own_keys(finding, oracle)
    kind = finding["kind"]
    if kind == "extra":
        return Plan("NotSaved")
    if kind in ("absent", "not-saved"):
        return Plan("SavedAll")
    tie = tie_of(oracle, finding["tensor"])
    other = next((one for one in tie if one != finding["tensor"]), None)
    if other is None:
        raise NotShown("the tensor that it is saved twice with is not tied to it")
    return Plan("SavedOnce", of_tensor={"shared": {finding["tensor"]: other}})


def plan_field(finding, oracle):
    field = finding["kind"].removeprefix("unlike-").partition(" ")[0]
    field = {"rebuilt": "object", "attribute": "attributes"}.get(field, field)
    if finding["kind"].startswith("unlike-"):
        return Plan("FieldAlike", {"field": field})
    built = field == "object" or was_built_so(finding)
    reference = {"reference": (finding["phase"], "built")} if built else {}
    return Plan("FieldKept", {"field": field, **reference})


def plan_sharing(finding, oracle):
    shared = {finding["tensor"]: shares_with(finding)}
    must = {} if finding["kind"] == "untied" else {"must": False}
    return Plan("MemoryShared", must, {"shared": shared})


def plan_key_report(finding, oracle):
    return Plan("KeyReport", {"which": key_report(finding)})


def plan_finite(finding, oracle):
    check_own_keys(finding, oracle)
    return Plan("Finite")


def plan_memory(finding, oracle):
    if finding["kind"] == "committed":
        return Plan("NoPages")
    return Plan(
        "PeakMemory", of_tensor={"limits": dict.fromkeys(finding["ranks"], limit_bytes(finding))}
    )


def plan_training(finding, oracle):
    kind, stage = finding["kind"], finding["stage"]
    saved = {"reference": (TRAIN, stage.replace("restored", "saved", 1))}
    if finding["property"] == "training.optimizer_live":
        return Plan("OptimizerLive")
    if kind == "option":
        return Plan("OptionsKept", saved)
    if kind == "rng":
        return Plan("RngKept", saved)
    if kind in ("idle", "returned"):
        return Plan("StepsAct", {"reference": (finding["phase"], stage_before(finding))})
    return Plan("Defined")


# By kind of finding: a plan, or the check where that is all there is to say.
PLANS = {
    "absent": "Defined",
    "aliased": plan_sharing,
    "chunk": "Layout",
    "clobbered": plan_values,
    "concealed": plan_key_report,
    "differs": plan_values,
    "dtype": plan_values,
    "duplicate": plan_saved,
    "extra": plan_saved,
    "gap": "Layout",
    "idle": plan_training,
    "incomplete": "Layout",
    "inf": plan_finite,
    "invented": plan_key_report,
    "local": "Layout",
    "local_shape": "Layout",
    "lost": plan_training,
    "meta": "NotMeta",
    "nan": plan_finite,
    "not-declared": "Names",
    "not-in-model": "Names",
    "not-saved": plan_saved,
    "option": plan_training,
    "overlap": "Layout",
    "partial": "Layout",
    "rebuilt": plan_field,
    "returned": plan_training,
    "rng": plan_training,
    "saved-twice": plan_saved,
    "shape": plan_values,
    "undefined": "Defined",
    "untied": plan_sharing,
}


def planner_of(finding):
    """The planner, or the name of a check, or None."""
    kind, domain = finding["kind"], finding["property"].partition(".")[0]
    if domain == "memory":
        return plan_memory
    if finding["property"] == "training.optimizer_live":
        return plan_training
    if kind.startswith("unlike-"):
        return plan_field
    if finding["property"] == "loading.descriptors_kept" and not kind.startswith("local"):
        return plan_field
    if kind == "absent" and finding["stage"] == "saved":
        return plan_saved
    return PLANS.get(kind.partition(" ")[0])


def plan_of_fault(finding):
    if finding["property"] == "fault.every_rank_finishes":
        return Plan("EndsWell")
    if finding["property"] == "fault.ends_as_stated" and finding["kind"] != "not-named":
        return Plan("SurvivorsEnd")
    raise NotShown(
        "no script shows what is left after a fault, or what is said of it; Shardproof does it "
        "again: `shardproof replay case.json`"
    )


def plan_for(finding, oracle):
    """The Plan of a finding. Raises NotShown."""
    domain = finding["property"].partition(".")[0]
    if finding["class"] == "verifier":
        raise NotShown("it is about the evidence, not about the subject")
    if finding["class"] == "input":
        raise NotShown("it is about the files of the checkpoint; the message says all there is")
    if domain == "conformance":
        raise NotShown("it is about what the subject says of itself")
    if domain == "fault":
        return plan_of_fault(finding)
    if finding["property"] == "sharding.collectives_in_order":
        return Plan("SameCollectives")
    planner = planner_of(finding)
    if planner is None:
        raise NotShown(f"no script checks findings of kind {finding['kind']}")
    return Plan(planner) if isinstance(planner, str) else planner(finding, oracle)
