#!/usr/bin/env python3
"""A training job's state saved, restored and stepped, beside PyTorch and plain writes;
`--target training`.

The state of a model after one step of AdamW (parameters, both moments and counters, fp32) over
ranks of FSDP: the reference pipeline saves and loads it as DCP, PyTorch by
torch.distributed.checkpoint, and as many processes write and read as many bytes with nothing else
done. In memory (tmpfs, the binding figure) and on the disk; there all sync what they write, and the
page cache is emptied of the files before they are read. Then one process steps parameters by AdamW.
Contenders alternate, round after round; starting programs, connecting and building models are in no
figure. What is loaded is compared with what was saved in every round. Nothing here passes or fails:
the last column says which bounds were met. Needs torch, transformers and safetensors.
"""

import argparse
import functools
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from files import files_of, forget
from run import (
    BUCKET_BYTES,
    MIB,
    Fsdp,
    LoadBench,
    machine,
    make_checkpoint,
    paired_ratio,
    progress,
    table,
    together,
    warm_page_cache,
)  # fmt: skip

STATE_OF_PARAMETER = 3  # itself and two moments
OF_TORCH = 1.5  # least speed as a multiple of PyTorch's
OF_PLAIN = 0.8  # least share of a plain write's or read's speed
STRATEGIES = ["each-reads-own", "rank0-scatter", "rank0-broadcast", "plain"]


def alternate(contenders, rounds, what, before=lambda: None):
    """Seconds of every contender, one value a round; the first round, a warm-up, is not kept."""
    seconds = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds + 1):
        for name in names:
            before()
            seconds[name].append(contenders[name]())
        shown = ", ".join(f"{name} {seconds[name][-1]:.2f} s" for name in contenders)
        progress(f"{what}, round {number} of {rounds}: {shown}")
        names.append(names.pop(0))  # so that no one always follows the same other
    return {name: values[1:] for name, values in seconds.items()}


