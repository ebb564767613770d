"""The report's memory sections: what each rank held, beside what it may hold."""

import report_plots as plots

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
MEMORY, MEMORY_PLAIN = "memory", "memory_plain"  # as `shardproof list phases` has them


def human_bytes(count):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def in_place(memory, place, case):
    """The phases that held anything there: of each rank samples (ms, bytes, stage), the stages that
    were worked on meanwhile, idle, own and peak bytes; own is None if the rank left no summary."""
    phases = []
    for phase in memory:
        ranks = []
        of_all = set.intersection(*({s[2] for s in rank["samples"]} for rank in phase["ranks"]))
        for rank in phase["ranks"]:
            samples = [
                (time_ms, held[place.sample], stage) for time_ms, held, stage in rank["samples"]
            ]
            toward = [stage for *_, stage in samples]
            if is_subject(case):
                toward = ahead(toward, of_all)
            at = max(range(len(samples)), key=lambda number: samples[number][1])
            highest = samples[at][1]
            summary = rank["summary"]
            ranks.append(
                {
                    "rank": rank["rank"],
                    "samples": samples,
                    "toward": toward,
                    "own": summary.get(place.own),
                    "idle": summary.get(place.idle, 0),
                    "peak": summary.get(place.peak, highest),
                    "peak_stage": toward[at] or f"after {samples[at][2]}",
                }
            )
        if any(held for rank in ranks for _, held, _ in rank["samples"]):
            phases.append({"phase": phase["phase"], "ranks": ranks})
    return phases


def is_subject(case):
    """Whether samples bear the stage that was reached last: only the reference says in advance
    which one it is working on."""
    return case.get("subject", "reference") != "reference"


def ahead(stages, of_all):
    """Of samples that bear the last stage reached: the next one that every rank reaches, or "" if
    none follows."""
    found, toward, later = [], "", ""
    for stage in reversed(stages):
        if stage != later and later in of_all:
            toward = later
        later = stage
        found.append(toward)
    return found[::-1]


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
        for (_, held, _), stage in zip(rank["samples"], rank["toward"], strict=True):
            if stage:
                of_stage = peaks.setdefault(stage, {})
                of_stage[rank["rank"]] = max(of_stage.get(rank["rank"], 0), held - rank["idle"])
    whole_stages = [
        (stage, by_rank.values())
        for stage, by_rank in peaks.items()
        if len(by_rank) == len(phase["ranks"])
    ]
    return [(stage, sum(values), max(values)) for stage, values in whole_stages]


def until_ready(phases, name):
    """Of each rank of a phase, (ms, bytes above idle) until it was ready."""
    (phase,) = (phase for phase in phases if phase["phase"] == name)
    found = []
    for rank in phase["ranks"]:
        steps = list(zip(rank["samples"], rank["toward"], strict=True))
        last = max((n for n, (_, stage) in enumerate(steps) if stage == "ready"), default=-1)
        found.append([(ms, held - rank["idle"]) for (ms, held, _), _ in steps[: last + 1]])
    return found


def memory_overlay(phases, place, case):
    """The case's strategy against the plain one, stage by stage, if both were measured."""
    peaks = {phase["phase"]: stage_peaks(phase) for phase in phases}
    ours, plain = peaks.get(MEMORY), peaks.get(MEMORY_PLAIN)
    if not ours or not plain:
        return None
    strategy = "as it is" if is_subject(case) else case.get("strategy", "memory")
    common = {stage for stage, *_ in ours} & {stage for stage, *_ in plain}
    of_common = lambda peaks, column: [peak[column] for peak in peaks if peak[0] in common]
    most = lambda peaks, column: max(of_common(peaks, column), default=0)
    both = {strategy: MEMORY, "plain": MEMORY_PLAIN}
    loading = {name: until_ready(phases, phase) for name, phase in both.items()}
    return {
        "svg": plots.overlay_plot({strategy: ours, "plain": plain}, place, f"overlay-{place.name}"),
        "loading": plots.loading_plot(loading, place, f"loading-{place.name}"),
        "place": place.name,
        "strategy": strategy,
        "total": human_bytes(most(ours, 1)),
        "plain_total": human_bytes(most(plain, 1)),
        "highest": human_bytes(most(ours, 2)),
        "plain_highest": human_bytes(most(plain, 2)),
    }
