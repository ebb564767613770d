"""What a program has of the faults of a case: what strikes at which seam, and what must be true of a job that
was struck. main_faults.cc.j2 and main_struck.cc.j2 have the C++ of it.
"""

import math
import os
import re

import reproducer_training as training
from reproducer_shared import NotShown, facts_of, quoted

# Which calls of the file system a fault is about, and what they fail with.
FILES = {
    "file/enospc": (("write",), "No space left on device"), "file/edquot": (("write",), "Disk quota exceeded"),
    "file/eio": (("write",), "Input/output error"), "file/short": (("write",), "No space left on device"),
    "file/fsync": (("sync", "sync_directory"), "Input/output error"), "file/map": (("map",), "Cannot allocate memory"),
    "file/read": (("read",), "Input/output error"), "file/rename": (("rename",), "Input/output error"),
    "file/read-only": (("create", "open", "write", "make_directory", "rename"), "Read-only file system"),
    "file/slow": (("write", "sync"), ""),
}  # fmt: skip
FROM_THEN_ON = ("file/enospc", "file/edquot", "file/read-only", "file/rename", "file/slow", "memory/pinned")
RANKS = ("rank/kill", "rank/leave", "rank/stop", "rank/slow", "net/reset")
OTHERWISE = ("comm/drop", "comm/mismatch")

WAIT_MS_MAX = 6000

# What a correct job does under a fault, as `shardproof list faults` has it.
SEEN = ("file/flip", "comm/flip", "comm/swap-rows", "buffer/nan")
GO_ON = ("file/slow", "rank/slow")
ENDS = ("rank/kill", "rank/leave", "rank/stop", *OTHERWISE)  # a rank is lost

DTYPE_BYTES = {"BOOL": 1, "C64": 8}

CUT_OFF = ("net/reset",)  # nothing reaches a rank, which runs on

# Over which transport ranks can be struck so.
PROCESSES_ONLY, THREADS_ONLY = ("rank/stop", "net/reset"), OTHERWISE


def world_of(case):
    return math.prod(axis["size"] for axis in case["mesh"])


def disrupts(case):
    """As in verify/plan/plan.cc: whether a fault ends a job or holds it up."""
    return any(fault["id"] not in (*SEEN, "file/rot") for fault in case["faults"])


def loses(finding, case):
    """Whether a fault ends the finding's rank, or stops it."""
    return finding["phase"] == struck_phase(case) and any(
        fault["id"] in RANKS and fault["id"] in ENDS and moment_of(fault["where"])["rank"] in finding["ranks"]
        for fault in case["faults"])  # fmt: skip


def struck_phase(case):
    return "train" if case["steps"] and any(fault["id"] not in SEEN for fault in case["faults"]) else "values"


# ---- what strikes --------------------------------------------------------------------------------


def trigger_of(where, case):
    """As ParseTrigger in verify/fault/trigger.cc: the number of the call, the rank (None: all), and conditions."""
    if where == "never":
        raise NotShown("the fault strikes only when fiu-ctrl has it")
    found = {"number": 0, "rank": world_of(case) - 1, "what": "", "bytes": 0, "stage": ""}
    parts = dict(part.split("=", 1) for part in where.split(",")) if "=" in where else None
    if parts is None:
        call, _, rank = where.partition(":")
        parts = {"call": call} | ({"rank": rank} if rank else {})
    for key, value in parts.items():
        if key == "rank":
            found["rank"] = None if value == "all" else int(value)
        elif key in ("call", "bytes"):
            found["number" if key == "call" else key] = int(value)
        else:
            found[key] = value
    return found


def moment_of(where):
    """As TargetOf in verify/faults/rank_moment.cc."""
    rank, _, moment = where.partition("@")
    found = {"rank": int(rank), "stage": "", "step": None, "collective": None}
    if moment.startswith("#"):
        return found | {"collective": int(moment[1:])}
    stage, _, step = moment.partition("@")
    return found | {"stage": stage, "step": int(step) if step else None}


