"""Logs of syncs: what each side says of each sync, a line of JSON, for `shardproof report` to judge
(_rules.py). Of a job rank 0 writes. No torch here: the report does without."""

import json
import os
import socket
import time
import uuid

SCHEMA = 1
SUFFIX = ".syncs.jsonl"
# Of containers that follow each other, host and process id may be the same.
_START = uuid.uuid4().hex[:8]
_FINDINGS_MAX = 20


def check_path(path, version, what: str):
    """\\raises ValueError, before anything is sent."""
    if path is None:
        return
    if not os.fspath(path).endswith(SUFFIX):
        raise ValueError(f"shardproof.{what}: log is {os.fspath(path)!r}: expected *{SUFFIX}")
    if version is None:
        raise ValueError(f"shardproof.{what}: log= needs a version, but none was given")


def sent(manifest, rounds: bool, taken: int | None, rate: float | None) -> dict:
    """Of a trainer. rounds: whether small steps may leave what is sent as it was. taken: steps of
    the optimizer so far; rate: of the next one, the highest of its groups."""
    return {
        "side": "trainer", "weights": manifest.weights_digest, "steps": taken, "rate": rate,
        "rounds": rounds,
    }  # fmt: skip


def received(outcome=None, mismatch=None, refused=None) -> dict:
    """Of an engine: what `check` returned, or raised."""
    found = mismatch.findings if mismatch else []
    of_manifest_first = sorted(found, key=lambda each: each.kind != "disk")
    return {
        "side": "engine",
        "looked": outcome is None or outcome.looked,
        "compared": outcome.comparisons if outcome else 0,
        "left": list(outcome.inconclusive[:_FINDINGS_MAX]) if outcome else [],
        "looked_at": outcome.looked_at if outcome else None,
        "held": outcome.held if outcome else None,
        "count": mismatch.count if mismatch else 0,
        "found": [
            {"tensor": each.tensor, "ranks": list(each.ranks), "what": each.what}
            for each in of_manifest_first[:_FINDINGS_MAX]
        ],
        "refused": " ".join(str(refused).split()) if refused else None,
    }


def append(path, manifest, said: dict):
    """\\raises OSError."""
    line = {
        "syncs": SCHEMA, "job": f"{socket.gethostname()}:{os.getpid()}:{_START}",
        "at": time.time(),
        "version": manifest.version, "manifest": manifest.digest, **said,
    }  # fmt: skip
    data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, data)
    finally:
        os.close(file)
