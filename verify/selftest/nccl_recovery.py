"""A collective of one rank over NCCL, and if it fails another one of a group that is made anew:
nccl_recovery.py

Prints a line for each: what was raised, or the values. BUSY_S in the environment: so long the GPU
is busy before the first can begin, with a timeout of two seconds.
"""

import datetime
import os

import torch
import torch.distributed as dist

TIMEOUT_S = 2
CYCLES_A_SECOND = 2_000_000_000  # at most


def begin(name):
    dist.init_process_group(
        "nccl", store=dist.HashStore(), rank=0, world_size=1,
        timeout=datetime.timedelta(seconds=TIMEOUT_S),
    )  # fmt: skip


def total():
    value = torch.full((4,), 3.0, device="cuda")
    dist.all_reduce(value, async_op=True).wait()  # torch waits for no other
    torch.cuda.synchronize()
    return value.tolist()


os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # else its watchdog ends the process
torch.cuda.set_device(0)
begin("first")
torch.ones(4, device="cuda").sum().item()  # CUDA is there
if busy_s := int(os.environ.get("BUSY_S", 0)):
    total()  # makes the communicator, which waits for an idle GPU
    torch.cuda._sleep(busy_s * CYCLES_A_SECOND)
try:
    print("value", total(), flush=True)
except RuntimeError as error:
    said = " ".join(str(error).split())
    print(f"{type(error).__name__}: {said}", flush=True)
    dist.distributed_c10d._abort_process_group()
    torch.cuda.synchronize()
begin("second")
print("again", total(), flush=True)
dist.destroy_process_group()