def detail_of(fault, run):
    """What is on record of the fault's first firing. Raises NotShown."""
    for phase in run.result["compared"]["phases"]:
        for rank in range(run.result["compared"]["ranks"]):
            for fact in facts_of(run.evidence, phase, rank):
                if fact["record"] == "fault" and fact["id"] == fault["id"] and fact["where"] == fault["where"]:
                    return fact["detail"]
    raise NotShown(f"{fault['id']} is not on record as having struck")


def damage_of(fault, run):
    """Which byte of which file is changed. Raises NotShown."""
    said = re.match(r"bit 0 of byte (\d+) of (.+?)(?:, of tensor '.*')?$", detail_of(fault, run))
    if not said:
        raise NotShown("the fault's record does not say which byte it was")
    offset, file = int(said.group(1)), said.group(2)
    if fault["id"] == "file/rot":
        return {"file": file, "offset": offset}
    # The program writes the checkpoint anew, with another header.
    folder = run.case["model"].get("checkpoint") or os.path.join(run.evidence, "source")
    return {"file": file, "before_end": os.path.getsize(os.path.join(folder, file)) - offset}


def rows_of(fault, run):
    """Which rows of which tensor are swapped on which rank. Raises NotShown."""
    said = re.fullmatch(r"rows (\d+) and (\d+) of (.+) swapped as rank (\d+) received them", detail_of(fault, run))
    one = next((one for one in run.oracle["declared"] if said and one["name"] == said.group(3)), None)
    if not one:
        raise NotShown("the fault's record does not say which rows they were")
    width = DTYPE_BYTES.get(one["dtype"], int(re.search(r"\d+|$", one["dtype"]).group() or 8) // 8)
    return {"rows": [int(said.group(1)), int(said.group(2))], "tensor": said.group(3), "rank": int(said.group(4)),
            "row_bytes": math.prod(one["shape"][1:]) * width}  # fmt: skip


def strike_of(fault, number, run):
    """One fault as the template takes it. Raises NotShown."""
    id_, where, words = fault["id"], fault["where"], run.result["faults"]
    said = words[number] if number < len(words) else f"{id_} {where}"
    name = "".join(word.capitalize() for word in re.split(r"[/-]", id_))
    is_first = all(other["id"] != id_ for other in run.case["faults"][:number])
    strike = {"id": id_, "name": name if is_first else f"{name}{number}", "words": said[0].upper() + said[1:],
              "from_then_on": id_ in FROM_THEN_ON, "model": "slow" if id_ in GO_ON else "lost" if id_ in ENDS
              else "cut" if id_ in CUT_OFF else "seen" if id_ in (*SEEN, "file/rot") else "failed"}  # fmt: skip
    if id_ in FILES:
        ops, error = FILES[id_]
        return strike | trigger_of(where, run.case) | {"seam": "files", "ops": ops, "error": error}
    if id_ in ("memory/tensor", "memory/pinned"):
        return strike | trigger_of(where, run.case) | {"seam": "device", "error": "Cannot allocate memory"}
    if id_ in OTHERWISE or id_ == "comm/flip":
        return strike | trigger_of(where, run.case) | {"seam": "wire" if id_ == "comm/flip" else "otherwise"}
    if id_ in RANKS:
        return strike | moment_of(where) | {"seam": "rank"}
    if id_ in ("file/flip", "file/rot"):
        return strike | damage_of(fault, run) | {"seam": "patch", "rank": None}
    if id_ == "comm/swap-rows":
        return strike | rows_of(fault, run) | {"seam": "rows"}
    if id_ == "memory/device":
        size, _, rank = where.partition(":")
        return strike | {"seam": "limit", "bytes": int(size), "rank": int(rank) if rank else world_of(run.case) - 1}
    if id_ == "buffer/nan":
        name, _, rank = where.rpartition(":") if ":" in where else (where, "", "")
        return strike | {"seam": "buffer", "buffer": name, "rank": int(rank) if rank else world_of(run.case) - 1}
    if id_ == "net/blackhole":
        raise NotShown("it needs a network of its own, which the verifier makes: `shardproof replay case.json`")
    raise NotShown(f"no program has the fault {id_}")


def strikes_of(run):
    return [strike_of(fault, number, run) for number, fault in enumerate(run.case["faults"])]


# ---- what must be true of it ---------------------------------------------------------------------


def wait_ms(case):
    """What a rank waits for another: as RankTimeout in verify/rank/worker.cc, and not for long."""
    return min(WAIT_MS_MAX, max(500, case["deadline_ms"] * 3 // 4))


def seconds_of(case):
    """What ranks have to come to their end: twice that, and the time in which one that is stopped is ended."""
    return math.ceil(2 * wait_ms(case) / 1000) + 3


def as_stated(finding, plan, run):
    others = "every other rank" if any(fault["id"] in ENDS for fault in run.case["faults"]) else "every rank"
    how = "and well" if all(fault["id"] in GO_ON for fault in run.case["faults"]) else \
          "with an error that says which rank it was, and what was done there"  # fmt: skip
    plan.expected = f"{others} to end within {plan.seconds} s, {how}"
    plan.hangs = finding["kind"] == "hang"
    return plan


def left(finding, plan, run):
    plan.expected = "a checkpoint to be there, and each to be whole: that of the earlier job as it was, or what " \
                    "the job saves without a fault"  # fmt: skip
    if finding["phase"] == "after":
        plan.expected += "; and after the job has run once more, one of its own, and no draft"
    return plan


def undisturbed(finding, plan, run):
    plan.expected = "the job that runs after the fault to be the one that never had it"
    return plan


def leaks(finding, plan, run):
    if "descriptor" not in finding["seen"]:
        raise NotShown("it is about what a process leaves (threads, children, shared memory, temporary files), "
                       "and a program's ranks are threads of one")
    plan.expected = "no descriptor to be open when the ranks have ended that was not open before"
    return plan


def recovered(finding, plan, run):
    has_older = finding["phase"] == "train" and len(training.saved_steps(run.case)) > 1 and \
                run.case["training"]["keep"] > 1  # fmt: skip
    detail = next(detail_of(fault, run) for fault in run.case["faults"] if fault["id"] == "file/rot")
    tensors = re.findall(r"'([^']*)'", detail.partition("of tensor ")[2])  # those that are tied share the byte
    plan.expected = "an older save to be restored in place of the one that is damaged" if has_older else \
                    f"what is damaged not to be restored, and every rank to name {' or '.join(tensors)} " \
                    "and its digest"  # fmt: skip
    names = ", ".join(quoted(f"'{tensor}'") for tensor in tensors)
    return plan.constant("bool", "kHasOlder", str(has_older).lower()) \
               .constant("std::vector<std::string>", "kDamaged", f"{{{names}}}")  # fmt: skip


CHECKS = {"fault.ends_as_stated": as_stated, "fault.nothing_lost": left, "fault.nothing_leaks": leaks,
          "fault.after_equals_undisturbed": undisturbed, "fault.damage_recovered": recovered}  # fmt: skip


# ---- what runs -----------------------------------------------------------------------------------


def whole_work(case, restored):
    """All that the phase does which faults strike."""
    if struck_phase(case) == "train":
        saves = training.saved_steps(case)
        return training.steps(saves, case["steps"], case) + (training.resumed(case["steps"], restored) if saves else [])
    return ["SP_ASSIGN(const Model model, Load(job, stages, world));", "SP_TRY(Save(model, job, stages, world));",
            f"SP_TRY(Restore({restored}, stages, world));"]  # fmt: skip


def phases_for(finding, plan, case, restored):
    """The phase that is struck, and what is held against it: where it has left what it left, and elsewhere."""
    struck = {"name": struck_phase(case), "armed": True, "earlier": disrupts(case)}
    after = {"name": "after", "armed": False, "earlier": False}
    alone = {"name": "undisturbed", "armed": False, "earlier": False, "save_to": "undisturbed"}
    phases = {"undisturbed": [struck, after, alone],
              "left": [struck, *([after] if finding["phase"] == "after" else []), alone]}.get(plan.check, [struck])
    if plan.check == "ends":
        phases = [struck, after] if finding["phase"] == "after" else [alone]
    return [phase | {"mesh": case["mesh"], "work": whole_work(case, restored)} for phase in phases]


def is_of_struck_job(finding, plan, case):
    """Whether it is about all that was done under a fault, and after it."""
    return plan.check in [make.__name__ for make in CHECKS.values()] or finding["phase"] in ("after", "undisturbed")
