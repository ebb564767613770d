"""What the pipeline makes of a config.json or an adapter that was drawn is what the oracle makes of
it; and where the oracle makes nothing of it, neither does the pipeline."""

from command import REPOSITORY, CommandTest

DRAW = REPOSITORY / "fixtures" / "checkpoints" / "draw_configs.py"
COUNT = 24  # four of each architecture
DAMAGES = 2


class DrawnConfigs(CommandTest):
    labels = "selftest framework"
    timeout_s = 400

    def test_models_from_scratch(self):
        drawn = self.dir / "drawn"
        self.assert_exit(self.run_script(DRAW, str(COUNT), "0", drawn, str(DAMAGES)), 0)
        cases = list((drawn / "cases").iterdir())
        adapted = [one for one in cases if '"adapter"' in one.read_text()]
        self.assertGreater(len(adapted), DAMAGES)
        done = self.shardproof("verify", "--corpus", drawn / "cases", "--generate", "1",
                               "--transport", "sim", timeout=300)  # fmt: skip
        self.assert_exit(done, 0)
        self.assertIn(f"pass: {len(cases) + 1} of {len(cases) + 1} ", done.out)
