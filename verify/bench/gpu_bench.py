"""Digests on a GPU beside what the same GPU copies and sums: python gpu_bench.py --out FILE

Prints a table, and writes it with the GPU's name to FILE.md, its figures to FILE.json. Needs the op
with the kernel (SHARDPROOF_DIGEST_OP) and the package in PYTHONPATH. Exit code 0 whatever the
figures are; 1 if one could not be had.
"""

import argparse
import json
import os
import socket
import statistics
import sys
import time
import traceback

import shardproof
import torch
import torch.distributed as dist
from shardproof._digests import _digest, _gpu, _together
from shardproof._holdings._layout import Run, local_runs

GIB = 1 << 30
BF16 = 2  # as sp_float_format
HELD_CYCLES = 400_000  # some 200 us, more than a call needs on the host


def seconds_on_gpu(work, rounds=20, is_held=False):
    """Median of so many rounds, by the GPU's own clock. is_held: the GPU is kept busy meanwhile, so
    that what the host does before it launches anything is not in it."""
    for _ in range(3):
        work()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if is_held:
            torch.cuda._sleep(HELD_CYCLES)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def seconds(work, rounds=5):
    """Median of so many rounds, from the call until its results are on the host."""
    work()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def traffic_of_a_copy(data):
    """Bytes read and written a second."""
    other = torch.empty_like(data)
    return 2 * data.nbytes / seconds_on_gpu(lambda: other.copy_(data), is_held=True)


