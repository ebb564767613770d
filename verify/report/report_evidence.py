"""What a report reads of the evidence: shards, memory and reproducers.

Evidence may be damaged: what cannot be read is left out, with a note that says so.
"""

import json
import os
import re
import typing

LINE_BYTES_MAX = 64 << 20


class Place(typing.NamedTuple):
    """Where memory is held, and what the evidence calls what it says of it."""

    name: str
    measured: str  # what a sample counts, for people
    sample: str  # of a memory record; the others of a memory_summary
    peak: str
    own: str
    idle: str | None


HOST = Place(
    "host", "anonymous memory", "anonymous_bytes", "peak_bytes", "own_shard_bytes", "idle_bytes"
)
DEVICE = Place(
    "device",
    "allocated memory",
    "device_bytes",
    "device_peak_bytes",
    "device_own_shard_bytes",
    None,
)


def records(path, notes):
    """The records of one stream up to its first damage or torn last line."""
    number = 0
    try:
        with open(path, "rb") as stream:
            while line := stream.readline(LINE_BYTES_MAX):
                number += 1
                if not line.endswith(b"\n"):
                    return
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError("not an object")
                yield record
    except (OSError, ValueError, RecursionError) as error:
        notes.append(
            f"{os.path.basename(os.path.dirname(path))}/{os.path.basename(path)}: "
            f"{type(error).__name__} at line {number}"
        )


def whole(value, limit=1 << 60):
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise ValueError("not a number in range")
    return value


def placement_text(placement):
    """As DTensor prints it: R, S(0), _S(0, 2), P; F for a stretch of the flattened tensor."""
    kind, dim = placement.get("kind"), whole(placement.get("dim", 0))
    if kind == "strided_shard":
        return f"_S({dim}, {whole(placement.get('split_factor', 1))})"
    return {"replicate": "R", "shard": f"S({dim})", "partial": "P", "flat_shard": "F"}.get(
        kind, "?"
    )


def shape_and_runs(record):
    """What the shard map needs of a descriptor. Raises ValueError or TypeError if it is damaged."""
    runs = [
        {
            "start": whole(run.get("start")),
            "length": whole(run.get("length")),
            "count": whole(run.get("count", 1)),
            "stride": whole(run.get("stride", 0)),
        }
        for run in record.get("owned", [])
    ]
    return {
        "shape": [whole(size) for size in record.get("shape", [])],
        "owned": runs,
        "placements": [placement_text(one) for one in record.get("placements", [])],
    }


def read_shards(facts, notes):
    """name -> shape and runs as a rank held it at stage ready, or at the end if never ready."""
    descriptors, current, ready, of_model = {}, {}, None, True
    try:
        for record in facts:
            kind = record.get("record")
            if kind == "stage":
                of_model = record.get("of", "model") == "model"
            if not of_model and kind != "tensor":
                continue
            if kind == "tensor":
                descriptors[whole(record.get("id"))] = shape_and_runs(record)
            elif kind == "state":
                current[str(record.get("name"))] = descriptors.get(whole(record.get("tensor")))
            elif kind == "gone":
                current.pop(str(record.get("name")), None)
            elif kind == "stage_end" and record.get("name") in ("ready", "materialized"):
                ready = dict(current)
    except (ValueError, TypeError, AttributeError) as error:
        notes.append(
            f"a damaged tensor is left out of the shard map, with all that follows: {error}"
        )
    return {name: tensor for name, tensor in (ready or current).items() if tensor}


def read_memory(measures, notes):
    """[(ms, {field: bytes}, stage)], and the summary by field."""
    samples, summary = [], {}
    try:
        for record in measures:
            if record.get("record") == "memory":
                time_ms = float(record.get("time_ms"))
                if not 0 <= time_ms < 1e12:
                    raise ValueError("a time out of range")
                held = {
                    HOST.sample: whole(record.get(HOST.sample)),
                    DEVICE.sample: whole(record.get(DEVICE.sample, 0)),
                }
                samples.append((time_ms, held, str(record.get("stage", ""))))
            elif record.get("record") == "memory_summary":
                summary = {
                    name: whole(record.get(name, 0))
                    for place in (HOST, DEVICE)
                    for name in (place.idle, place.peak, place.own)
                    if name
                }
    except (ValueError, TypeError) as error:
        notes.append(f"a damaged memory record is left out, with all that follows: {error}")
    return samples, summary


def read_phases(evidence, result, notes):
    """Shards of the first phase that has any, and memory of every phase that has samples."""
    shards, memory = {}, []
    ranks = result["compared"]["ranks"]
    for phase in result["compared"]["phases"]:
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", phase):
            continue
        per_rank, phase_memory = {}, []
        for rank in range(ranks):
            stem = os.path.join(evidence, phase, f"rank_{rank}")
            if not shards and os.path.exists(stem + ".facts.jsonl"):
                per_rank[rank] = read_shards(records(stem + ".facts.jsonl", notes), notes)
            if os.path.exists(stem + ".measures.jsonl"):
                samples, summary = read_memory(records(stem + ".measures.jsonl", notes), notes)
                if samples:
                    phase_memory.append({"rank": rank, "samples": samples, "summary": summary})
        if any(per_rank.values()):
            shards = {"phase": phase, "ranks": per_rank}
        if phase_memory:
            memory.append({"phase": phase, "ranks": phase_memory})
    return shards, memory


def read_reproducers(folder, notes):
    """fingerprint -> script, program and report, as verify/reproduce/ left them in this folder, if
    it did."""
    path = os.path.join(folder, "reproducers.json")
    if not os.path.exists(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)["findings"]
        return {
            str(fingerprint): {
                kind: plain_name(entry.get(kind)) for kind in ("script", "program", "report")
            }
            for fingerprint, entry in found.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        notes.append(f"reproducers.json: {type(error).__name__}: {error}")
        return {}


def plain_name(name):
    """A file name without a folder, or None. Raises ValueError."""
    if name is not None and not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", name):
        raise ValueError(f"not a plain file name: {name!r}")
    return name
