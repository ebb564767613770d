"""Names are those of a checkpoint, whatever wraps the model and whatever its user says."""

import unittest

import torch
from torch import nn

from . import _model
from ._names import Renaming, not_ignored


def names_of(model):
    return [held.name for held in _model.tensors_of(model)]


def test_one_pattern_to_ignore_is_one_and_not_its_letters():
    named = {"a.bias": 1, "a.weight": 2}
    assert not_ignored(named, "*.bias") == not_ignored(named, ["*.bias"]) == {"a.weight": 2}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.module = nn.Linear(2, 2, bias=False)


class Wrappers(nn.Module):
    """What `DeepSpeedEngine` and others are, as far as names go."""

    def __init__(self, module):
        super().__init__()
        self.module = module


class Names(unittest.TestCase):
    def test_a_module_of_the_users_own_keeps_its_name(self):
        self.assertEqual(names_of(Net()), ["module.weight"])
        self.assertEqual(names_of(Wrappers(Net())), ["module.module.weight"])

    def test_classes_around_a_module(self):
        for name in ("DeepSpeedEngine", "Float16Module", "MegatronFSDP", "DataParallel"):
            with self.subTest(name):
                engine = type(name, (Wrappers,), {})(Net())
                self.assertEqual(names_of(engine), ["module.weight"])
                self.assertEqual(names_of(type("Mine", (type(engine),), {})(Net())),
                                 ["module.weight"])  # fmt: skip

    def test_compiled_and_checkpointed(self):
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        model = nn.Sequential(checkpoint_wrapper(nn.Linear(2, 2, bias=False)))
        self.assertEqual(names_of(torch.compile(model)), ["0.weight"])


class Adapters(unittest.TestCase):
    def test_peft(self):
        try:
            import peft
        except ImportError:
            self.skipTest("peft is not installed")
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        config = peft.LoraConfig(r=2, target_modules=["0"], modules_to_save=["1"])
        tensors = _model.tensors_of(peft.get_peft_model(model, config))
        own = {held.name for held in tensors if not held.also}
        self.assertEqual({"0.weight", "0.bias", "1.weight", "1.bias"}, own)
        added = {held.name for held in tensors if held.also}
        self.assertLessEqual({"0.lora_A.default.weight", "0.lora_B.default.weight"}, added)
        self.assertFalse([name for name in own if "lora" in name or "base" in name])
        self.assertLessEqual({"1.modules_to_save.default.weight"}, added)
        by_name = {held.name: held.attributes for held in tensors}
        self.assertEqual(by_name["0.lora_B.default.weight"], {"scaling": "4.0"})
        self.assertEqual(by_name["0.lora_A.default.weight"], {})

    def test_rows_that_are_trained_and_their_old_values_are_the_adapters(self):
        try:
            import peft
        except ImportError:
            self.skipTest("peft is not installed")
        model = nn.ModuleDict({"tokens": nn.Embedding(4, 2), "out": nn.Linear(2, 2)})
        config = peft.LoraConfig(
            r=1, target_modules=["out"], trainable_token_indices={"tokens": [1]}
        )
        tensors = _model.tensors_of(peft.get_peft_model(model, config))
        own = {held.name for held in tensors if not held.also}
        self.assertEqual(own, {"tokens.weight", "out.weight", "out.bias"})

    def test_two_adapters_of_one_module_have_two_names(self):
        try:
            import peft
        except ImportError:
            self.skipTest("peft is not installed")
        packed = nn.Module()
        packed.up, packed.down = (nn.Parameter(torch.ones(2, 4, 4)) for _ in range(2))
        model = nn.ModuleDict({"experts": packed})
        config = peft.LoraConfig(r=2, target_modules=[], target_parameters=["up", "down"])
        tensors = _model.tensors_of(peft.get_peft_model(model, config))
        names = [held.name for held in tensors]
        self.assertEqual(
            [name for name in names if "lora_A" in name],
            ["experts.base_layer.lora_A.default.weight", "experts.lora_A.default.weight"],
        )
        self.assertLessEqual({"experts.up", "experts.down"}, set(names))


class Renamed(unittest.TestCase):
    def tensors(self):
        return _model.tensors_of(nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)}))

    def test_by_a_function_and_by_a_mapping(self):
        upper = Renaming(names=str.upper).apply(self.tensors())
        self.assertEqual(
            [held.name for held in upper], ["A.BIAS", "A.WEIGHT", "B.BIAS", "B.WEIGHT"]
        )
        some = Renaming(names={"a.bias": "z"}).apply(self.tensors())
        self.assertEqual([held.name for held in some], ["a.weight", "b.bias", "b.weight", "z"])

    def test_the_frameworks_own(self):
        found = Renaming(also=["b.*"]).apply(self.tensors())
        self.assertEqual([held.name for held in found if held.also], ["b.bias", "b.weight"])
        self.assertFalse(any(held.also for held in Renaming().apply(self.tensors())))

    def test_two_tensors_with_one_name_are_refused(self):
        with self.assertRaisesRegex(ValueError, "names= gives two tensors the name x"):
            Renaming(names=lambda name: "x").apply(self.tensors())


if __name__ == "__main__":
    unittest.main()
