#!/usr/bin/env python3
"""Cost of loading against ranks, tensors and bytes; `--target scaling` calls it.

Each strategy of the reference pipeline, and a bare Gloo broadcast of the same bytes, loads Llama
checkpoints of which one thing grows and the rest stays: 1 to 16 ranks, 10 to 10,000 tensors, 1 MiB
to 4 GiB. Medians of alternating rounds, files in the page cache, from opening the checkpoint to
ready. The exponent is the slope of a straight line through the logarithms, by least squares, over
all points and over the upper half of them: what a constant cost hides at the small end shows in the
difference. Writes scaling.json, scaling.svg and a table. Nothing here passes or fails. Needs torch,
safetensors and matplotlib.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import sys
from pathlib import Path

from run import MIB, STRATEGIES, LoadBench, machine, progress, warm_page_cache

CONTENDERS = ["broadcast", *(name for name, _ in STRATEGIES)]
RANKS = [1, 2, 4, 8, 16]
TENSORS = [12, 30, 102, 300, 1002, 3000, 10002]
BYTES = [MIB << shift for shift in range(0, 13, 2)]
MEMORY_SPARED = 2 << 30

# What grows, its values, and what stays.
SWEEPS = {
    "ranks": (RANKS, {"tensors": 102, "bytes": 256 * MIB}),
    "tensors": (TENSORS, {"ranks": 4, "bytes": 256 * MIB}),
    "bytes": (BYTES, {"ranks": 4, "tensors": 102}),
}
LABELS = {"ranks": "ranks", "tensors": "tensors", "bytes": "MiB of fp32"}


def llama_shapes(tensors, total_bytes):
    """A config.json and {key: shape} of nearly so many tensors and bytes.

    Nine tensors a layer, three besides. The layers have the larger part of the bytes where there
    are many; the vocabulary makes up what is lacking.
    """
    layers = max(1, (tensors - 3) // 9)
    elements = total_bytes // 4
    hidden = max(8, int(math.sqrt(elements * 0.75 / (10 * layers))) // 8 * 8)
    per_layer = 10 * hidden * hidden + 2 * hidden
    vocabulary = max(1, (elements - layers * per_layer - hidden) // (2 * hidden))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32",
        "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": vocabulary,
    }  # fmt: skip
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden),
              "lm_head.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}  # fmt: skip
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for projection in "qkvo":
            shapes[f"{at}self_attn.{projection}_proj.weight"] = (hidden, hidden)
        shapes[at + "mlp.gate_proj.weight"] = shapes[at + "mlp.up_proj.weight"] = (
            2 * hidden,
            hidden,
        )
        shapes[at + "mlp.down_proj.weight"] = (hidden, 2 * hidden)
        shapes[at + "input_layernorm.weight"] = (hidden,)
        shapes[at + "post_attention_layernorm.weight"] = (hidden,)
    return config, shapes


def make_checkpoint(directory, tensors, total_bytes):
    """Writes such a checkpoint. Its values are of no interest, but no page of it may be a hole."""
    import torch
    from safetensors.torch import save_file

    config, shapes = llama_shapes(tensors, total_bytes)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file({key: torch.full(shape, 0.5) for key, shape in shapes.items()},
              directory / "model.safetensors", metadata={"format": "pt"})  # fmt: skip
    return len(shapes), warm_page_cache(directory)


def free_memory():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 0


def needed_memory(contender, tensor_bytes, ranks):
    """Bytes of all ranks together at their peak, the page cache not counted."""
    if contender == "broadcast":
        return ranks * tensor_bytes
    return tensor_bytes * (ranks + 1 if contender == "plain" else 1)


def time_point(program, checkpoint, ranks, tensor_bytes, rounds):
    """({contender: seconds of every round}, [what was left out, and why])."""
    free, left_out, names = free_memory() - MEMORY_SPARED, [], []
    for name in CONTENDERS:
        needed = needed_memory(name, tensor_bytes, ranks)
        if needed <= free:
            names.append(name)
        else:
            left_out.append(f"{name} with {ranks} ranks and {tensor_bytes / MIB:.0f} MiB: needs "
                            f"{needed / 2**30:.1f} GiB, {free / 2**30:.1f} are free")  # fmt: skip
    seconds = {name: [] for name in names}
    bench = LoadBench(program, checkpoint, ranks)
    # The broadcast keeps its payload from its first round on: after the others, in a program of its
    # own.
    for number in range(rounds + 1):
        for name in (one for one in names if one != "broadcast"):
            seconds[name].append(bench.round(name))
        names.append(names.pop(0))
    bench.close()
    if "broadcast" in seconds:
        bench = LoadBench(program, checkpoint, ranks)
        seconds["broadcast"] = [bench.round("broadcast") for _ in range(rounds + 1)]
        bench.close()
    return {name: values[1:] for name, values in seconds.items()}, left_out


def exponent(points):
    """Slope of log(seconds) over log(x) by least squares, and its standard error."""
    xs = [math.log(x) for x, _ in points]
    ys = [math.log(y) for _, y in points]
    mean_x, mean_y = statistics.mean(xs), statistics.mean(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / spread
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, ys))
    error = math.sqrt(rest / (len(xs) - 2) / spread) if len(xs) > 2 else math.nan
    return slope, error


def sweep(what, arguments):
    """One thing grows: [{ranks, tensors, bytes, seconds}], what was left out."""
    values, fixed = SWEEPS[what]
    points, left_out, made = [], [], None
    for value in values:
        if what == "bytes" and value > arguments.bytes_max:
            left_out.append(f"{value / MIB:.0f} MiB: --bytes-max")
            continue
        asked = {**fixed, what: value}
        checkpoint = arguments.work / "scaling"
        if made is None or what != "ranks":
            made = make_checkpoint(checkpoint, asked["tensors"], asked["bytes"])
        tensors, tensor_bytes = made
        seconds, without = time_point(arguments.load_bench, checkpoint, asked["ranks"],
                                      tensor_bytes, arguments.rounds)  # fmt: skip
        left_out += without
        points.append({"ranks": asked["ranks"], "tensors": tensors, "bytes": tensor_bytes,
                       "seconds": seconds})  # fmt: skip
        shown = ", ".join(f"{name} {statistics.median(of):.3f} s" for name, of in seconds.items())
        progress(f"{what} {points[-1][what]}: {shown}")
    shutil.rmtree(arguments.work / "scaling", ignore_errors=True)
    return points, left_out


def series(points, what, name):
    scale = MIB if what == "bytes" else 1
    return [(point[what] / scale, statistics.median(point["seconds"][name]))
            for point in points if name in point["seconds"]]  # fmt: skip


def fits(points, what):
    """{contender: {all, upper: {exponent, error}}}; one rank has nothing to send and is not in a
    fit."""
    found = {}
    for name in CONTENDERS:
        line = [(x, y) for x, y in series(points, what, name) if what != "ranks" or x > 1]
        if len(line) < 3:
            continue
        upper = line[len(line) // 2 :] if len(line) > 4 else line[-3:]
        found[name] = {part: dict(zip(("exponent", "error"), exponent(of)))
                       for part, of in (("all", line), ("upper", upper))}  # fmt: skip
    return found


def draw(path, results, title):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "scaling", "font.size": 9})
    figure, axes = pyplot.subplots(1, len(results), figsize=(13, 4.2), layout="constrained")
    for axis, (what, result) in zip(axes, results.items()):
        for name in CONTENDERS:
            line = series(result["points"], what, name)
            if not line:
                continue
            fit = result["fits"].get(name)
            label = f"{name} ({fit['upper']['exponent']:+.2f})" if fit else name
            axis.loglog(*zip(*line), marker="o", markersize=3.5, label=label,
                        linestyle="--" if name == "broadcast" else "-")  # fmt: skip
        fixed = ", ".join(f"{value // MIB} MiB" if key == "bytes" else f"{value} {key}"
                          for key, value in SWEEPS[what][1].items())  # fmt: skip
        axis.set(xlabel=f"{LABELS[what]} ({fixed})", ylabel="seconds, open to ready")
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(title="exponent of the upper half", fontsize=7, title_fontsize=7)
    figure.suptitle(title, fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def table(results):
    lines = [
        "| grows | what | exponent | upper half | at the ends |",
        "| --- | --- | --- | --- | --- |",
    ]
    for what, result in results.items():
        for name, fit in result["fits"].items():
            line = series(result["points"], what, name)
            cells = [
                f"{fit[part]['exponent']:+.2f} ± {fit[part]['error']:.2f}"
                for part in ("all", "upper")
            ]
            ends = " to ".join(f"{y:.3g} s at {x:.0f}" for x, y in (line[0], line[-1]))
            lines.append(f"| {LABELS[what]} | {name} | {' | '.join(cells)} | {ends} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--load-bench", required=True, help="the built load_bench")
    parser.add_argument(
        "--work", type=Path, required=True, help="directory for checkpoints and results"
    )
    parser.add_argument("--rounds", type=int, default=5, help="kept; one more warms up")
    parser.add_argument(
        "--bytes-max",
        type=int,
        default=int(os.environ.get("SHARDPROOF_BENCH_BYTES", 4 << 30)),
        help="largest checkpoint (default 4 GiB)",
    )
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)

    facts, results = machine(), {}
    for what in SWEEPS:
        points, left_out = sweep(what, arguments)
        results[what] = {"points": points, "left_out": left_out, "fits": fits(points, what)}
    title = (
        f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, torch {facts['torch']}; "
        f"Gloo on loopback, files in the page cache, medians of {arguments.rounds} rounds"
    )
    (arguments.work / "scaling.json").write_text(
        json.dumps({"machine": facts, **results}, indent=1)
    )
    draw(arguments.work / "scaling.svg", results, title)
    print(f"{title}\n\n{table(results)}\n")
    for result in results.values():
        for line in result["left_out"]:
            print(f"left out: {line}")
    print(
        f"\nall rounds: {arguments.work / 'scaling.json'}\nplots: {arguments.work / 'scaling.svg'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