class Savers:
    """Those that save into one directory and load from it."""

    def __init__(self, arguments, checkpoint, directory):
        self.directory = directory
        self.pipeline = LoadBench(arguments.train_bench, checkpoint, arguments.world, directory)
        self.torch = Fsdp(checkpoint, arguments.world, "dcp_rank.py")
        self.alone = {
            "save": [],
            "load": [],
        }  # torch.distributed.checkpoint without its state dicts

    def remove(self, prefix):
        for path in self.directory.glob(prefix + "*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def by_torch(self, what):
        spans = self.torch.spans(f"{what} {self.directory / 'torch'}")
        self.alone[what].append(together(spans, "inner_begin", "inner_end"))
        return together(spans)

    def save(self, name):
        """Nothing is replaced: what was saved before is gone."""
        self.remove({"write": "plain-"}.get(name, name))
        if name == "torch":
            return self.by_torch("save")
        return self.pipeline.round({"pipeline": "save"}.get(name, name))

    def load(self, name):
        forget(files_of([self.directory]))
        return self.by_torch("load") if name == "torch" else self.pipeline.round(name)

    def close(self):
        self.pipeline.close()
        self.torch.close()


def time_state(arguments, checkpoint, directory, where):
    """{"save": {contender: seconds}, "load": {contender: seconds}}"""
    savers = Savers(arguments, checkpoint, directory)
    save = alternate({name: functools.partial(savers.save, name)
                      for name in ("pipeline", "torch", "write")},
                     arguments.rounds, f"saving on {where}")  # fmt: skip
    load = alternate({name: functools.partial(savers.load, name)
                      for name in (*STRATEGIES, "torch", "read")},
                     arguments.rounds, f"loading from {where}")  # fmt: skip
    save["torch alone"], load["torch alone"] = (savers.alone[what][1:] for what in ("save", "load"))
    savers.close()
    return {"save": save, "load": load}


def time_steps(arguments, checkpoint):
    bench = LoadBench(arguments.train_bench, checkpoint, 1, arguments.work)
    torch = Fsdp(checkpoint, 1, "dcp_rank.py")
    contenders = {name: functools.partial(bench.round, name)
                  for name in ("step", "offload", "gradients", "arithmetic")}  # fmt: skip
    contenders |= {name: functools.partial(torch.round, name) for name in ("foreach", "fused")}
    seconds = alternate(contenders, arguments.rounds, "stepping")
    bench.close()
    torch.close()
    return seconds


def state_rows(where, what, seconds, total_bytes):
    """\\returns rows of `what`, "save" or "load"."""
    plain_name = {"save": "write", "load": "read"}[what]
    plain, torch = seconds[plain_name], seconds["torch"]
    binding = where == "tmpfs"

    def speed(name):
        median = statistics.median(seconds[name])
        return f"{median:.3f} s, {total_bytes / median / 1e9:.2f} GB/s"

    def against(name, other, other_name, bound):
        times = paired_ratio(other, seconds[name])
        return (f"{where}: {what}, {name}, of {other_name}", "", f"{times:.2f}x",
                f">= {bound}x" if bound and binding else "",
                times >= bound if bound and binding else None)  # fmt: skip

    rows = [(f"{where}: plain {plain_name}", speed(plain_name), "", "", None),
            (f"{where}: torch.distributed.checkpoint.{what} with its state dicts", speed("torch"),
             f"{paired_ratio(plain, torch):.2f}x plain", "", None),
            (f"{where}: the same without them", speed("torch alone"), "", "", None)]  # fmt: skip
    ours = ["pipeline"] if what == "save" else STRATEGIES
    for name in ours:
        bound = name == ours[0]
        rows.append((f"{where}: {what}, {name}", speed(name), "", "", None))
        rows.append(against(name, torch, "torch", OF_TORCH if bound else None))
        rows.append(against(name, plain, f"the plain {plain_name}", OF_PLAIN if bound else None))
    return rows


def step_rows(seconds):
    foreach, gradients = seconds["foreach"], seconds["gradients"]

    def row(what, values, bound=None):
        times = paired_ratio(foreach, values)
        return (what, f"{statistics.median(values):.3f} s", f"{times:.2f}x foreach",
                f">= {bound}x" if bound else "", times >= bound if bound else None)  # fmt: skip

    def without(name):
        return [whole - made for whole, made in zip(seconds[name], gradients, strict=True)]

    return [
        row("step: torch.optim.AdamW(foreach=True), gradients ready", foreach),
        row("step: torch.optim.AdamW(fused=True), gradients ready", seconds["fused"]),
        row("step: ours, the arithmetic alone, gradients ready", seconds["arithmetic"]),
        row("step: ours, making the gradients alone", gradients),
        row("step: ours, on the device, whole", seconds["step"]),
        row("step: ours, on the device, without gradients", without("step"), 1),
        row("step: ours, offloaded with overlap, whole", seconds["offload"]),
        row("step: ours, offloaded with overlap, without gradients", without("offload"), 1),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--train-bench", required=True, help="the built train_bench")
    parser.add_argument(
        "--work", type=Path, required=True, help="directory for checkpoints and results"
    )
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()),
                        help="directory on a disk (default: that of temporary files)")  # fmt: skip
    parser.add_argument(
        "--bytes", type=int, default=int(os.environ.get("SHARDPROOF_BENCH_BYTES", 1 << 30)),
        help="of the whole state (default 1 GiB); a step is of parameters of a quarter of it",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=7, help="kept; one more warms up")
    parser.add_argument("--world", type=int, default=4, help="ranks")
    parser.add_argument("--only", choices=("tmpfs", "disk", "step"), action="append", help="of it")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    only = arguments.only or ["tmpfs", "disk", "step"]

    facts = machine()
    rows, seconds = [], {}
    for where, parent in (("tmpfs", "/dev/shm"), ("disk", arguments.disk)):
        if where not in only:
            continue
        checkpoint = make_checkpoint(arguments.work, arguments.bytes // STATE_OF_PARAMETER)
        state_bytes = STATE_OF_PARAMETER * warm_page_cache(checkpoint)
        directory = Path(tempfile.mkdtemp(prefix="shardproof-training-", dir=parent))
        try:
            seconds[where] = time_state(arguments, checkpoint, directory, where)
        finally:
            shutil.rmtree(directory)
        for what in ("save", "load"):
            rows += state_rows(where, what, seconds[where][what], state_bytes)
    if "step" in only:
        seconds["step"] = time_steps(
            arguments, make_checkpoint(arguments.work, arguments.bytes // 4)
        )
        rows += step_rows(seconds["step"])

    facts["load_average_1min_at_end"] = os.getloadavg()[0]
    out = arguments.work / "training.json"
    out.write_text(
        json.dumps(
            {
                "machine": facts, "bytes": arguments.bytes, "world": arguments.world,
                "bucket_bytes": BUCKET_BYTES, "seconds": seconds,
                "rows": [dict(zip(("what", "median", "ratio", "bound", "met"), r)) for r in rows],
            },
            indent=1,
        )
    )  # fmt: skip
    print(
        f"{facts['cpu']}, {facts['cores']} cores (load {facts['load_average_1min']:.1f} at the "
        f"start, {facts['load_average_1min_at_end']:.1f} at the end), Linux {facts['kernel']}, "
        f"torch {facts['torch']}; {arguments.bytes / MIB:.0f} MiB of state (fp32 parameters, "
        f"exp_avg, exp_avg_sq, counters), {arguments.world} Gloo ranks on loopback; steps: one "
        f"process, one thread, parameters of {arguments.bytes / 4 / MIB:.0f} MiB; medians of "
        f"{arguments.rounds} alternating rounds, ratios of speed round by round\n"
    )
    print(table(rows))
    print(
        "\nThe pipeline computes its gradients within a step. 'Without gradients' is the whole "
        "step less the time that making them alone takes, in the same round, from values in the "
        "cache; 'torch' and 'arithmetic' read them from memory. The bound is for "
        "'without gradients'."
    )
    print(f"\nall rounds: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
