"""What the pipeline makes of a config.json that was drawn is what the oracle makes of it."""

from command import REPOSITORY, CommandTest

DRAW = REPOSITORY / "fixtures" / "checkpoints" / "draw_configs.py"
COUNT = 24  # four of each architecture


class DrawnConfigs(CommandTest):
    labels = "selftest framework"
    timeout_s = 400

    def test_models_from_scratch(self):
        self.assert_exit(self.run_script(DRAW, str(COUNT), "0", self.dir / "configs"), 0)
        configs = sorted((self.dir / "configs").iterdir())
        self.assertEqual(len(configs), COUNT)
        for config in configs:
            with self.subTest(config.name):
                done = self.shardproof("verify", "--checkpoint", config, "--from-scratch",
                                       "--transport", "sim", "--mesh",
                                       "dp_shard=2,tp=2")  # fmt: skip
                self.assert_exit(done, 0)
