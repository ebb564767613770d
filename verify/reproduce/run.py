"""What a run of a Python subject was: its orders, what the oracle said, and the code that ran."""

import dataclasses
import json
import math
import os
import re
import sys

from findings import NotShown
from modules import modules_of

HERE = os.path.dirname(os.path.abspath(__file__))
# The folder that holds the package: beside this one in the repository, around it where installed.
PACKAGE = os.path.join(os.path.dirname(HERE), "python")
if not os.path.isdir(PACKAGE):
    PACKAGE = os.path.dirname(os.path.dirname(HERE))
sys.path.append(PACKAGE)

from shardproof._case_defaults import TENSOR  # noqa: E402
from shardproof._dtypes import DTYPES  # noqa: E402
from shardproof.case import read_order  # noqa: E402

DEFAULTED = ("steps", "options")  # fields of a Case that may be left out where they are empty
ACTS = {"rank/kill": "kill", "rank/stop": "stop", "rank/leave": "leave", "rank/slow": "slow"}


class Run:
    """Of a result and its evidence. Raises ValueError if it was no run of a Python subject."""

    def __init__(self, result, evidence):
        self.result, self.evidence, self.case = result, evidence, result["case"]
        with open(os.path.join(evidence, "oracle.json"), encoding="utf-8") as file:
            self.oracle = json.load(file)
        self.orders = {}
        for phase in result["compared"]["phases"]:
            path = os.path.join(evidence, phase, "order.json")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    self.orders[phase] = json.load(file)
        if not self.orders:
            raise ValueError(f"{evidence}: no order.json of any phase: no run of a Python subject")
        subject = self.case["subject"]
        self.subject = os.path.basename(subject)
        self.folders = [os.path.dirname(os.path.abspath(subject))]
        self.folders += [
            one
            for one in os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if one and not os.path.isdir(os.path.join(one, "shardproof"))
        ]
        self.modules, self.imported, self.left = modules_of(subject, self.folders)

    @property
    def is_synthetic(self):
        return bool(self.case["model"].get("tensors"))

    @property
    def source(self):
        """The directory of the checkpoint."""
        return os.path.abspath(next(iter(self.orders.values()))["source"])

    @property
    def config_path(self):
        """Of a Hugging Face model, or None."""
        path = os.path.join(self.source, "config.json")
        return path if not self.is_synthetic and os.path.exists(path) else None

    @property
    def files(self):
        """What lies beside a script and is no code."""
        return ["model.json"] if self.is_synthetic else ["config.json"] if self.config_path else []

    @property
    def deadline_s(self):
        return self.case["deadline_ms"] / 1000

    def fields_of(self, phase):
        """The Case of a phase, without what each rank is told and what is at its default."""
        case = read_order(os.path.join(self.evidence, phase, "order.json"), 0)[0]
        fields = dataclasses.asdict(case)
        for name in ("rank", "checkpoint", "phase", "model"):
            del fields[name]
        fields["save_to"] = os.path.basename(fields["save_to"])
        return {name: value for name, value in fields.items() if value or name not in DEFAULTED}

    def phases_for(self, phase, reference):
        """The phase, after the one whose checkpoint it resumes and the one it is compared with."""
        needed = [phase]
        if reference and reference[0] != phase:
            needed.insert(0, reference[0])
        for one in needed:
            if one not in self.orders:
                raise NotShown(f"phase {one} left no order of what it was asked for")
        order = self.orders[phase]
        if order["resumes"]:
            savers = [
                name
                for name, other in self.orders.items()
                if other["saves"] and other["save_to"] == order["save_to"]
            ]
            needed = [one for one in savers if one not in needed] + needed
        return needed

    def checkpoint_bytes(self):
        return sum(
            DTYPES[one["dtype"]].itemsize * math.prod(one["shape"])
            for one in self.oracle["source"]["tensors"].values()
        )

    def checkpoint_differences(self):
        """How the checkpoint's keys, dtypes and files differ from what the model would save: the
        arguments of RandomCheckpoint."""
        source = self.oracle["source"]["tensors"]
        declared = {one["name"]: one for one in self.oracle["declared"]}
        differences = {
            "lacks": sorted(
                name
                for name, one in declared.items()
                if name not in source and (TENSOR | one)["persistent"]
            ),
            "extra": {
                name: (DTYPES[one["dtype"]], one["shape"])
                for name, one in source.items()
                if name not in declared
            },
            "other_dtype": {
                name: DTYPES[one["dtype"]]
                for name, one in source.items()
                if name in declared and one["dtype"] != declared[name]["dtype"]
            },
        }
        files = max(1, len({one["file"] for one in source.values()}))
        found = {name: value for name, value in differences.items() if value}
        return found | ({"files": files} if files > 1 else {})

    def strikes(self):
        """The faults that ranks do to themselves: what Job calls `faults`.

        Raises NotShown if there is one that only Shardproof can inject.
        """
        faults = []
        for fault in self.case["faults"]:
            said = re.fullmatch(r"(\d+)@([a-z]+)(?:@(\d+))?", fault["where"])
            if fault["id"] not in ACTS or not said:
                injected = (
                    f"--subject {self.case['subject']} --inject {fault['id']}@{fault['where']}"
                )
                raise NotShown(
                    f"it takes a fault that Shardproof injects: `shardproof verify {injected}`, "
                    "with the rest as in case.json"
                )
            rank, stage, step = int(said.group(1)), said.group(2), said.group(3)
            act = ACTS[fault["id"]], int(step) if step else None
            phase = next((one for one in self.orders if self.was_struck(one, rank, fault)), None)
            faults += [(phase, rank, stage, act[1], act[0])] if phase else []
        return faults

    def was_struck(self, phase, rank, fault):
        """Whether the fault is on record of a rank."""
        wanted = ("fault", fault["id"], fault["where"])
        path = os.path.join(self.evidence, phase, f"rank_{rank}.facts.jsonl")
        if not os.path.exists(path):
            return False
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    fact = json.loads(line)
                except ValueError:  # a torn last line
                    return False
                if (fact["record"], fact.get("id"), fact.get("where")) == wanted:
                    return True
        return False
