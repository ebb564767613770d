#!/usr/bin/env python3
"""Speed and memory beside their rivals, in one run and one table; `--target bench` calls it.

The reference pipeline by each of its strategies, the loaders of shard_rank.py that read by shard
too, a bare Gloo broadcast of the same bytes and PyTorch's FSDP2, which reads on rank 0, load one
checkpoint in turn, round after round on the same machine, files in the page cache; then the digest
is timed beside a plain sum, and `shardproof verify` measures memory. Starting programs, importing
and connecting are in no figure. Nothing here passes or fails: the last column says which bounds
were met. Needs torch, transformers and safetensors; fastsafetensors is measured if it is installed.
"""

import argparse
import functools
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MAKE_CHECKPOINT = HERE.parent.parent / "fixtures" / "checkpoints" / "make.py"

BUCKET_BYTES = 16 << 20  # the pipeline's default
BUCKET_PARTS = 4  # as the pipeline cuts it
PEAK_SLACK_BYTES = 8 << 20
MIB = 1 << 20

# Strategy, least speed as a multiple of FSDP2's.
STRATEGIES = [
    ("rank0-broadcast", 1.0),
    ("rank0-scatter", 1.8),
    ("each-reads-own", 5.0),
    ("plain", None),
]

# Loaders of shard_rank.py, the package each needs, what it is.
RIVALS = [
    ("dcp-hf", "torch", "DCP's HuggingFaceStorageReader into FSDP2's shards"),
    ("transformers", "transformers", "Transformers' from_pretrained by a tensor-parallel plan"),
    ("fastsafetensors", "fastsafetensors", "fastsafetensors: each rank its files, then a scatter"),
]
FILES = 8  # of the checkpoint that is loaded: fastsafetensors deals whole files out to ranks

# Benchmark of digest_bench, what it is, least share of the plain sum's speed.
DIGESTS = [
    ("f32", "digest with NaN/Inf count, fp32", 0.75),
    ("bf16", "digest with NaN/Inf count, bf16", 0.75),
    ("bf16_odd_element", "the same, bf16 shard at an odd element", 0.5),
    ("bf16_shard1_256", "the same, Shard(1) runs of 256 bytes", 0.3),
]


