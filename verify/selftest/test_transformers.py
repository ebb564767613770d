"""The real Transformers loads what we saved, bit for bit as it loads the source."""

from command import REPOSITORY, CommandTest, checkpoint

CHECK = REPOSITORY / "fixtures" / "checkpoints" / "check_loads.py"


class Loads(CommandTest):
    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 180

    def loads(self, model, strategy):
        saved = [self.dir / f"ws{world}" for world in range(1, 5)]
        for world, directory in enumerate(saved, start=1):
            done = self.shardproof("verify", "--checkpoint", checkpoint(model), "--world", world,
                                   "--strategy", strategy, "--save-to", directory)  # fmt: skip
            self.assert_exit(done, 0)
        done = self.run_script(CHECK, checkpoint(model), *saved, timeout=120,
                                TMPDIR=str(self.root))  # fmt: skip
        self.assert_exit(done, 0)
        self.assertEqual(done.out.count("equal "), 4, str(done))
        for directory in saved:
            self.assert_exit(self.shardproof("compare", checkpoint(model), directory), 0)

    def test_untied_qwen3_saved_by_1_to_4_ranks(self):
        self.loads("qwen3-small", "rank0-broadcast")

    def test_tied_llama_saved_by_1_to_4_ranks(self):
        self.loads("llama-tied-small", "rank0-broadcast")

    def test_tied_llama_saved_by_1_to_4_ranks_on_the_plain_path(self):
        self.loads("llama-tied-small", "plain")
