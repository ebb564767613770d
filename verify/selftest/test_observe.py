"""A script of one's own, observed: `shardproof report` judges what it left."""

import os
import sys

from command import REPOSITORY, CommandTest, checkpoint


class Observed(CommandTest):
    labels = "selftest multi-rank framework"
    timeout_s = 150
    fixtures = "checkpoints"

    def observe(self, mistake, *, code):
        """Runs the script on two ranks. \\returns the result that `report` gives."""
        evidence = self.dir / "evidence"
        op = os.path.join(os.environ["SHARDPROOF_BUILD"], "_digest_op.so")
        done = self.run_process(
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
            REPOSITORY / "verify" / "selftest" / "observed_job.py", checkpoint("qwen3-small"),
            mistake, timeout=100, PYTHONPATH=str(REPOSITORY / "verify" / "python"),
            SHARDPROOF_DIGEST_OP=op, SHARDPROOF_EVIDENCE=str(evidence), GLOO_SOCKET_IFNAME="lo",
            TMPDIR=str(self.dir), TORCHINDUCTOR_CACHE_DIR=str(self.dir / "inductor"),
        )  # fmt: skip
        self.assertEqual(done.code == 0, mistake != "raises", str(done))
        return self.judged("report", evidence, "--report", "report", code=code)

    def finding(self, document, property_id):
        found = [one for one in document["findings"] if one["property"] == property_id]
        self.assertTrue(found, document["findings"])
        return found[0]

    def test_sound_script_has_no_finding(self):
        # Inconclusive: what a script does not show, such as `built`, cannot be judged.
        document = self.observe("none", code=3)
        self.assertEqual(document["findings"], [])
        self.assertTrue(document["subject"].endswith("observed_job.py"), document["subject"])
        passed = {one["id"] for one in document["properties"] if one["verdict"] == "pass"}
        self.assertLessEqual({"loading.equals_source", "sharding.shards_tile",
                              "sharding.ranks_match_rank0", "training.optimizer_live"},
                             passed)  # fmt: skip

    def test_a_job_that_names_no_checkpoint_is_told_apart(self):
        document = self.observe("no_checkpoint", code=3)
        reasons = " ".join(one.get("reason", "") for one in document["properties"])
        self.assertIn("the job named no checkpoint", reasons)
        head = self.shardproof("report", self.dir / "evidence").out.splitlines()[0]
        self.assertIn("(axis0 2), no checkpoint, seed 0", head)
        page = (self.dir / "report" / "report.html").read_text()
        for said in (head, page[: page.index("</header>")]):
            self.assertIn("no checkpoint", said)
            self.assertNotIn("0 tensors", said)
            self.assertNotIn("plain", said)

    def test_stale_optimizer_is_named(self):
        document = self.observe("stale_optimizer", code=1)
        found = [
            one for one in document["findings"] if one["property"] == "training.optimizer_live"
        ]
        self.assertIn(
            ("not-held", "ready.optimizer"), {(one["kind"], one["stage"]) for one in found}
        )

    def test_an_exception_is_the_root_cause(self):
        found = self.finding(self.observe("raises", code=1), "fault.every_rank_finishes")
        self.assertIn("lost my way", found["message"])
        self.assertEqual(found["ranks"], [1])


class OneElement(Observed):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 150
    fixtures = "checkpoints"

    def test_one_element_is_named_to_its_block(self):
        found = self.finding(self.observe("one_element", code=1), "loading.equals_source")
        self.assertEqual(found["tensor"], "model.layers.1.mlp.up_proj.weight")
        # There is no second run for the bytes: the block is named, and it may reach over two ranks.
        self.assertIn(1, found["ranks"])
        self.assertIn("in 1 of 7 blocks", found["message"])
