"""The time that the Python probe takes beside that of reading the same memory once, round after
round in one process with one thread: prints
{"read": [seconds, ...], "observe": [...], "check": [...]}.

Read: the sum of each tensor, which touches every byte once. Observe: what a subject's `observe`
does at a stage, digests with blocks, written to evidence files. Check: shardproof.check without
other ranks.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import shardproof  # noqa: E402

TENSORS = 16


def model_of(total_bytes, device):
    model = nn.Module()
    for number in range(TENSORS):
        values = torch.rand(total_bytes // TENSORS // 4 // 1024, 1024, device=device)
        model.register_parameter(f"weight_{number}", nn.Parameter(values))
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = model_of(arguments.bytes, arguments.device)
    contenders = {
        "read": lambda step: [tensor.detach().sum() for tensor in model.parameters()],
        "observe": lambda step: shardproof.observe("stepped", model=model, step=step),
        "check": lambda step: shardproof.check(model),
    }
    seconds = {name: [] for name in contenders}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHARDPROOF_EVIDENCE"] = folder
        names = list(contenders)
        for step in range(1, arguments.rounds + 2):
            for name in names:
                begin = time.monotonic()
                contenders[name](step)
                if arguments.device != "cpu":
                    torch.accelerator.synchronize()
                seconds[name].append(time.monotonic() - begin)
            names.append(names.pop(0))  # so that no one always follows the same other
    print(json.dumps({name: values[1:] for name, values in seconds.items()}))


if __name__ == "__main__":
    main()