def one_large_tensor(total):
    """Digests of `total` bytes against the traffic of a copy: bytes read and bytes written."""
    data = torch.empty(total // 4, dtype=torch.int32, device="cuda").random_()
    traffic = traffic_of_a_copy(data)
    data = data.view(torch.uint8)
    data &= 0x3F  # no NaN and no Inf in any format
    rows = [("copy on the device, read and written", f"{traffic / 1e9:.0f} GB/s", "", "")]
    figures = {"copy": traffic, "digest": {}}
    row = 4096 * 3
    shapes = {
        "bf16, whole": (data.view(torch.bfloat16), [Run(0, total // 2)]),
        "fp32, whole": (data.view(torch.float32), [Run(0, total // 4)]),
        "fp8, whole": (data.view(torch.float8_e4m3fn), [Run(0, total)]),
        "int8, whole": (data.view(torch.int8), [Run(0, total)]),
        "bf16, rows of 12 KiB of 48": (
            data.view(torch.bfloat16)[: total // row * row // 2],
            [Run(0, row // 2, total // row, 2 * row, 0, row // 2)],
        ),
        "bf16, rows of 512 bytes of 2 KiB": (
            data.view(torch.bfloat16), [Run(0, 256, total // 512, 1024, 0, 256)],
        ),
        "int8, from an odd address": (data.view(torch.int8)[1:], [Run(0, total - 1)]),
    }  # fmt: skip
    for name, (local, runs) in shapes.items():
        number = _digest.FLOAT_FORMATS.get(local.dtype, 0)

        def work(local=local, runs=runs, number=number):
            _together.start([local], [runs], [number])

        speed = local.nbytes / seconds_on_gpu(work, is_held=True)
        ratio = speed / traffic
        figures["digest"][name] = {"bytes_per_s": speed, "ratio": ratio}
        goal = ">= 0.85" if name.endswith("whole") else ""
        rows.append(
            (f"digest of {total / GIB:g} GiB: {name}", f"{speed / 1e9:.0f} GB/s",
             f"{ratio:.2f} of the copy's traffic", goal)
        )  # fmt: skip
        if name == "bf16, whole":
            lone = local.nbytes / seconds_on_gpu(work)
            figures["lone_call"] = lone
            rows.append(
                ("the same with the host's part of the call, on an idle GPU",
                 f"{lone / 1e9:.0f} GB/s", f"{lone / traffic:.2f} of the copy's traffic", "")
            )  # fmt: skip
    flat = data.view(torch.float32)
    speed = total / seconds_on_gpu(lambda: flat.sum(), is_held=True)
    figures["sum"] = speed
    rows.append(("torch.sum of it, fp32", f"{speed / 1e9:.0f} GB/s",
                 f"{speed / traffic:.2f} of the copy's traffic", ""))  # fmt: skip
    return rows, figures


def many_small_tensors(count):
    """From the call until all is on the host; of 4 KiB each."""
    tensors = [torch.randn(2048, device="cuda").bfloat16() for _ in range(count)]
    held = [(tensor, local_runs(tensor.shape)) for tensor in tensors]
    by_sum = seconds(lambda: torch.stack([tensor.sum() for tensor in tensors]).tolist())
    sums_alone = seconds(lambda: [tensor.sum() for tensor in tensors])
    by_digest = seconds(lambda: _together.digest_all(held))
    runs, formats = [runs for _, runs in held], [BF16] * count
    on_gpu = seconds_on_gpu(lambda: _together.start(tensors, runs, formats), 5)
    figures = {"sum": sums_alone, "sum_and_stack": by_sum, "digest": by_digest, "start": on_gpu}
    rows = [
        (f"torch.sum of each of {count} tensors", f"{sums_alone * 1e3:.1f} ms", "", ""),
        ("their digests, NaN, Inf and coverage", f"{by_digest * 1e3:.1f} ms",
         f"{by_digest / sums_alone:.2f} of the sums", "<= 1.30"),
        ("of that, until all launches are done", f"{on_gpu * 1e3:.1f} ms", "", ""),
    ]  # fmt: skip
    return rows, figures


def check_of_a_model(total):
    """`shardproof.check` in a group of one rank over NCCL: by the kernel, and through the host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    dist.init_process_group("nccl", init_method=address, rank=0, world_size=1)
    try:
        model = torch.nn.ParameterList(
            torch.nn.Parameter(torch.randn(4096, 8192, device="cuda", dtype=torch.bfloat16))
            for _ in range(total // (4096 * 8192 * 2))
        )
        parameters = list(model)
        with torch.no_grad():
            read = seconds(lambda: [p.sum() for p in parameters])
            by_kernel = seconds(lambda: shardproof.check(model))
            kept, _digest.is_on_gpu = _digest.is_on_gpu, lambda local: False
            try:
                by_host = seconds(lambda: shardproof.check(model), 1)
            finally:
                _digest.is_on_gpu = kept
    finally:
        dist.destroy_process_group()
    name = f"shardproof.check of {total / GIB:g} GiB"
    rows = [
        ("torch.sum of each of the model's tensors", f"{read * 1e3:.1f} ms", "", ""),
        (f"{name}, through the host", f"{by_host * 1e3:.0f} ms", "", ""),
        (f"{name}, by the kernel", f"{by_kernel * 1e3:.1f} ms",
         f"{by_host / by_kernel:.0f} times as fast, {by_kernel / read:.2f} of the sums", ""),
    ]  # fmt: skip
    return rows, {"read": read, "host": by_host, "kernel": by_kernel}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="without its ending")
    parser.add_argument("--only", choices=["large", "small", "check"], help="one of the parts")
    parser.add_argument("--bytes", type=int, default=GIB, help="of the large tensor")
    parser.add_argument("--tensors", type=int, default=10_000)
    parser.add_argument("--model-bytes", type=int, default=4 * GIB)
    arguments = parser.parse_args()
    if not (torch.cuda.is_available() and _digest.has_op() and _gpu._has_kernel()):
        sys.exit("gpu_bench.py: there is no GPU, or the op was built without the kernel")
    rows, figures, failed = [], {}, []
    for name, part, size in (
        ("large", one_large_tensor, arguments.bytes),
        ("small", many_small_tensors, arguments.tensors),
        ("check", check_of_a_model, arguments.model_bytes),
    ):
        if arguments.only not in (None, name):
            continue
        try:
            more, figures[part.__name__] = part(size)
            rows += more
        except Exception:
            traceback.print_exc()
            failed.append(part.__name__)
        torch.cuda.empty_cache()
    properties = torch.cuda.get_device_properties(0)
    figures["gpu"] = {
        "name": properties.name,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    lines = [f"{properties.name}, torch {torch.__version__}, {os.cpu_count()} CPU cores", "",
             "| what | measured | beside | goal |", "| --- | --- | --- | --- |"]  # fmt: skip
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += [f"{part}: not measured, it failed" for part in failed]
    text = "\n".join(lines) + "\n"
    print(text, flush=True)
    with open(f"{arguments.out}.md", "w", encoding="utf-8") as file:
        file.write(text)
    with open(f"{arguments.out}.json", "w", encoding="utf-8") as file:
        json.dump(figures, file, indent=2)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
