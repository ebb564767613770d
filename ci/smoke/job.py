"""What an installed shardproof must do in a job: python ci/smoke/job.py [--no-op]

In this Python, with its torch: digests against src/digest/vectors.json, by the built op and without
it; `check` on two ranks over Gloo, of a sound model and of one with a changed element; `observe`.
Prints one line; exit code 0 if all of it is as it should be. With --no-op the op is expected not to
load, and the ranks digest without it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

VECTORS = Path(__file__).parents[2] / "src/digest/vectors.json"
START_MAX = 1 << 62  # what starts beyond it is for those who count in 64 bits without a sign
DEADLINE_S = 300


def local_of(vector):
    """The bytes of all runs, one behind the other, and the runs as this Python side has them."""
    import torch
    from shardproof._holdings._layout import Run

    data, memory, runs = vector["data"], [], []
    for run in vector["runs"]:
        runs.append(Run(run["global_start"], run["length"], run["count"], run["global_stride"],
                        len(memory), run["length"]))  # fmt: skip
        positions = [
            run["global_start"] + i * run["global_stride"] + k
            for i in range(run["count"])
            for k in range(run["length"])
        ]
        if data["kind"] == "formula":
            memory += [((p * 2654435761 + data["seed"]) % 2**32) >> 24 for p in positions]
        elif data["kind"] == "constant":
            memory += [data["byte"]] * len(positions)
    if data["kind"] == "hex":
        memory = list(bytes.fromhex(data["hex"]))
    return torch.tensor(memory, dtype=torch.uint8), runs


def check_vectors(ways):
    from shardproof._digests import _digest

    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"]
    used = [v for v in vectors if all(run["global_start"] < START_MAX for run in v["runs"])]
    for has_op in ways:
        _digest._has_op = has_op
        for vector in used:
            found = _digest.digest_runs(*local_of(vector)).hex()
            if found != vector["digest"]:
                way = "the op" if has_op else "plain PyTorch"
                sys.exit(f"vector {vector['name']}: {way} gives {found}")
    return len(used)


def rank_main(scratch):
    """One rank of the job."""
    import shardproof
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{scratch}/meeting",
                            rank=int(os.environ["RANK"]), world_size=2)  # fmt: skip
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(33, 65), torch.nn.Linear(65, 7))
    shardproof.check(model)
    sharded = torch.nn.Linear(33, 65)
    fully_shard(sharded, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=0.01)
    shardproof.observe("built", model=sharded)
    sharded(torch.randn(8, 33)).square().mean().backward()
    optimizer.step()
    shardproof.check(sharded, optimizer=optimizer)
    shardproof.observe("ready", model=sharded, optimizer=optimizer)
    if dist.get_rank() == 1:
        with torch.no_grad():
            model[1].bias[3] += 1
    try:
        shardproof.check(model)
    except shardproof.Mismatch as error:
        said = str(error)
        if "1.bias" not in said or "rank 1" not in said or "3" not in said:
            sys.exit(f"check names another tensor, rank or element: {said}")
    else:
        sys.exit("check passed a model of which rank 1 has another element")
    dist.destroy_process_group()


def run_ranks(scratch):
    ranks = []
    for rank in range(2):
        environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                       "LOCAL_WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip
        words = [sys.executable, os.path.abspath(__file__), "--rank", scratch]
        ranks.append(subprocess.Popen(words, cwd=scratch, env=environment))
    try:
        codes = [rank.wait(timeout=DEADLINE_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(codes):
        sys.exit(f"ranks ended with {codes}")
    recorded = sorted(path.name for path in Path(scratch).glob("**/rank_*.facts.jsonl"))
    if recorded != ["rank_0.facts.jsonl", "rank_1.facts.jsonl"]:
        sys.exit(f"observe left {recorded}: expected the evidence of two ranks")


def main():
    if sys.argv[1:2] == ["--rank"]:
        rank_main(sys.argv[2])
        return
    expects_op = "--no-op" not in sys.argv
    import torch
    from shardproof._digests import _digest

    if _digest.has_op() != expects_op:
        sys.exit(f"the digest op {'does not load' if expects_op else 'loads'}")
    count = check_vectors([True, False] if expects_op else [False])
    with tempfile.TemporaryDirectory() as scratch:
        run_ranks(scratch)
    way = "op and plain" if expects_op else "plain"
    print(f"torch {torch.__version__}: {count} digests {way}, check and observe on 2 ranks: right")


if __name__ == "__main__":
    main()