class LoadBench:
    """load_bench, or another program of such ranks."""

    def __init__(self, program, checkpoint, world, *more):
        command = [program, checkpoint, *more, f"--world={world}", f"--bucket-bytes={BUCKET_BYTES}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def round(self, what):
        self.process.stdin.write(what + "\n")
        return json.loads(answer(self.process, Path(self.process.args[0]).name))["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Fsdp:
    """The ranks of fsdp_rank.py, or of another program in this folder."""

    def __init__(self, checkpoint, world, program="fsdp_rank.py"):
        self.program = program
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment = dict(
            os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(world),
            GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1",
        )  # fmt: skip
        self.ranks = [
            subprocess.Popen(
                [sys.executable, HERE / program, checkpoint],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                env=dict(environment, RANK=str(rank)),
            )
            for rank in range(world)
        ]  # fmt: skip

    def spans(self, what):
        """What every rank answers to a round: when it began and ended, ns."""
        for rank in self.ranks:
            rank.stdin.write(what + "\n")
        return [json.loads(answer(rank, self.program)) for rank in self.ranks]

    def round(self, what="load"):
        return together(self.spans(what))

    def close(self):
        for rank in self.ranks:
            rank.stdin.close()
        for rank in self.ranks:
            rank.wait()


def together(spans, begin="begin", end="end"):
    """Seconds from the first rank's begin to the last one's end."""
    # One monotonic clock serves all processes of a machine.
    return (max(span[end] for span in spans) - min(span[begin] for span in spans)) * 1e-9


def answer(process, name):
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"run.py: {name} ended with exit code {process.wait()}; see above")
    return line


def progress(text):
    print(text, file=sys.stderr, flush=True)


def make_checkpoint(work, total_bytes, files=1):
    """In one file, or about so many."""
    checkpoint = work / (f"checkpoint-{total_bytes}" + (f"-in-{files}" if files > 1 else ""))
    if not checkpoint.exists():
        progress(f"making a checkpoint of {total_bytes} bytes")
        command = [sys.executable, MAKE_CHECKPOINT, "--preset", "bench"]
        if files > 1:
            command += ["--max-shard-size", f"{max(1, total_bytes // files // 1000)}KB"]
        subprocess.run(
            [*command, "--bytes", str(total_bytes), checkpoint], check=True, stdout=sys.stderr
        )
    return checkpoint


def warm_page_cache(checkpoint):
    """Reads the files once. \\returns the bytes of all tensors, headers not counted."""
    tensor_bytes = 0
    for path in sorted(checkpoint.glob("*.safetensors")):
        with open(path, "rb") as file:
            tensor_bytes += path.stat().st_size - 8 - int.from_bytes(file.read(8), "little")
            while file.read(16 * MIB):
                pass
    return tensor_bytes


def rivals_here():
    """Those of RIVALS whose package is installed."""
    here = [name for name, package, _ in RIVALS if importlib.util.find_spec(package)]
    for name, package, _ in RIVALS:
        if name not in here:
            progress(f"not measured: {name}, since the package {package} is not installed")
    return here


def time_loads(arguments, checkpoint):
    """Seconds of every contender, one value a round; the first round, a warm-up, is not kept."""
    bench = LoadBench(arguments.load_bench, checkpoint, arguments.world)
    fsdp = Fsdp(checkpoint, arguments.world)
    by_shard = Fsdp(checkpoint, arguments.world, "shard_rank.py")
    contenders = {
        "broadcast": lambda: bench.round("broadcast"),
        "chunked": lambda: bench.round("chunked"),
        **{name: functools.partial(bench.round, name) for name, _ in STRATEGIES},
        **{name: functools.partial(by_shard.round, name) for name in rivals_here()},
        "fsdp2": fsdp.round,
    }
    seconds = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(arguments.rounds + 1):
        for name in names:
            seconds[name].append(contenders[name]())
        shown = ", ".join(f"{name} {seconds[name][-1]:.2f} s" for name in contenders)
        progress(f"round {number} of {arguments.rounds}: {shown}")
        names.append(names.pop(0))  # so that no one always follows the same other
    bench.close()
    fsdp.close()
    by_shard.close()
    return {name: values[1:] for name, values in seconds.items()}


def paired_ratio(above, below):
    """Median over rounds: what slows a whole round down slows both sides."""
    return statistics.median(a / b for a, b in zip(above, below))


def load_rows(seconds, tensor_bytes):
    bare, load = seconds["broadcast"], seconds["rank0-broadcast"]

    def speed(name):
        median = statistics.median(seconds[name])
        return f"{median:.2f} s, {tensor_bytes / median / 1e9:.2f} GB/s"

    chunk = BUCKET_BYTES // BUCKET_PARTS // MIB
    to_bare = paired_ratio(bare, load)
    rows = [
        ("(a) bare Gloo broadcast, one tensor", speed("broadcast"), "", "", None),
        (f"(a') bare Gloo broadcast, {chunk} MiB pieces, {BUCKET_PARTS} under way",
         speed("chunked"), f"{paired_ratio(bare, seconds['chunked']):.2f} of (a)", "", None),
        ("(b) rank0-broadcast, open to ready", "", f"{to_bare:.2f} of (a)", ">= 0.90",
         to_bare >= 0.9),
        ("(b) against (a')", "", f"{paired_ratio(seconds['chunked'], load):.2f} of (a')", "", None),
        *rival_rows(seconds, speed),
        ("(c) FSDP2, rank 0 reads and broadcasts, open to loaded", speed("fsdp2"),
         f"{paired_ratio(bare, seconds['fsdp2']):.2f} of (a)", "", None),
    ]  # fmt: skip
    for name, least in STRATEGIES:
        times = paired_ratio(seconds["fsdp2"], seconds[name])
        bound, met = (f">= {least}x", times >= least) if least else ("", None)
        rows.append((f"{name}, open to ready", speed(name), f"{times:.2f}x (c)", bound, met))
    return rows


def rival_rows(seconds, speed):
    """Those that read by shard, and each-reads-own against each of them."""
    rows = []
    for name, _, what in RIVALS:
        if name not in seconds:
            rows.append((what, "not installed", "", "", None))
            continue
        times = paired_ratio(seconds[name], seconds["each-reads-own"])
        rows.append((what, speed(name), "", "", None))
        rows.append((f"each-reads-own against {name}", "", f"{times:.2f}x {name}", "", None))
    return rows


def run_digest_bench(program, total_bytes):
    """{benchmark: {"gb_per_s", "ratio"}} of the kernel in use, and its name."""

    def run(filter_, buffer_bytes):
        environment = dict(os.environ, SHARDPROOF_BENCH_BYTES=str(buffer_bytes))
        return subprocess.run(
            [program, f"--benchmark_filter={filter_}"],
            env=environment, check=True, text=True, stdout=subprocess.PIPE,
        ).stdout  # fmt: skip

    kernel = re.search(r"kernel in use: (\w+)", run("^coverage/", MIB))[1]
    names = "|".join(name for name, _, _ in DIGESTS)
    progress("timing the digest")
    text = run(f"^(plain_sum|{kernel}/({names}))/", total_bytes)
    found = re.findall(r"^(\S+)\s+([\d.]+)\s+([\d.]+)$", text, re.M)
    return kernel, {
        name.removeprefix(kernel + "/"): {"gb_per_s": float(speed), "ratio": float(ratio)}
        for name, speed, ratio in found
    }


def digest_rows(digests):
    rows = [("plain vectorised sum", f"{digests['plain_sum']['gb_per_s']:.1f} GB/s", "", "", None)]
    for name, what, bound in DIGESTS:
        speed, ratio = digests[name]["gb_per_s"], digests[name]["ratio"]
        rows.append(
            (
                what,
                f"{speed:.1f} GB/s",
                f"{ratio:.2f} of the sum",
                f">= {bound:.2f}",
                ratio >= bound,
            )
        )
    return rows


def run_probe_bench(arguments):
    """Seconds of reading, observing and checking one process's tensors, one value a round."""
    progress("timing the Python probe")
    environment = dict(os.environ, SHARDPROOF_DIGEST_OP=str(arguments.digest_op))
    text = subprocess.run(
        [sys.executable, HERE / "probe_bench.py", "--bytes", str(arguments.bytes), "--rounds",
         str(arguments.rounds)],
        env=environment, check=True, text=True, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    return json.loads(text)


def probe_rows(seconds, total_bytes):
    read = statistics.median(seconds["read"])
    rows = [("reading all tensors once (torch.sum)",
             f"{read:.2f} s, {total_bytes / read / 1e9:.2f} GB/s", "", "", None)]  # fmt: skip
    for name, what in (
        ("observe", "observe, with blocks, to files"),
        ("check", "shardproof.check"),
    ):
        ratio = paired_ratio(seconds[name], seconds["read"])
        rows.append((what, f"{statistics.median(seconds[name]):.2f} s",
                     f"{ratio:.2f} of reading", "<= 1.30", ratio <= 1.3))  # fmt: skip
    return rows


def measure_memory(program, checkpoint, world, work, strategy):
    """The memory summary of every rank, from the evidence of an unpoisoned run."""
    progress(f"measuring memory of {strategy}")
    report = work / "report"
    shutil.rmtree(report, ignore_errors=True)
    subprocess.run(
        [program, "verify", "--checkpoint", checkpoint, "--world", str(world), "--bucket-bytes",
         str(BUCKET_BYTES), "--property", "memory.host_peak", "--strategy", strategy, "--report",
         report],
        stdout=sys.stderr,
    )  # fmt: skip
    summaries = []
    for rank in range(world):
        measures = report / "evidence" / "memory" / f"rank_{rank}.measures.jsonl"
        records = [json.loads(line) for line in measures.read_text().splitlines()]
        summaries += [r for r in records if r["record"] == "memory_summary"]
    shutil.rmtree(report)  # it holds saved checkpoints
    if len(summaries) != world:
        raise SystemExit(f"run.py: {len(summaries)} of {world} ranks left a memory summary")
    return summaries


def memory_rows(strategy, summaries):
    rows = []
    for rank, summary in enumerate(summaries):
        peak = summary["peak_bytes"] - summary["idle_bytes"]
        own = summary["own_shard_bytes"]
        bound = own + BUCKET_BYTES + PEAK_SLACK_BYTES
        rows.append((f"host peak above idle, {strategy}, rank {rank}", f"{peak / MIB:.1f} MiB",
                     f"own shards + {(peak - own) / MIB:.1f} MiB",
                     f"<= own shards + {(bound - own) / MIB:.0f} MiB", peak <= bound))  # fmt: skip
    return rows


def machine():
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    version = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__)"],
        check=True, text=True, stdout=subprocess.PIPE,
    ).stdout.strip()  # fmt: skip
    return {
        "cpu": model, "cores": os.cpu_count(), "kernel": platform.release(), "torch": version,
        "load_average_1min": os.getloadavg()[0],
    }  # fmt: skip


