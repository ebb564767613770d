"""check, observe, seal and a checkpoint of an FSDP2 job whose tensors are on a GPU."""

import json
import os
from pathlib import Path

from command import REPOSITORY, CommandTest, without_device

FINITE = "layers.1.weight on rank {last}: 1 NaN and 0 Inf, the first at element"


def gpus():
    """(how many, the version of NCCL); asked here, after a test knows that there is one."""
    import torch

    return torch.cuda.device_count(), torch.cuda.nccl.version()


class Fsdp2(CommandTest):
    def said(self, device, backend, world):
        op = os.path.join(os.environ["SHARDPROOF_BUILD"], "_digest_op.so")
        script = Path(__file__).parent / "gpu_jobs.py"
        done = self.run_script(
            script, device, backend, world, self.dir, timeout=200, GLOO_SOCKET_IFNAME="lo",
            PYTHONPATH=str(REPOSITORY / "verify" / "python"), SHARDPROOF_DIGEST_OP=op,
        )  # fmt: skip
        self.assert_exit(done, 0)
        return json.loads(done.out.splitlines()[-1])

    def told_right(self, device, backend, world):
        found, last = self.said(device, backend, world), world - 1
        copied = found.pop("copied", None)
        sound = ("fresh", "sealed", "trained", "saved")
        self.assertEqual({what: found[what] for what in sound}, dict.fromkeys(sound, "sound"))
        self.assertIn("norm.bias on ", found["moved"])
        self.assertIn("in the checkpoint", found["moved"])
        self.assertIn("in the manifest", found["older"])
        self.assertIn(FINITE.format(last=last), found["nan"])
        if world > 1:
            self.assertIn(f"scale on rank {last}: element 7 is 0x40000000", found["scale"])
        self.reported_right(device, world)
        return copied

    def reported_right(self, device, world):
        """The evidence, of no checkpoint, has no finding, and says what is allocated on the device
        at each stage."""
        evidence = self.dir / "evidence"
        document = self.judged("report", evidence, code=3)
        self.assertEqual(document["findings"], [])
        held = [json.loads(line) for path in evidence.rglob("*.jsonl")
                for line in path.read_text().splitlines() if '"devices"' in line]  # fmt: skip
        if device == "cuda":
            stages = [one["stage"] for one in held if one.get("devices")]
            self.assertEqual(sorted(set(stages)), ["built", "ready", "sharded"])
            self.assertEqual(len(stages), 3 * world)

    def on_gpu(self, backend, world):
        if why := without_device("cuda"):
            self.skipTest(why.removeprefix("skipped: "))
        if backend == "nccl" and world > 1:
            count, version = gpus()
            if count < world and version < (2, 30):
                self.skipTest(f"{count} GPU, and this NCCL {version} lets no ranks share one")
        copied = self.told_right("cuda", backend, world)
        self.assertGreater(copied["count"], 0, "nothing was seen")
        self.assertLess(copied["bytes"], copied["held"] / 20)


class OnTheHost(Fsdp2):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 120

    def test_two_ranks_of_an_fsdp2_job(self):
        self.told_right("cpu", "gloo", 2)


class OnAGpu(Fsdp2):
    labels = "selftest multi-gpu framework"
    timeout_s = 240

    def test_one_rank_over_nccl(self):
        self.on_gpu("nccl", 1)

    def test_two_ranks_over_nccl(self):
        self.on_gpu("nccl", 2)

    def test_two_ranks_share_a_gpu_over_gloo(self):
        self.on_gpu("gloo", 2)
