"""Runs a job on several ranks of this machine and checks one thing about it, as the script beside
this folder says. Needs torch, and what the job itself needs.

    JOB = Job(subject="subject/one.py", phases={"values": {...}}, at=("values", "ready"), ...)
    CHECK = SameAsCheckpoint(tensors=["weight"])
    sys.exit(main(JOB, CHECK, __doc__))
"""

from .check import Check
from .ends import EndsWell, SameCollectives, SurvivorsEnd
from .fields import FieldAlike, FieldKept, KeyReport, Layout, MemoryShared, Names
from .job import Job, main
from .memory import NoPages, PeakMemory
from .random_checkpoint import RandomCheckpoint
from .saved import NotSaved, SavedAll, SavedOnce, SavedUnchanged
from .training import OptimizerLive, OptionsKept, RngKept, StepsAct
from .values import Defined, Finite, NotMeta, SameAsCheckpoint, SameAsReference, WithinFormula

__all__ = [
    "Check",
    "Defined",
    "EndsWell",
    "FieldAlike",
    "FieldKept",
    "Finite",
    "Job",
    "KeyReport",
    "Layout",
    "MemoryShared",
    "Names",
    "NoPages",
    "NotMeta",
    "NotSaved",
    "OptimizerLive",
    "OptionsKept",
    "PeakMemory",
    "RandomCheckpoint",
    "RngKept",
    "SameAsCheckpoint",
    "SameAsReference",
    "SameCollectives",
    "SavedAll",
    "SavedOnce",
    "SavedUnchanged",
    "StepsAct",
    "SurvivorsEnd",
    "WithinFormula",
    "main",
]
