"""What `seal` and `check` of a sync take beside a plain sum of the same weights, in turns with it,
in one process with one thread. Run by hand:
    PYTHONPATH=verify/python python verify/bench/sync_bench.py

Each check is given a manifest that it has not seen; one of them has a map and an engine that joins
four tensors in one. Prints, for each number of tensors and dtype, medians of the ratios to the sum,
and the first call of each, which describes the tensors.
"""

import argparse
import json
import statistics
import time

import shardproof
import torch
from torch import nn

JOINED, COLUMNS = 4, 1024


def held(values):
    model = nn.Module()
    for number, value in enumerate(values):
        model.register_parameter(f"w{number}", nn.Parameter(value, requires_grad=False))
    return model


def contenders_of(trained, count):
    joined = list(zip(*[iter(trained.parameters())] * JOINED, strict=True))
    engine = held(torch.cat(each) for each in joined)
    rules = [
        f"cat({', '.join(f'w{JOINED * at + i}' for i in range(JOINED))}) -> w{at}"
        for at in range(len(joined))
    ]
    text = shardproof.seal(trained.state_dict()).to_json()
    new = [shardproof.Manifest.from_json(text) for _ in range(2 * count)]
    return {
        "sum": lambda: [each.sum() for each in trained.parameters()],
        "seal": lambda: shardproof.seal(trained),
        "check": lambda: shardproof.check(trained, against=new.pop()),
        "sum joined": lambda: [each.sum() for each in engine.parameters()],
        "check joined": lambda: shardproof.check(engine, against=new.pop(), map=rules),
    }


def measured(total, tensors, dtype, rounds):
    rows = total // tensors // COLUMNS // dtype.itemsize
    trained = held(torch.rand(rows, COLUMNS).to(dtype) for _ in range(tensors))
    contenders = contenders_of(trained, rounds + 2)
    seconds = {name: [] for name in contenders}
    names = list(contenders)
    for _ in range(rounds + 2):  # the first one describes, and the second one is no more than warm
        for name in names:
            begin = time.perf_counter()
            contenders[name]()
            seconds[name].append(time.perf_counter() - begin)
        names.append(names.pop(0))  # so that no one always follows the same other
    said = {"tensors": tensors, "dtype": str(dtype).removeprefix("torch.")}
    said["sum GB/s"] = round(total / statistics.median(seconds["sum"][2:]) / 1e9, 1)
    for name in ("seal", "check", "check joined"):
        sums = seconds["sum joined" if "joined" in name else "sum"][2:]
        ratios = [own / plain for own, plain in zip(seconds[name][2:], sums, strict=True)]
        said[name] = round(statistics.median(ratios), 2)
        said[f"first {name}"] = round(seconds[name][0] / statistics.median(sums), 2)
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=1 << 29)
    parser.add_argument("--tensors", default="64,400,2000")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for tensors in map(int, arguments.tensors.split(",")):
        for dtype in (torch.bfloat16, torch.float32):
            print(
                json.dumps(measured(arguments.bytes, tensors, dtype, arguments.rounds)), flush=True
            )


if __name__ == "__main__":
    main()
