"""The example of a trainer and an engine: a thousand syncs of it are silent, and a mistake is told
by `check` and by the report of both logs."""

import os
import sys

from command import REPOSITORY, CommandTest, command

EXAMPLE = REPOSITORY / "fixtures" / "examples" / "weight_sync.py"
# How often, by (ranks of the trainer on FSDP2, tensor-parallel ranks of the engine).
SYNCS = {(2, 2): 400, (1, 3): 250, (3, 1): 250, (2, 4): 100}


class Syncs(CommandTest):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 900

    def synced(self, trainers, engines, syncs, *words):
        """\\returns what the example and the report of its logs have ended with."""
        logs = self.dir / f"{trainers}-{engines}"
        logs.mkdir()
        done = self.run_process(
            sys.executable, EXAMPLE, "--syncs", syncs, "--log", logs, "--trainers", trainers,
            "--engines", engines, *words, timeout=300,
            PATH=os.pathsep.join([os.path.dirname(command()), os.environ["PATH"]]),
            PYTHONPATH=str(REPOSITORY / "verify" / "python"), GLOO_SOCKET_IFNAME="lo",
            SHARDPROOF_DIGEST_OP=os.path.join(os.environ["SHARDPROOF_BUILD"], "_digest_op.so"),
            TMPDIR=str(self.dir),  # where torch leaves an empty folder
        )  # fmt: skip
        return done, self.shardproof("report", logs)

    def test_a_thousand_are_silent(self):
        for (trainers, engines), syncs in SYNCS.items():
            with self.subTest(trainers=trainers, engines=engines):
                done, reported = self.synced(trainers, engines, syncs)
                self.assert_exit(done, 0)
                self.assertEqual(done.out.count("comparisons"), syncs)
                self.assertNotIn("not compared", done.err)
                self.assert_exit(reported, 0)
                said = f"versions sent {syncs}, engines 1, checks {syncs}"
                self.assertIn(said, reported.out)

    def test_what_an_engine_forgets_is_told_at_any_sharding(self):
        for trainers, engines in ((1, 3), (3, 1)):
            with self.subTest(trainers=trainers, engines=engines):
                done, reported = self.synced(trainers, engines, 2, "--forget", "down")
                self.assert_exit(done, 1)
                self.assertIn("it is still that of version 1", done.err)
                self.assert_exit(reported, 1)
                self.assertIn("down.weight", reported.out)
