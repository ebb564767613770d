"""The report's section of what an observed job held, stage by stage, by rank and by node."""

import report_plots as plots
from report_memory import human_bytes

RANKS_SHOWN = 64
FRAMES_SHOWN = 6
OF_MODEL, OF_TRAINING = ("parameter", "buffer"), ("gradient", "optimizer")


def of_tensors(rank, kinds):
    """Bytes of tensors of these kinds, in anonymous memory of the host and on devices."""
    host = device = 0
    for one in rank["tensors"]:
        if one["of"] in kinds:
            if one["device"] == "cpu":
                host += one.get("anonymous_bytes", 0)
            else:
                device += one["bytes"]
    return host, device


def on_host_and_device(parts):
    host, device = parts
    return human_bytes(host) + (f" + {human_bytes(device)} on device" if device else "")


def peak_of(rank):
    return max(rank["anonymous_bytes"], rank.get("peak", {}).get("anonymous_bytes", 0))


def row_of(rank):
    peak = rank.get("peak", {})
    return {
        "rank": rank["rank"],
        "host": rank["host"],
        "private": human_bytes(rank["anonymous_bytes"]),
        "peak": human_bytes(peak_of(rank)) if peak else "not known",
        "shared": human_bytes(rank["shared_bytes"]),
        "files": human_bytes(rank["file_bytes"]),
        "pinned": human_bytes(rank.get("pinned_bytes", 0) + rank["locked_bytes"]),
        "model": on_host_and_device(of_tensors(rank, OF_MODEL)),
        "training": on_host_and_device(of_tensors(rank, OF_TRAINING)),
        "other": on_host_and_device(of_tensors(rank, ("other",))),
        "devices": [
            f"{one['device']}: {human_bytes(one['allocated_bytes'])} of "
            f"{human_bytes(one['reserved_bytes'])} reserved, at most "
            f"{human_bytes(one['peak_allocated_bytes'])} so far"
            for one in rank["devices"]
        ],
    }


def node_of(node):
    known = lambda name: human_bytes(node[name]) if name in node else "not known"
    return {
        "host": node["host"],
        "ranks": node["ranks"],
        "private": human_bytes(node["anonymous_bytes"]),
        "peak": human_bytes(node["peak_at_most_bytes"]),
        "shared": known("shared_bytes"),
        "files": known("file_bytes"),
        "pinned": human_bytes(node["pinned_bytes"]),
        "allocated": human_bytes(node["allocated_bytes"]),
    }


def stacks_of(rank):
    """Where the rank was at its peak, and who it says holds or allocated the most."""
    peak = rank.get("peak", {})
    stacks = [
        {"what": f"rank {rank['rank']} held {human_bytes(peak['stacks_bytes'])} here",
         "frames": stack[:FRAMES_SHOWN]}
        for stack in peak.get("stacks", [])[:1]
    ]  # fmt: skip
    for one in rank["who"]:
        number = f"{one['count']} {'tensor' if one['by'] == 'holder' else 'allocation'}"
        number += "" if one["count"] == 1 else "s"
        link = "held by " if one["by"] == "holder" else ""
        stacks.append(
            {"what": f"rank {rank['rank']}: {human_bytes(one['bytes'])} in {number}, "
                     f"{link}{one['what']}", "frames": one["stack"][:FRAMES_SHOWN]}
        )  # fmt: skip
    return stacks


def held_section(stages):
    """stages: `memory` of the JSON document. None if no job was observed."""
    if not stages:
        return None
    intervals = [
        rank["peak"]["interval_ms"] for stage in stages for rank in stage["ranks"] if "peak" in rank
    ]
    shown = []
    for stage in stages:
        ranks = sorted(stage["ranks"], key=peak_of, reverse=True)[:RANKS_SHOWN]
        shown.append(
            {
                "stage": stage["stage"],
                "rows": [row_of(rank) for rank in sorted(ranks, key=lambda rank: rank["rank"])],
                "hidden": len(stage["ranks"]) - len(ranks),
                "nodes": [node_of(node) for node in stage["nodes"]],
                "stacks": [stack for rank in ranks[:2] for stack in stacks_of(rank)],
            }
        )
    return {
        "stages": shown,
        "interval_ms": round(max(intervals, default=0)),
        "has_devices": any(rank["devices"] for stage in stages for rank in stage["ranks"]),
        "svgs": [
            plots.nodes_plot([stage["stage"] for stage in stages], lines, place, f"held-{place}")
            for place, lines in (("host", host_lines(stages)), ("device", device_lines(stages)))
            if lines
        ],
    }


def by_host(stages):
    """{host: [its node or None a stage]}, in the order of their names."""
    hosts = sorted({node["host"] for stage in stages for node in stage["nodes"]})
    return {
        host: [
            next((node for node in stage["nodes"] if node["host"] == host), None)
            for stage in stages
        ]
        for host in hosts
    }


def values_of(nodes, value):
    return [None if node is None else value(node) for node in nodes]


def host_lines(stages):
    """[(label, is dashed, number of the host, [bytes or None a stage])]; what ranks of a node share
    is in it once."""
    lines = []
    for number, (host, nodes) in enumerate(by_host(stages).items()):
        held = values_of(nodes, lambda n: n["anonymous_bytes"] + n.get("shared_bytes", 0))
        peaks = values_of(nodes, lambda n: n["peak_at_most_bytes"])
        lines.append((f"{host}, at the stage", False, number, held))
        lines.append((f"{host}, private at most before it", True, number, peaks))
    return lines


def device_lines(stages):
    """Likewise, of what is allocated on devices; none if nothing is."""
    lines = []
    for number, (host, nodes) in enumerate(by_host(stages).items()):
        allocated = values_of(nodes, lambda n: n["allocated_bytes"])
        if any(allocated):
            lines.append((f"{host}, allocated on devices", False, number, allocated))
    return lines
