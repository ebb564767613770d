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

import jinja2
import markupsafe
import report_plots as plots
from report_evidence import DEVICE, HOST, read_phases, read_reproducers
from report_held import held_section
from report_memory import in_place, memory_overlay, memory_sections

MESH_RANKS_MAX = 64  # more cells than that are no help to the eye


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


def mesh_text(axes):
    """ "dp_shard 4 × tp 2, ep 2 over dp_shard" """
    own = [f"{axis['name']} {axis['size']}" for axis in axes if not axis.get("over")]
    laid = [
        f"{axis['name']} {axis['size']} over {' and '.join(axis['over'])}"
        for axis in axes
        if axis.get("over")
    ]
    return ", ".join([" × ".join(own), *laid])


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
    count = sum(one["findings"] for one in result["properties"])  # also those that are not kept
    worst = {
        "fail": f"{count} finding" + ("" if count == 1 else "s"),
        "pass": "every property that was judged holds",
        "inconclusive": "some properties could not be judged",
        "skip": "no property was judged",
    }
    known = result.get("gate", {}).get("known", 0)
    words = worst.get(result["verdict"], "")
    if known and result["verdict"] == "pass":
        return f"{known} known finding" + ("" if known == 1 else "s") + ", no other"
    return f"{words}, {known} of them known" if known and result["verdict"] == "fail" else words


def render(result, evidence, folder):
    notes = []
    for finding in result["findings"]:
        for field in ("phase", "stage", "tensor", "expected", "seen", "explanation"):
            finding.setdefault(field, "")
        for field in ("hosts", "coordinates"):
            finding.setdefault(field, [])
    shards, memory = read_phases(evidence, result, notes)
    held_in = lambda place: in_place(memory, place, result["case"])
    places = [(place, phases) for place in (HOST, DEVICE) if (phases := held_in(place))]
    judged = {each["id"] for each in result["properties"] if each["verdict"] != "skip"}
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
    axes = result["case"]["mesh"]
    mesh = [axis for axis in axes if not axis.get("over")]
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
        held=held_section(result.get("memory")),
        memory=[
            section
            for place, phases in places
            for section in memory_sections(phases, place, result["case"], judged)
        ],
        notes=notes,
        case_json=json.dumps(result["case"], indent=2, ensure_ascii=False, sort_keys=True),
        mesh=mesh_text(axes),
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
