"""Writes one rank's evidence as verify/evidence/FORMAT.md says."""

import dataclasses
import json
import os
import pathlib
import socket
import sys
import threading
import traceback

from .._phases import VALUES

SCHEMA = 1


@dataclasses.dataclass
class Place:
    """Where a rank is in its job. axes: [{"name", "size"}]. mesh: what is known of the job's axes,
    as shardproof.check takes it."""

    rank: int
    world_size: int
    axes: list[dict]
    coordinates: list[int]
    mesh: dict | None = None


def on_one_axis(rank: int, world_size: int) -> Place:
    """The place of a rank in a job that shows no mesh."""
    return Place(rank, world_size, [{"name": "world", "size": world_size}], [rank])


class LineFile:
    """JSON Lines, each written whole by one write(), so that a killed rank leaves whole lines."""

    def __init__(self, path: pathlib.Path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o666)
        self._lock = threading.Lock()
        self._path = path
        self.lines = 0

    def write(self, record: dict):
        line = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        data = line.encode("utf-8", "replace") + b"\n"
        with self._lock:
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(f"{self._path}: {written} of {len(data)} bytes written")
            self.lines += 1


class Writer:
    """The two streams of one rank. Every method may raise OSError."""

    def __init__(self, directory: str, rank: int):
        folder = pathlib.Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        self._facts = LineFile(folder / f"rank_{rank}.facts.jsonl")
        self._measures = LineFile(folder / f"rank_{rank}.measures.jsonl")
        self._descriptors: dict[str, int] = {}
        self._meshes: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._states: dict[str, dict[str, dict]] = {}  # of what, then by name
        self._stage: tuple[str, int, str, set[str]] | None = None
        self.ended = False

    def rank(self, **header):
        self._facts.write({"record": "rank", "schema": SCHEMA, **header})

    def process(self, pid: int, host: str):
        self._measures.write({"record": "process", "pid": pid, "host": host})

    def begin_stage(self, name: str, step: int, of: str = "model"):
        record = {"record": "stage", "name": name, "step": step}
        self._facts.write(record if of == "model" else {**record, "of": of})
        self._stage = (name, step, of, set())

    def mesh(self, axes: list[dict], coordinates) -> int:
        """\\returns the id for descriptors of tensors on this mesh."""
        key = (*((axis["name"], axis["size"]) for axis in axes), *coordinates)
        return self._once("mesh", self._meshes, key, axes=axes, coordinates=list(coordinates))

    def groups(self, **fields) -> int:
        """fields: tuples of ranks, and flags. \\returns the id for descriptors of tensors that
        these ranks hold."""
        return self._once("groups", self._groups, tuple(fields.items()), **fields)

    def _once(self, record: str, known: dict[tuple, int], key: tuple, **fields) -> int:
        if key not in known:
            known[key] = len(known)
            self._facts.write({"record": record, "id": known[key], **fields})
        return known[key]

    def state(self, name: str, descriptor: dict, state: dict):
        """One tensor at the open stage; names must come in byte order."""
        key = json.dumps(descriptor, sort_keys=True)
        if key not in self._descriptors:
            number = self._descriptors[key] = len(self._descriptors)
            self._facts.write({"record": "tensor", "id": number, **descriptor})
        record = {"record": "state", "name": name, "tensor": self._descriptors[key], **state}
        _, _, of, seen = self._stage
        seen.add(name)
        states = self._states.setdefault(of, {})
        if states.get(name) == record:
            return
        states[name] = record
        self._facts.write(record)

    def end_stage(self):
        name, step, of, seen = self._stage
        states = self._states.setdefault(of, {})
        for gone in sorted(set(states) - seen, key=lambda text: text.encode()):
            del states[gone]
            self._facts.write({"record": "gone", "name": gone})
        self._facts.write({"record": "stage_end", "name": name, "step": step, "tensors": len(seen)})
        self._stage = None

    def collective(self, **fields):
        self._facts.write({"record": "collective", **fields})

    def keys(self, missing, unexpected):
        self._facts.write(
            {"record": "keys", "missing": sorted(missing), "unexpected": sorted(unexpected)}
        )

    def twin(self, made_by: str, pieces: dict, used_attributes: dict):
        """Of the plain twin alone: what it is, and what the files have of it (_twin.py)."""
        self._facts.write(
            {"record": "twin", "made_by": made_by, "pieces": dict(sorted(pieces.items())),
             "used_attributes": dict(sorted(used_attributes.items()))}
        )  # fmt: skip

    def twin_step(self, **fields):
        """Of the plain twin alone: a stage of the subject, held against it (_step_by_step.py)."""
        self._facts.write({"record": "twin_step", **fields})

    def optimizer(
        self, groups: list[dict], strangers: list[dict], values: dict[str, str], claims=True
    ):
        """Within a stage of the optimizer. claims: whether it is said to hold the whole model."""
        record = {"groups": groups, "strangers": strangers, "values": values}
        self._facts.write(
            {"record": "optimizer", **record, **({} if claims else {"claims": False})}
        )

    def steps(self, **fields):
        """Within a stage of the optimizer."""
        self._facts.write({"record": "steps", **fields})

    def states(self, of: str) -> dict[str, dict]:
        """The records of what was observed last, by name."""
        return self._states.get(of, {})

    def rng(self, cpu: str, keeps: bool):
        """Within a stage."""
        self._facts.write({"record": "rng", "cpu": cpu, "keeps": keeps})

    def fault(self, **fields):
        """To be called before the fault acts."""
        self._facts.write({"record": "fault", **fields})

    def error(self, stage: str, error: BaseException):
        """What the subject raised; of an error that is a sentence for people, that alone."""
        line = getattr(error, "in_one_line", None) or root_cause(error)
        code = "environment" if _is_of_imports(error) else "subject"
        self.failure(stage, code, type(error).__name__, line)

    def failure(self, stage: str, code: str, kind: str, message: str):
        """code: "subject" for an error of the job, "environment" if it lacks what it imports,
        "internal" for an error of ours."""
        self._facts.write(
            {"record": "error", "code": code, "stage": stage, "message": message, "type": kind}
        )

    def leaks(self, what: list[str]):
        """What the rank holds when its part is over, and should have given back."""
        self._measures.write({"record": "leaks", "what": what})

    def memory(self, time_ms: float, anonymous_bytes: int, stage: str):
        self._measures.write(
            {"record": "memory", "time_ms": time_ms, "anonymous_bytes": anonymous_bytes,
             "stage": stage}
        )  # fmt: skip

    def memory_summary(self, **fields):
        self._measures.write({"record": "memory_summary", **fields})

    def held(self, **fields):
        """What this process holds at a stage; fields as FORMAT.md has them."""
        self._measures.write({"record": "held", **fields})

    def pages(self, stage, step, name, storage_bytes, committed_bytes):
        self._measures.write(
            {"record": "pages", "stage": stage, "step": step, "name": name,
             "storage_bytes": storage_bytes, "committed_bytes": committed_bytes}
        )  # fmt: skip

    def end(self):
        self._facts.write({"record": "end", "lines": self._facts.lines + 1})
        self.ended = True


