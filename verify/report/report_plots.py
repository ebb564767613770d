"""The report's plots as inline SVG: which rank owns what, memory over time, and two ways of
loading.

Text and axes take the page's colour (currentColor), so the plots are readable dark, light and
printed. Ids are prefixed and hashed by a fixed salt: two plots in one page do not clash, and equal
data gives equal bytes.
"""

import io
import math
import re

import markupsafe
import matplotlib
from matplotlib.figure import Figure

INK = "#010203"  # replaced by currentColor
ROWS_MAX = 80
STRETCHES_MAX = 64
ROW, BAR = 0.38, 0.5  # a row's height in inches, and its bar's as a part of that
RANKS_IN_LEGEND = 16
DASHES = (0, (5, 3))
WIDTH = 7.4  # inches, of every plot: the page scales all of them alike

matplotlib.rcParams.update(
    {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "text.parse_math": False,
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
)


def colors(count):
    """Distinct up to ten, a ramp beyond that: neighbours then look alike, as they should."""
    if count <= 10:
        return [matplotlib.colors.to_hex(c) for c in matplotlib.colormaps["tab10"].colors[:count]]
    ramp = matplotlib.colormaps["turbo"]
    return [matplotlib.colors.to_hex(ramp(0.06 + 0.88 * i / (count - 1))) for i in range(count)]


def to_svg(figure, prefix, title):
    matplotlib.rcParams["svg.hashsalt"] = prefix
    stream = io.StringIO()
    figure.savefig(
        stream,
        format="svg",
        transparent=True,
        metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
    )
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = svg.replace(INK, "currentColor")
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{markupsafe.escape(title)}" ', 1)
    return markupsafe.Markup(svg)


def layout(tensor_by_rank):
    """A hashable form of shape, placements and ownership: tensors with the same one share a row."""
    first = next(iter(tensor_by_rank.values()))
    shape = (tuple(first.get("shape", [])), tuple(first.get("placements", [])))
    runs = tuple(
        (
            rank,
            tuple(
                (run["start"], run["length"], run.get("count", 1), run.get("stride", 0))
                for run in tensor.get("owned", [])
            ),
        )
        for rank, tensor in sorted(tensor_by_rank.items())
    )
    return shape, runs


def grouped_rows(ranks):
    """Rows of (label, shape, placements, {rank: runs}), layers that lie alike folded into one."""
    tensors = {}
    for rank, by_name in ranks.items():
        for name, tensor in by_name.items():
            tensors.setdefault(str(name), {})[rank] = tensor
    groups = {}
    for name in sorted(
        tensors, key=lambda n: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", n)]
    ):
        pattern = re.sub(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)", "*", name)
        groups.setdefault((pattern, layout(tensors[name])), []).append(name)
    rows = []
    for (pattern, ((shape, placements), _)), names in groups.items():
        label = names[0] if len(names) == 1 else f"{pattern}  ({len(names)} alike)"
        owned = {rank: tensor.get("owned", []) for rank, tensor in tensors[names[0]].items()}
        rows.append((label, shape, placements, owned))
    return rows, len(tensors)


def overlapping(owned):
    stretches = sorted(
        (run["start"], run["start"] + run["length"])
        for runs in owned.values()
        for run in runs
        if run.get("count", 1) == 1
    )
    return any(a[1] > b[0] for a, b in zip(stretches, stretches[1:]))


def interleaved(owned):
    return any(run.get("count", 1) > 1 for runs in owned.values() for run in runs)


def spans_of(run, elements):
    """(start, width) of a run's stretches as fractions of the tensor; one span if they are many."""
    count, stride = int(run.get("count", 1)), run.get("stride", 0)
    if count > STRETCHES_MAX // 2:
        return [(run["start"] / elements, ((count - 1) * stride + run["length"]) / elements)]
    return [
        ((run["start"] + i * stride) / elements, run["length"] / elements) for i in range(count)
    ]


def draw_row(axes, y, elements, owned, palette):
    """One tensor: its elements from left to right, coloured by owner. Ranks that own the same or
    interleaved elements get a band each."""
    fine_row = interleaved(owned)
    axes.broken_barh(
        [(0, 1)],
        (y - BAR / 2, BAR),
        facecolor="none",
        edgecolor=INK,
        linewidth=0.3,
        hatch=None if fine_row else "////",
        alpha=0.25,
    )
    banded = overlapping(owned) or fine_row
    ranks = sorted(owned)
    for position, rank in enumerate(ranks):
        height = BAR / len(ranks) if banded else BAR
        bottom = y - BAR / 2 + (position * height if banded else 0)
        # Single columns of a matrix are finer than a pixel: the stretch they lie in, paler.
        fine = any(int(run.get("count", 1)) > STRETCHES_MAX // 2 for run in owned[rank])
        spans = [span for run in owned[rank] for span in spans_of(run, elements)]
        axes.broken_barh(
            spans, (bottom, height), facecolor=palette[rank], linewidth=0, alpha=0.55 if fine else 1
        )
        if not banded and len(spans) == 1 and spans[0][1] > 0.03:
            axes.text(
                spans[0][0] + spans[0][1] / 2,
                y,
                str(rank),
                ha="center",
                va="center",
                color="#ffffff",
                fontsize=7,
            )


def shorten(label, limit=64):
    return label if len(label) <= limit else label[: limit // 2 - 1] + "…" + label[-limit // 2 :]


def annotate_row(axes, y, label, shape, placements):
    """Above a bar: the tensor at the left, and how it is placed on each mesh axis at the right."""
    text = {"va": "bottom", "fontsize": 8}
    above = y - BAR / 2 - 0.04
    axes.text(0, above, f"{shorten(label)}  [{', '.join(map(str, shape))}]", ha="left", **text)
    axes.text(1, above, "  ".join(placements), ha="right", family="monospace", **text)


def shard_map(ranks, prefix, axis_names):
    """One row a tensor."""
    rows, tensor_count = grouped_rows(ranks)
    hidden = max(0, len(rows) - ROWS_MAX)
    rows = rows[:ROWS_MAX]
    palette = dict(zip(sorted(ranks), colors(len(ranks))))
    figure = Figure(figsize=(WIDTH, 0.9 + ROW * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for y, (label, shape, placements, owned) in enumerate(rows):
        draw_row(axes, y, max(1, math.prod(shape)), owned, palette)
        annotate_row(axes, y, label, shape, placements)
    if any(placements for _, _, placements, _ in rows):
        axes.text(1, -1.15, ", ".join(axis_names), ha="right", va="center", fontsize=8)
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.6, -1.4)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["first", "25 %", "50 %", "75 %", "last element"])
    axes.get_xticklabels()[0].set_ha("left")
    axes.get_xticklabels()[-1].set_ha("right")
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    legend_of_owners(figure, palette)
    return {
        "svg": to_svg(figure, prefix, "which rank owns which elements of each tensor"),
        "tensors": tensor_count,
        "hidden": hidden,
    }


def legend(figure, handles, columns_max):
    """Above the plot, where it covers nothing and takes no width."""
    lines = math.ceil(len(handles) / columns_max)
    figure.legend(
        handles=handles,
        ncols=math.ceil(len(handles) / lines),
        loc="outside upper left",
        fontsize=8,
        handlelength=1.8,
        columnspacing=1.2,
    )


def legend_of_owners(figure, palette):
    """A patch a rank while they can be told apart; beyond that the first, middle and last."""
    ranks = sorted(palette)
    if len(ranks) > RANKS_IN_LEGEND:
        ranks = [ranks[i * (len(ranks) - 1) // 7] for i in range(8)]
    handles = [
        matplotlib.patches.Patch(color=palette[rank], label=f"rank {rank}") for rank in ranks
    ]
    handles.append(
        matplotlib.patches.Patch(
            facecolor="none", edgecolor=INK, hatch="////", linewidth=0.3, alpha=0.4, label="nobody"
        )
    )
    legend(figure, handles, 8)


def thin(samples, limit=600):
    """At most `limit` samples, the highest of each stretch: a peak is never thinned away."""
    if len(samples) <= limit:
        return samples
    step = math.ceil(len(samples) / limit)
    return [max(samples[i : i + step], key=lambda s: s[1]) for i in range(0, len(samples), step)]


def stage_marks(samples):
    """(time, stage) where rank 0 began each stage."""
    marks, last = [], None
    for time_ms, _, stage in samples:
        if stage and stage != last:
            marks.append((time_ms, stage))
            last = stage
    return marks


def merged(orders):
    """All stages of several runs, each after those that it came after."""
    stages = []
    for order in orders:
        at = 0
        for stage in order:
            if stage not in stages:
                stages.insert(at, stage)
            at = stages.index(stage) + 1
    return stages


def overlay_plot(peaks_by_strategy, place, prefix):
    r"""Peaks stage by stage: the ranks' sum as lines, and the rank that held most, dashed.
    \param peaks_by_strategy {strategy: [(stage, total bytes, highest bytes)]}
    \param place report_evidence.HOST or report_evidence.DEVICE"""
    mib = 1 << 20
    stages = merged([stage for stage, *_ in peaks] for peaks in peaks_by_strategy.values())
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for color, (strategy, peaks) in zip(colors(len(peaks_by_strategy)), peaks_by_strategy.items()):
        at = [stages.index(stage) for stage, *_ in peaks]
        axes.plot(
            at,
            [total / mib for _, total, _ in peaks],
            color=color,
            marker="o",
            markersize=4,
            linewidth=1.6,
            label=f"{strategy}, all ranks",
        )
        axes.plot(
            at,
            [highest / mib for *_, highest in peaks],
            color=color,
            marker=".",
            linewidth=1,
            linestyle=(0, (4, 2)),
            label=f"{strategy}, one rank",
        )
    axes.set_xticks(range(len(stages)), stages)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.08)
    axes.set_ylabel("peak above idle, MiB" if place.idle else "peak, MiB")
    legend(figure, axes.get_lines(), 4)
    return to_svg(figure, prefix, f"{place.name} memory stage by stage, by two strategies")


def loading_plot(samples_by_strategy, place, prefix):
    r"""Over time until a rank was ready: rank 0, and the others dashed.
    \param samples_by_strategy {strategy: [(ms, bytes) of each rank]}"""
    mib = 1 << 20
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for color, (strategy, ranks) in zip(
        colors(len(samples_by_strategy)), samples_by_strategy.items()
    ):
        for number, samples in enumerate(ranks):
            others = "rank 1" if len(ranks) == 2 else "other ranks"
            axes.plot(
                [ms for ms, _ in thin(samples)],
                [held / mib for _, held in thin(samples)],
                color=color,
                linewidth=1 if number else 1.6,
                linestyle=DASHES if number else "-",
                label=f"{strategy}, {others if number else 'rank 0'}" if number < 2 else None,
            )
    axes.set_xlim(0)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
    axes.set_xlabel("ms since the first sample")
    axes.set_ylabel("above idle, MiB" if place.idle else "MiB")
    legend(figure, [line for line in axes.get_lines() if line.get_label()[0] != "_"], 4)
    return to_svg(
        figure, prefix, f"{place.name} memory until each rank was ready, by two strategies"
    )


def mark_stages(axes, samples, end):
    """A line where each stage began, and its name above the plot: one text for those so near that
    theirs would overlap."""
    texts = []
    for time_ms, stage in stage_marks(samples):
        axes.axvline(time_ms, color=INK, linewidth=0.5, alpha=0.35)
        if texts and time_ms - texts[-1][0] < end * 0.025:
            texts[-1][1].append(stage)
        else:
            texts.append((time_ms, [stage]))
    for time_ms, stages in texts:
        axes.annotate(
            shorten(", ".join(stages), 24),
            (time_ms, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            rotation=45,
            ha="left",
            va="bottom",
            rotation_mode="anchor",
            fontsize=8,
        )


def memory_plot(ranks, place, prefix):
    mib = 1 << 20
    palette = dict(zip([r["rank"] for r in ranks], colors(len(ranks))))
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    axes = figure.add_subplot()
    end = max(sample[0] for rank in ranks for sample in rank["samples"]) or 1
    for rank in ranks:
        samples = thin(rank["samples"])
        axes.plot(
            [s[0] for s in samples],
            [s[1] / mib for s in samples],
            color=palette[rank["rank"]],
            linewidth=1.3,
            label=f"rank {rank['rank']}",
        )
    handles = axes.get_lines() if len(ranks) <= RANKS_IN_LEGEND else []
    # Ranks of unequal shards have unequal bounds, often too close to label each.
    bounds = sorted({rank["bound"] for rank in ranks if rank["bound"]})
    for bound in bounds:
        own = [rank["rank"] for rank in ranks if rank["bound"] == bound]
        color = palette[own[0]] if len(own) < len(ranks) else INK
        axes.axhline(bound / mib, color=color, linewidth=1, linestyle=DASHES)
    if bounds:
        label = "bound" if len(bounds) == 1 else "bound of each rank"
        handles = [*handles, matplotlib.lines.Line2D([], [], color=INK, linewidth=1,
                                                     linestyle=DASHES, label=label)]  # fmt: skip
    axes.set_xlim(0, end)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
    mark_stages(axes, ranks[0]["samples"], end)
    axes.set_xlabel("ms since the first sample")
    axes.set_ylabel(f"{place.measured}, MiB")
    if handles:
        legend(figure, handles, 8)
    return to_svg(figure, prefix, f"{place.name} memory of each rank over time")


def nodes_plot(stages, lines, place, prefix):
    """Stage by stage, a line a node. lines: as report_held.host_lines gives them."""
    mib = 1 << 20
    palette = colors(max(color for _, _, color, _ in lines) + 1)
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for label, is_dashed, color, values in lines:
        axes.plot(
            range(len(stages)),
            [math.nan if value is None else value / mib for value in values],
            color=palette[color],
            marker="." if is_dashed else "o",
            markersize=4,
            linewidth=1 if is_dashed else 1.6,
            linestyle=DASHES if is_dashed else "-",
            label=shorten(label, 40),
        )
    step = math.ceil(len(stages) / 12)
    axes.set_xticks(range(0, len(stages), step), [shorten(each, 16) for each in stages[::step]])
    axes.tick_params(axis="x", labelrotation=30 if len(stages) > 6 else 0)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.08)
    axes.set_ylabel("MiB, all ranks of a node")
    if len(lines) <= RANKS_IN_LEGEND:
        legend(figure, axes.get_lines(), 3)
    return to_svg(figure, prefix, f"{place} memory of each node, stage by stage")
