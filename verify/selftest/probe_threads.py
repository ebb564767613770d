"""Which of Gloo's threads there are after a check, and after the process groups are destroyed."""

import json
from pathlib import Path

import shardproof
import torch.distributed as dist
from torch import nn


def of_gloo():
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return sorted(name for name in names if "gloo" in name)


def main():
    dist.init_process_group("gloo")
    model = nn.Linear(3, 3)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    before = of_gloo()
    for _ in range(2):
        shardproof.check(model)
    checked = of_gloo()
    is_first = dist.get_rank() == 0
    dist.destroy_process_group()
    if is_first:
        print(json.dumps({"before": before, "checked": checked, "destroyed": of_gloo()}))


if __name__ == "__main__":
    main()