def begun_by_script(folder: pathlib.Path, place: Place) -> Writer:
    """The evidence of a rank that no launcher of ours started."""
    writer = Writer(folder / VALUES, place.rank)
    writer.rank(
        rank=place.rank, world_size=place.world_size, mesh=place.axes,
        coordinates=place.coordinates, subject=pathlib.Path(sys.argv[0]).stem or "python",
        mode="values", strategy="plain", seed=0,
    )  # fmt: skip
    writer.process(os.getpid(), socket.gethostname())
    return writer


def coordinates_of(rank: int, sizes: list[int]) -> list[int]:
    """On a row-major mesh."""
    found = []
    for size in reversed(sizes):
        found.insert(0, rank % size)
        rank //= size
    return found


def _is_of_imports(error: BaseException | None) -> bool:
    """Whether an import failed: so a framework says in an error of its own, too."""
    while error is not None and not isinstance(error, ImportError):
        error = error.__cause__
    return error is not None


def root_cause(error: BaseException) -> str:
    """The exception in one line, and where in whose code."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({pathlib.Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    # CheckpointException holds the error of each rank, each with a stack that says less.
    failures = getattr(error, "failures", None)
    text = str(error)
    if isinstance(failures, dict) and failures:
        errors = {rank: one[0] if isinstance(one, tuple) else one for rank, one in failures.items()}
        text = "; ".join(
            f"rank {rank}: {type(one).__name__}: {one}" for rank, one in errors.items()
        )
    text = " ".join(text.split())
    if len(text) > 600:  # what happened stands at the end of most
        text = f"{text[:200]} ... {text[-400:]}"
    return f"{type(error).__name__}: {text}{where}"
