"""The report's memory sections: what each rank held, beside what it may hold."""

import report_plots as plots

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
MEMORY, MEMORY_PLAIN = "memory", "memory_plain"  # as `shardproof list phases` has them


def human_bytes(count):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


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


def is_bounded(phase, place, judged):
    """Whether a property has held the peaks of this phase against a bound. judged: the ids of those
    that were not skipped, as is the one of the host for a subject that promises no bound."""
    return phase["phase"] == MEMORY and f"memory.{place.name}_peak" in judged


def bound_of(rank, case):
    """What the design allows a rank to hold: idle, own shards, one bucket and the slack."""
    if rank["own"] is None:
        return None
    return (
        rank["idle"] + rank["own"] + case.get("bucket_bytes", 0) + case.get("host_slack_bytes", 0)
    )


def memory_sections(phases, place, case, judged):
    sections = []
    for index, phase in enumerate(phases):
        rows = []
        bounded = is_bounded(phase, place, judged)
        for rank in phase["ranks"]:
            rank["bound"] = bound_of(rank, case) if bounded else None
            rows.append(
                {
                    "rank": rank["rank"],
                    "peak": human_bytes(rank["peak"]),
                    "peak_stage": rank["peak_stage"],
                    "own": human_bytes(rank["own"] or 0),
                    "bound": human_bytes(rank["bound"]) if rank["bound"] else "none",
                    "over": rank["bound"] is not None and rank["peak"] > rank["bound"],
                }
            )
        sections.append(
            {
                "place": place.name,
                "phase": phase["phase"],
                "rows": rows,
                "bounded": bounded,
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
    ours, plain = peaks.get(MEMORY), peaks.get(MEMORY_PLAIN)
    if not ours or not plain:
        return None
    is_subject = case.get("subject", "reference") != "reference"
    strategy = "as it is" if is_subject else case.get("strategy", "memory")
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
