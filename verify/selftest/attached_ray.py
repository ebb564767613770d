"""Training with DDP by two actors of Ray: attached_ray.py [drift]

Each actor is a process that Ray starts. With "drift" rank 1 changes a parameter before the last
step.
"""

import os
import sys
import tempfile

os.environ.update(
    RAY_AUTH_MODE="disabled", RAY_raylet_start_wait_time_s="120", RAY_worker_niceness="0"
)

import ray  # noqa: E402 (asks for the variables)

STEPS = 3


@ray.remote(num_cpus=1)
class Trainer:
    def __init__(self, rank, store, folder, paths):
        sys.path[:0] = paths
        os.chdir(folder)
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)

    def train(self, with_drift):
        import attached_record
        import torch
        import torch.distributed as dist
        from torch import nn

        torch.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(nn.Linear(6, 6))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        torch.manual_seed(1 + dist.get_rank())
        losses = []
        for step in range(STEPS):
            loss = model(torch.randn(4, 6)).square().mean()
            loss.backward()
            if with_drift and step == STEPS - 1 and dist.get_rank() == 1:
                attached_record.drift(model)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        attached_record.record(model, optimizer, losses)
        dist.destroy_process_group()
        return dist.is_initialized()


def main():
    # Below /tmp, since the path of a socket must be short.
    with (
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as own,
        tempfile.TemporaryDirectory() as store,
    ):
        ray.init(num_cpus=2, include_dashboard=False, _temp_dir=own)
        trainers = [
            Trainer.remote(rank, f"{store}/store", os.getcwd(), [os.path.dirname(__file__)])
            for rank in range(2)
        ]
        ray.get([trainer.train.remote("drift" in sys.argv) for trainer in trainers])
        ray.shutdown()


if __name__ == "__main__":
    main()
