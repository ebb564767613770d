"""audit --config: keys and shapes against the model that Transformers builds of config.json."""

import shutil

from checkpoints import CONFIG, f32, llama_tensors, write_checkpoint
from command import CommandTest


class FitsConfig(CommandTest):
    labels = "selftest framework"
    timeout_s = 200

    def audit(self, tensors, config=CONFIG, words=(), code=0):
        shutil.rmtree(self.dir / "c", ignore_errors=True)
        write_checkpoint(self.dir / "c", tensors, config=config)
        return self.judged("audit", "c", "--config", *words, code=code, timeout=180)

    def test_what_fits_is_sound(self):
        found = self.audit(llama_tensors() | {"odd": f32([2])})
        self.assertEqual((found["damage"], found["not_judged"]), ([], []))
        [remark] = found["remarks"]
        self.assertRegex(remark, "not loaded by LlamaForCausalLM of Transformers [0-9.]+: 'odd'")

    def test_keys_and_shapes_that_do_not_fit_are_named(self):
        tensors = llama_tensors() | {"lm_head.weight": f32([13, 8])}
        del tensors["model.norm.weight"]
        missing, shape = self.audit(tensors, code=1)["damage"]
        self.assertIn("expected tensor 'model.norm.weight', which LlamaForCausalLM", missing)
        self.assertIn("tensor 'lm_head.weight': expected [11, 8], as LlamaForCausalLM", shape)
        self.assertIn("found [13, 8]", shape)

    def test_without_an_answer_it_is_inconclusive(self):
        for config, words, why in (
            (CONFIG | {"architectures": ["NobodysModel"]}, (), "no architecture 'NobodysModel'"),
            (CONFIG, ("--python", "/bin/false"), "/bin/false: exit 1"),
        ):
            with self.subTest(why):
                [line] = self.audit(llama_tensors(), config, words, code=3)["not_judged"]
                self.assertIn(why, line)
