"""A job on some ranks that says nothing of Shardproof, of which rank 1 keeps what it loaded:
attached_memory.py KEEPS

KEEPS: nothing; attribute: the loader has it; local: a variable of main has it.
"""

import sys
import tempfile

import attached_record
import torch
import torch.distributed as dist
from torch import nn

KEEPS = sys.argv[1]
WIDTH = 2048  # of two weights of 16 MiB


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Loader:
    def __init__(self):
        self.kept = None

    def load_into(self, model, path):
        full = torch.load(path)
        model.load_state_dict(full)
        if KEEPS == "attribute" and dist.get_rank() == 1:
            self.kept = full
        return full if KEEPS == "local" and dist.get_rank() == 1 else None


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(Net().state_dict(), f"{folder}/state.pt")
        model, loader = Net(), Loader()
        everything = loader.load_into(model, f"{folder}/state.pt")
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(2):
        loss = model(torch.randn(4, WIDTH)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    attached_record.record(model, optimizer, losses)
    assert (everything is not None) == (KEEPS == "local" and dist.get_rank() == 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