def table(rows):
    verdict = {True: "yes", False: "no", None: ""}
    lines = ["| what | median | ratio | bound | met? |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row[:4])} | {verdict[row[4]]} |" for row in rows]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for program in ("load-bench", "digest-bench", "digest-op", "shardproof"):
        parser.add_argument(f"--{program}", required=True, help=f"the built {program}")
    parser.add_argument("--work", type=Path, required=True, help="directory for the checkpoint")
    parser.add_argument(
        "--bytes", type=int, default=int(os.environ.get("SHARDPROOF_BENCH_BYTES", 1 << 30)),
        help="of the checkpoint and the digest's buffer (default 1 GiB)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=7, help="kept; one more warms up")
    parser.add_argument("--world", type=int, default=4, help="ranks")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)

    facts = machine()
    checkpoint = make_checkpoint(arguments.work, arguments.bytes, FILES)
    tensor_bytes = warm_page_cache(checkpoint)
    seconds = time_loads(arguments, checkpoint)
    kernel, digests = run_digest_bench(arguments.digest_bench, arguments.bytes)
    probe = run_probe_bench(arguments)
    memory = {
        strategy: measure_memory(arguments.shardproof, checkpoint, arguments.world, arguments.work,
                                 strategy)
        for strategy, least in STRATEGIES if least
    }  # fmt: skip

    rows = load_rows(seconds, tensor_bytes) + digest_rows(digests)
    rows += probe_rows(probe, arguments.bytes)
    for strategy, summaries in memory.items():
        rows += memory_rows(strategy, summaries)
    out = arguments.work / "bench.json"
    out.write_text(
        json.dumps(
            {
                "machine": facts, "tensor_bytes": tensor_bytes, "world": arguments.world,
                "bucket_bytes": BUCKET_BYTES, "load_seconds": seconds, "digest_kernel": kernel,
                "digest": digests, "probe_seconds": probe, "memory": memory,
                "rows": [dict(zip(("what", "median", "ratio", "bound", "met"), r)) for r in rows],
            },
            indent=1,
        )
    )  # fmt: skip
    print(
        f"{facts['cpu']}, {facts['cores']} cores (load {facts['load_average_1min']:.1f} at the "
        f"start), Linux {facts['kernel']}, torch {facts['torch']}, digest kernel {kernel}; "
        f"{tensor_bytes} bytes of fp32 in about {FILES} files, {arguments.world} Gloo ranks on "
        f"loopback, files in the page cache; medians of {arguments.rounds} alternating rounds, "
        "ratios round by round\n"
    )
    print(table(rows))
    print(f"\nall rounds: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
