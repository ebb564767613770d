"""Writes one rank's evidence as verify/evidence/FORMAT.md says."""

import json
import os
import pathlib
import threading

SCHEMA = 1


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
        self._states: dict[str, dict] = {}
        self._stage: tuple[str, int, set[str]] | None = None
        self.ended = False

    def rank(self, **header):
        self._facts.write({"record": "rank", "schema": SCHEMA, **header})

    def process(self, pid: int, host: str):
        self._measures.write({"record": "process", "pid": pid, "host": host})

    def begin_stage(self, name: str, step: int):
        self._facts.write({"record": "stage", "name": name, "step": step})
        self._stage = (name, step, set())

    def state(self, name: str, descriptor: dict, state: dict):
        """One tensor at the open stage; names must come in byte order."""
        key = json.dumps(descriptor, sort_keys=True)
        if key not in self._descriptors:
            number = self._descriptors[key] = len(self._descriptors)
            self._facts.write({"record": "tensor", "id": number, **descriptor})
        record = {"record": "state", "name": name, "tensor": self._descriptors[key], **state}
        self._stage[2].add(name)
        if self._states.get(name) == record:
            return
        self._states[name] = record
        self._facts.write(record)

    def end_stage(self):
        name, step, seen = self._stage
        for gone in sorted(set(self._states) - seen, key=lambda text: text.encode()):
            del self._states[gone]
            self._facts.write({"record": "gone", "name": gone})
        self._facts.write(
            {"record": "stage_end", "name": name, "step": step, "tensors": len(seen)}
        )
        self._stage = None

    def collective(self, **fields):
        self._facts.write({"record": "collective", **fields})

    def keys(self, missing, unexpected):
        self._facts.write(
            {"record": "keys", "missing": sorted(missing), "unexpected": sorted(unexpected)}
        )

    def error(self, code: str, stage: str, message: str):
        self._facts.write({"record": "error", "code": code, "stage": stage, "message": message})

    def memory(self, time_ms: float, anonymous_bytes: int, stage: str):
        self._measures.write(
            {"record": "memory", "time_ms": time_ms, "anonymous_bytes": anonymous_bytes,
             "stage": stage}
        )  # fmt: skip

    def memory_summary(self, **fields):
        self._measures.write({"record": "memory_summary", **fields})

    def pages(self, stage, step, name, storage_bytes, committed_bytes):
        self._measures.write(
            {"record": "pages", "stage": stage, "step": step, "name": name,
             "storage_bytes": storage_bytes, "committed_bytes": committed_bytes}
        )  # fmt: skip

    def end(self):
        self._facts.write({"record": "end", "lines": self._facts.lines + 1})
        self.ended = True
