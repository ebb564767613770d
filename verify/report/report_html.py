"""Makes the HTML report of a run: python report_html.py RESULT.json EVIDENCE_DIR OUT.html

RESULT.json is the document of `--json`, EVIDENCE_DIR what verify/evidence/FORMAT.md describes. The
output is one file that asks the network for nothing, and equal input gives equal bytes. Evidence
may be damaged: what cannot be read is left out and said to be. What verify/reproduce/ has written
into the folder `reproducers` beside the output is linked.
"""

import json
import math
import os
import re
import sys
import tempfile
import typing

import jinja2
import markupsafe
import report_plots as plots

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
LINE_BYTES_MAX = 64 << 20
MESH_RANKS_MAX = 64  # more cells than that are no help to the eye


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


def human_bytes(count):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def printable(text):
    """Control characters as escapes: they are not allowed in HTML and hide things in a browser."""
    return re.sub(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]",
        lambda match: f"\\x{ord(match.group()):02x}",
        str(text),
    )


def with_code(text):
    """What stands between backticks as code; the rest escaped."""
    return markupsafe.Markup(
        re.sub(r"`([^`]*)`", r"<code>\1</code>", str(markupsafe.escape(printable(text))))
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


def in_place(memory, place):
    """The phases that held anything there: of each rank samples (ms, bytes, stage), idle, own and
    peak bytes; own is None if the rank left no summary."""
    phases = []
    for phase in memory:
        ranks = []
        for rank in phase["ranks"]:
            samples = [
                (time_ms, held[place.sample], stage) for time_ms, held, stage in rank["samples"]
            ]
            _, highest, peak_stage = max(samples, key=lambda sample: sample[1])
            summary = rank["summary"]
            ranks.append(
                {
                    "rank": rank["rank"],
                    "samples": samples,
                    "own": summary.get(place.own),
                    "idle": summary.get(place.idle, 0),
                    "peak": summary.get(place.peak, highest),
                    "peak_stage": peak_stage,
                }
            )
        if any(held for rank in ranks for _, held, _ in rank["samples"]):
            phases.append({"phase": phase["phase"], "ranks": ranks})
    return phases


def bound_of(rank, case):
    """What the design allows a rank to hold: idle, own shards, one bucket and the slack."""
    if rank["own"] is None:
        return None
    return (
        rank["idle"] + rank["own"] + case.get("bucket_bytes", 0) + case.get("host_slack_bytes", 0)
    )


def memory_sections(phases, place, case):
    sections = []
    for index, phase in enumerate(phases):
        rows = []
        for rank in phase["ranks"]:
            rank["bound"] = bound_of(rank, case)
            rows.append(
                {
                    "rank": rank["rank"],
                    "peak": human_bytes(rank["peak"]),
                    "peak_stage": rank["peak_stage"],
                    "own": human_bytes(rank["own"] or 0),
                    "bound": human_bytes(rank["bound"]) if rank["bound"] else "unknown",
                    "over": rank["bound"] is not None and rank["peak"] > rank["bound"],
                }
            )
        sections.append(
            {
                "place": place.name,
                "phase": phase["phase"],
                "rows": rows,
                "svg": plots.memory_plot(phase["ranks"], place, f"{place.name}{index}"),
            }
        )
    return sections


def stage_peaks(phase):
    """[(stage, total, highest)]: the ranks' peaks above idle while a stage was worked on, summed
    and the highest, in bytes; only of stages that every rank has samples of."""
    peaks = {}
    for rank in phase["ranks"]:
        for _, held, stage in rank["samples"]:
            if stage:
                of_stage = peaks.setdefault(stage, {})
                of_stage[rank["rank"]] = max(of_stage.get(rank["rank"], 0), held - rank["idle"])
    whole_stages = [
        (stage, by_rank.values())
        for stage, by_rank in peaks.items()
        if len(by_rank) == len(phase["ranks"])
    ]
    return [(stage, sum(values), max(values)) for stage, values in whole_stages]


def memory_overlay(phases, place, case):
    """The case's strategy against the plain one, stage by stage, if both were measured."""
    peaks = {phase["phase"]: stage_peaks(phase) for phase in phases}
    ours, plain = peaks.get("memory"), peaks.get("memory_plain")
    if not ours or not plain:
        return None
    strategy = case.get("strategy", "memory")
    most = lambda peaks, column: max(peak[column] for peak in peaks)
    return {
        "svg": plots.overlay_plot({strategy: ours, "plain": plain}, place, f"overlay-{place.name}"),
        "place": place.name,
        "strategy": strategy,
        "total": human_bytes(most(ours, 1)),
        "plain_total": human_bytes(most(plain, 1)),
        "highest": human_bytes(most(ours, 2)),
        "plain_highest": human_bytes(most(plain, 2)),
    }


def mesh_grid(mesh, rank_count):
    """Ranks by coordinates: blocks over the leading axes, in each a table over the last two."""
    sizes = [axis["size"] for axis in mesh]
    if not sizes or math.prod(sizes) != rank_count or rank_count > MESH_RANKS_MAX:
        return None
    palette = plots.colors(rank_count)
    columns = sizes[-1]
    rows = sizes[-2] if len(sizes) > 1 else 1
    blocks = []
    for block in range(rank_count // (rows * columns)):
        coordinates, rest = [], block
        for axis in reversed(mesh[:-2]):
            coordinates.insert(0, f"{axis['name']} {rest % axis['size']}")
            rest //= axis["size"]
        first = block * rows * columns
        blocks.append(
            {
                "title": ", ".join(coordinates),
                "rows": [
                    [
                        {
                            "rank": first + row * columns + column,
                            "color": palette[first + row * columns + column],
                        }
                        for column in range(columns)
                    ]
                    for row in range(rows)
                ],
            }
        )
    return {
        "blocks": blocks,
        "column_axis": mesh[-1]["name"],
        "row_axis": mesh[-2]["name"] if len(mesh) > 1 else "",
    }


def property_table(result):
    """Rows of properties; a column a stage that a property reads or a finding names, in any
    phase."""
    known_stages = result["compared"]["stages"]
    used = {finding.get("stage", "") for finding in result["findings"]} - {""}
    needed = {
        prop["id"]: {stage for part in prop.get("reads", []) for stage in part["stages"]}
        for prop in result["properties"]
    }
    for stages in needed.values():
        used |= stages & set(known_stages)
    order = lambda stage: (known_stages.index(stage) if stage in known_stages else 99, stage)
    columns = sorted(used, key=order)
    rows = []
    for prop in result["properties"]:
        judged = prop["verdict"] in ("pass", "fail")
        cells = [
            {
                "findings": sum(
                    1
                    for f in result["findings"]
                    if f["property"] == prop["id"] and f.get("stage", "") == stage
                ),
                "read": judged and stage in needed[prop["id"]],
            }
            for stage in columns
        ]
        rows.append({**prop, "cells": cells})
    return columns, rows


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


def share_a_cause(first, other):
    """Whether two findings likely have one cause: the other follows from the first, both name one
    element, or one property found the same in several tensors or phases."""
    if other.get("is_consequence") and first["phase"] == other["phase"]:
        return True
    if first["tensor"] and first["tensor"] == other["tensor"]:
        return "index" not in first or "index" not in other or first["index"] == other["index"]
    same = lambda *fields: all(first[field] == other[field] for field in fields)
    if not first["tensor"] and same("fingerprint", "seen"):
        return True  # in another phase
    return bool(other["explanation"]) and same("property", "kind", "phase", "stage", "explanation")


def by_cause(findings):
    """[[first, what likely has its cause, ...], ...], in the order of the findings."""
    groups = []
    for finding in findings:
        group = next((group for group in groups if share_a_cause(group[0], finding)), None)
        if group:
            group.append(finding)
        else:
            groups.append([finding])
    return groups


def relative(path, folder):
    """The path from this folder, if it is below it."""
    absolute, folder = os.path.abspath(path), os.path.abspath(folder)
    return os.path.relpath(absolute, folder) if absolute.startswith(folder + os.sep) else path


def headline(result):
    worst = {
        "fail": f"{len(result['findings'])} finding"
        + ("" if len(result["findings"]) == 1 else "s"),
        "pass": "every property that was judged holds",
        "inconclusive": "some properties could not be judged",
        "skip": "no property was judged",
    }
    return worst.get(result["verdict"], "")


def render(result, evidence, folder):
    notes = []
    for finding in result["findings"]:
        for field in ("phase", "stage", "tensor", "expected", "seen", "explanation"):
            finding.setdefault(field, "")
        for field in ("hosts", "coordinates"):
            finding.setdefault(field, [])
    shards, memory = read_phases(evidence, result, notes)
    places = [(place, phases) for place in (HOST, DEVICE) if (phases := in_place(memory, place))]
    columns, rows = property_table(result)
    groups = by_cause(result["findings"])
    here = lambda path: relative(path, os.getcwd()) if os.path.isabs(path) else path
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(__file__))),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(value),
    )
    environment.filters["code"] = with_code
    mesh = result["case"]["mesh"]
    shard_map = (
        plots.shard_map(shards["ranks"], "shards", [axis["name"] for axis in mesh])
        if shards
        else None
    )
    counts = {}
    for prop in result["properties"]:
        counts[prop["verdict"]] = counts.get(prop["verdict"], 0) + 1
    return environment.get_template("report.html.j2").render(
        reproducers=read_reproducers(os.path.join(folder, "reproducers"), notes),
        groups=groups,
        subject=here(result["subject"]),
        here=here,
        evidence=relative(result["evidence"], folder),
        result=result,
        case=result["case"],
        compared=result["compared"],
        headline=headline(result),
        counts=counts,
        columns=columns,
        rows=[row for row in rows if row["verdict"] != "skip"],
        skipped=[row for row in rows if row["verdict"] == "skip"],
        shard_map=shard_map,
        shard_phase=shards.get("phase", "") if shards else "",
        mesh_grid=mesh_grid(mesh, compared_ranks(shards)),
        overlays=[
            overlay
            for place, phases in places
            if (overlay := memory_overlay(phases, place, result["case"]))
        ],
        memory=[
            section
            for place, phases in places
            for section in memory_sections(phases, place, result["case"])
        ],
        notes=notes,
        case_json=json.dumps(result["case"], indent=2, ensure_ascii=False, sort_keys=True),
        mesh=" × ".join(f"{axis['name']} {axis['size']}" for axis in mesh),
    )


def compared_ranks(shards):
    return len(shards["ranks"]) if shards else 0


def write_atomically(path, text):
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=os.path.basename(path) + ".")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main(arguments):
    if len(arguments) != 4:
        sys.exit(f"usage: {arguments[0]} RESULT.json EVIDENCE_DIR OUT.html")
    try:
        with open(arguments[1], encoding="utf-8") as file:
            result = json.load(file)
        folder = os.path.dirname(os.path.abspath(arguments[3]))
        write_atomically(arguments[3], render(result, arguments[2], folder))
    except (OSError, ValueError, KeyError, TypeError, jinja2.TemplateError) as error:
        sys.exit(f"{arguments[1]}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main(sys.argv)
