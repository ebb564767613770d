"""How a rank ended, and the checks that are about that alone."""

import dataclasses
import signal

import torch.distributed as dist

from .check import Check


class End:
    """The end of one rank of a phase.

    kind: "raised", "hang", "signal", "exit" or, if all went well, ""
    code: of the process; None if it had to be killed
    raised: the type of the exception, of that kind
    said: what the rank has written while it ran
    """

    def __init__(self, phase, rank, code, said):
        self.phase, self.rank = phase, rank
        self.fails = [record for record in said if "fail" in record]
        self.checked = any("checked" in record for record in said)
        self.struck = [record["struck"] for record in said if "struck" in record]
        stages = [record["stage"] for record in said if "stage" in record]
        after = f"after `{stages[-1]}`" if stages else "before its first stage"
        raised = [record for record in said if "raised" in record]
        self.kind, self.what, self.raised = "", "", ""
        if raised:
            self.kind, self.what = "raised", f"raised {after}: {raised[0]['raised']}"
            self.raised = raised[0]["type"]
        elif code is None:
            self.kind, self.what = "hang", f"was still running {after} when its time was over"
        elif code < 0:
            self.kind, self.what = "signal", f"was ended by {signal.Signals(-code).name} {after}"
        elif code > 0 or not any("ended" in record for record in said):
            self.kind = "exit"
            self.what = f"ended with exit code {code} {after}, before run() was over"


class EndsWell(Check):
    """Every rank comes to the end of run()."""

    at_the_end = True

    def judge(self, job, end):
        if end.kind and end.phase == job.at[0]:
            return [("", end.kind, end.what)], ""
        return [], end.what


@dataclasses.dataclass
class SurvivorsEnd(Check):
    """Every rank that nothing ends comes to its end in time and, if it may not fail, well."""

    may_fail: bool = True
    at_the_end = True

    def judge(self, job, end):
        if end.struck and end.struck != ["slow"]:
            return [], ""
        if end.phase != job.at[0] or (self.may_fail and end.kind == "raised"):
            return [], ""
        return ([("", end.kind, end.what)] if end.kind else []), ""


class SameCollectives(Check):
    """Every rank takes part in the same collectives: torch compares them by itself."""

    at_the_end = True

    def prepare(self):
        dist.set_debug_level(dist.DebugLevel.DETAIL)  # as TORCH_DISTRIBUTED_DEBUG=DETAIL does

    def judge(self, job, end):
        mismatch = "mismatch between collectives" in end.what or "monitoredBarrier" in end.what
        if mismatch and end.phase == job.at[0]:
            return [("", end.kind, end.what)], ""
        return [], end.what
