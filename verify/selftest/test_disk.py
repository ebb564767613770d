"""shardproof.check(against=...) and shardproof.seal in a job of two ranks with FSDP2."""

import json
import os
import sys

from command import REPOSITORY, CommandTest

FORMATS = ("dcp", "safetensors", "torch")


class Disk(CommandTest):
    labels = "selftest multi-rank framework"
    timeout_s = 200

    def job(self, *scenarios):
        """\\returns {scenario: what each of the two ranks was told}."""
        op = os.path.join(os.environ["SHARDPROOF_BUILD"], "_digest_op.so")
        done = self.run_process(
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
            REPOSITORY / "verify" / "selftest" / "disk_job.py", self.dir, *scenarios, timeout=150,
            PYTHONPATH=str(REPOSITORY / "verify" / "python"), SHARDPROOF_DIGEST_OP=op,
            GLOO_SOCKET_IFNAME="lo", TMPDIR=str(self.dir),
            TORCHINDUCTOR_CACHE_DIR=str(self.dir / "inductor"),
        )  # fmt: skip
        self.assert_exit(done, 0)
        ranks = [json.loads((self.dir / f"rank{rank}.json").read_text()) for rank in (0, 1)]
        self.assertEqual(ranks[0], ranks[1], "the ranks were told different things")
        return {told["scenario"]: told for told in ranks[0]}

    def seal_of(self, path):
        """The digests that the command finds in a checkpoint."""
        to = self.dir / "of_command.json"
        to.unlink(missing_ok=True)
        self.assert_exit(self.shardproof("seal", path, "--to", to), 0)
        return json.loads(to.read_text())["tensors"]

    def test_sound_saves_pass(self):
        found = self.job("sound", "later")
        for kind in FORMATS:
            told = found[f"sound {kind}"]
            self.assertEqual((told["end"], told.get("inconclusive")), ("ok", []), told)
        self.assertIn("15 names of the optimizer below 'optim.state.'", found["sound dcp"]["said"])
        self.assertIn("7 names of the model below 'model.'", found["sound dcp"]["said"])
        self.assertGreater(
            found["sound dcp"]["comparisons"], found["sound torch"]["comparisons"] + 15
        )

        self.assertEqual((found["later"]["end"], found["later dcp"]["end"]), ("ok", "ok"))
        self.assertIn("7 names of the model", found["later"]["said"])
        self.assertEqual(found["later stale"]["end"], "Mismatch")

    def test_a_mistake_on_disk_is_told_on_every_rank(self):
        found = self.job("stale", "element", "missing")
        for kind in FORMATS:
            stale, element = found[f"stale {kind}"], found[f"element {kind}"]
            self.assertEqual((stale["end"], element["end"]), ("Mismatch", "Mismatch"))
            named = {tensor for _, tensor, *_ in stale["findings"]}
            self.assertLessEqual({"embed.weight", "one.weight", "one.bias"}, named)
            self.assertNotIn("scale", named)  # a buffer, which no step changes
            ((of, tensor, ranks, index, what),) = element["findings"]
            self.assertEqual((of, tensor, ranks, index), ("disk", "low.weight", [1], 14))
            self.assertRegex(what, r"^element 14 is 0x[0-9a-f]{4} \(.*\), in the checkpoint 0x")
        missing = found["missing"]
        self.assertEqual(missing["end"], "ok")
        self.assertEqual(missing["inconclusive"], ["low.bias (not in the checkpoint)"])
        self.assertEqual(found["missing strict"]["end"], "Mismatch")
        self.assertIn("low.bias", found["missing strict"]["said"])

    def test_a_save_of_another_layout_is_compared(self):
        found = self.job("layouts", "fsdp1")
        for name in ("model", "safetensors.safetensors", "torch.pt"):
            told = found[f"columns {name}"]
            self.assertEqual((told["end"], told.get("inconclusive")), ("ok", []), told)
        for name in ("model", "torch.pt"):
            ((_, tensor, ranks, index, _),) = found[f"columns {name} changed"]["findings"]
            self.assertEqual((tensor, ranks, index), ("low.weight", [0, 1], 7))
        self.assertEqual(found["flat"]["end"], "ok", found["flat"])
        ((_, tensor, _, index, what),) = found["flat changed"]["findings"]
        self.assertEqual((tensor, index), ("1.weight", 2), what)

    def test_of_replicas_one_reads_and_all_are_named(self):
        found = self.job("replicas")
        named = [one[:3] for one in found["replicas other"]["findings"]]
        self.assertEqual(named, [["disk", "head.weight", [0, 1]]])
        alone, sound = found["replicas alone"], found["replicas sound"]
        self.assertEqual(sound["comparisons"] - alone["comparisons"], 7)

    def test_what_cannot_be_read_is_one_line_on_every_rank(self):
        found = self.job("truncated")
        self.assertEqual(len(found), len(FORMATS) + 3)
        for scenario, told in found.items():
            self.assertEqual(told["end"], "RuntimeError", told)
            self.assertEqual(len(told["said"].splitlines()), 1, told)
        self.assertIn("__1_0.distcp", found["truncated dcp"]["said"])
        self.assertIn("nothing: No such file or directory", found["no directory"]["said"])
        self.assertIn("the save did not finish", found["no metadata"]["said"])
        self.assertIn("rank 1 cannot read the checkpoint", found["one rank"]["said"])

    def test_a_seal_of_the_job_is_that_of_its_saves(self):
        found = self.job("sealed")
        self.assertEqual((found["seal"]["end"], found["stale seal"]["end"]), ("ok", "Mismatch"))
        folder = self.dir / "sealed"
        live = json.loads((folder / "live.json").read_text())["tensors"]
        self.assertEqual(self.seal_of(folder / "dcp"), live)
        model = {
            name: entry for name, entry in live.items()
            if name.startswith("model.") and name != "model.head.weight"
        }  # fmt: skip
        # Of tied tensors safetensors keeps one name.
        of_safetensors = self.seal_of(folder / "safetensors.safetensors")
        self.assertEqual({f"model.{name}": each for name, each in of_safetensors.items()}, model)
        for saved, seal in (("model", "model.json"), ("dcp", "state.json")):
            done = self.shardproof("audit", folder / saved, "--seal", folder / seal)
            self.assert_exit(done, 0)
            self.assertIn("with the bytes that were sealed", done.out)
