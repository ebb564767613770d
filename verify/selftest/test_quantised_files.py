"""audit of weights that compressed-tensors quantised: sound ones, and each with a scale renamed."""

from pathlib import Path

from command import CommandTest

SAVE = Path(__file__).parent / "save_quantised.py"
SCALE, OTHER = (
    b'"model.layers.0.mlp.up_proj.weight_scale"',
    b'"model.layers.0.mlp.up_proj.weight_scald"',
)


class QuantisedFiles(CommandTest):
    labels = "selftest framework"
    timeout_s = 400

    def test_every_preset_is_sound_and_without_a_scale_it_is_not(self):
        done = self.run_script(SAVE, self.dir, timeout=300)
        self.assert_exit(done, 0)
        presets = done.out.splitlines()[-1].split()
        self.assertGreater(len(presets), 20)
        for preset in presets:
            with self.subTest(preset):
                done = self.shardproof("audit", preset, "--finite")
                self.assert_exit(done, 0)
                self.assertIn("config.json, 13 weights with scales", done.out)
                file = self.dir / preset / "model.safetensors"
                data = file.read_bytes()
                self.assertEqual(data.count(SCALE), 1)
                file.write_bytes(data.replace(SCALE, OTHER))
                done = self.shardproof("audit", preset)
                self.assert_exit(done, 1)
                self.assertIn(f"expected '{SCALE.decode()[1:-1]}'", done.out)
