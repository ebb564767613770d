#!/usr/bin/env python3
"""audit, compare and seal beside a plain read of the same files; `--target files` calls it.

The same fp32 tensors as a DCP directory of four ranks cut along dim 0, as one cut along dim 1, as
safetensors and as a file of torch.save; in memory (tmpfs, the binding figure) and on the disk,
there with the page cache emptied of the files before each. The plain read takes the same files with
as many threads as there are cores, 4 MiB at a time, and does nothing with them; its process is
started already, that of the command is in its figure. Medians of rounds in turn, after one that
warms up.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

RANKS = 4
TENSORS = 16
LEAST = 0.7  # of the plain read's speed; 0.6 with a map


def save(rank, out, dim, total_bytes):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.FileStore(f"{out}.store"), rank=rank, world_size=RANKS
    )
    mesh = init_device_mesh("cpu", (RANKS,))
    rows = total_bytes // (TENSORS * 4 * 4096) // RANKS * RANKS
    shape = [rows, 4096]
    shape[dim] //= RANKS
    draw = torch.Generator().manual_seed(rank)
    state = {f"layers.{i}.weight": DTensor.from_local(
                 torch.randn(shape, generator=draw), mesh, [Shard(dim)])
             for i in range(TENSORS)}  # fmt: skip
    dcp.save(state, checkpoint_id=out)
    whole = {name: tensor.full_tensor() for name, tensor in state.items()}
    if rank == 0 and dim == 0:
        from safetensors.torch import save_file

        save_file(whole, f"{out}.safetensors")
        torch.save(whole, f"{out}.pt")
        save_file({"layers": torch.stack(list(whole.values()))}, f"{out}-stacked.safetensors")
    dist.destroy_process_group()


def make(folder, total_bytes):
    """\\returns {name: path}."""
    import torch.multiprocessing as mp

    for dim in (0, 1):
        mp.spawn(save, (str(folder / f"dim{dim}"), dim, total_bytes), nprocs=RANKS)
    return {"DCP, Shard(0)": folder / "dim0", "DCP, Shard(1)": folder / "dim1",
            "safetensors": folder / "dim0.safetensors",
            "torch.save": folder / "dim0.pt"}  # fmt: skip


def files_of(paths):
    return [
        file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
    ]


def forget(files):
    """Empties the page cache of them: of no effect on tmpfs."""
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read_plainly(files):
    """Every thread takes pieces until there are none."""
    piece = 4 << 20
    pieces = [(file, start) for file in files for start in range(0, file.stat().st_size, piece)]
    descriptors = {file: os.open(file, os.O_RDONLY) for file in files}
    lock = threading.Lock()

    def work():
        buffer = bytearray(piece)
        while True:
            with lock:
                if not pieces:
                    return
                file, start = pieces.pop(0)
            os.preadv(descriptors[file], [buffer], start)

    threads = [threading.Thread(target=work) for _ in range(os.cpu_count())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for descriptor in descriptors.values():
        os.close(descriptor)


def seconds_of(action):
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def measure(program, words, paths, rounds):
    """\\returns the seconds of the command and of the plain read, round by round."""
    files = files_of(paths)
    command, plain = [], []
    for round_number in range(rounds + 1):
        forget(files)
        run = seconds_of(
            lambda: subprocess.run([program, *words, *paths], check=True, stdout=subprocess.DEVNULL)
        )
        forget(files)
        read = seconds_of(lambda: read_plainly(files))
        if round_number > 0:
            command.append(run)
            plain.append(read)
    return command, plain


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shardproof", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument(
        "--bytes", type=int, default=int(os.environ.get("SHARDPROOF_BENCH_BYTES", 1 << 30))
    )
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    results = []
    print("| where | what | median | plain read | ratio of speeds | bound | met? |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for where, parent in (("tmpfs", "/dev/shm"), ("disk", str(arguments.work))):
        folder = Path(tempfile.mkdtemp(prefix="shardproof-files-", dir=parent))
        try:
            paths = make(folder, arguments.bytes)
            jobs = [(f"audit {name}", ["audit"], [path]) for name, path in paths.items()]
            jobs += [("compare DCP, Shard(0) with torch.save", ["compare"],
                      [paths["DCP, Shard(0)"], paths["torch.save"]]),
                     ("compare safetensors with torch.save", ["compare"],
                      [paths["safetensors"], paths["torch.save"]]),
                     ("compare DCP, Shard(1) with itself", ["compare"],
                      [paths["DCP, Shard(1)"]] * 2),
                     ("compare safetensors with all stacked",
                      ["compare", "--map", "stack(layers.{i}.weight) -> layers"],
                      [paths["safetensors"], folder / "dim0-stacked.safetensors"])]  # fmt: skip
            for what, words, given in jobs:
                command, plain = measure(arguments.shardproof, words, given, arguments.rounds)
                ratio = statistics.median(p / c for p, c in zip(plain, command, strict=True))
                results.append({"where": where, "what": what, "seconds": command, "plain": plain})
                least = 0.6 if "--map" in words else LEAST
                bound = f">= {least}" if where == "tmpfs" else ""
                met = {True: "yes", False: "no"}[ratio >= least] if bound else ""
                print(f"| {where} | {what} | {statistics.median(command):.3f} s "
                      f"| {statistics.median(plain):.3f} s | {ratio:.2f} "
                      f"| {bound} | {met} |", flush=True)  # fmt: skip
        finally:
            shutil.rmtree(folder)
    (arguments.work / "files.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(main())
