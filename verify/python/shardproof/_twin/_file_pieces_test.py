"""Tensors are found in the files by their bytes, whatever a framework has made of the keys."""

import dataclasses
import unittest

import torch

from . import _file_pieces


@dataclasses.dataclass
class Held:
    name: str
    local: torch.Tensor
    is_meta: bool = False


def pieces(tensors, files):
    held = [Held(name, tensor) for name, tensor in tensors.items()]
    return _file_pieces.pieces_of(held, files.__getitem__, list(files))


def made_of(found, files, dtype):
    """What the pieces make, as the verifier's own reader puts them together."""
    return torch.cat(
        [files[p["key"]].reshape(-1)[p["start"] : p["start"] + p["count"]].to(dtype) for p in found]
    )


class Pieces(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def holds(self, name, tensor, files):
        found = pieces({name: tensor}, files)
        self.assertIn(name, found)
        self.assertTrue(torch.equal(made_of(found[name], files, tensor.dtype), tensor.reshape(-1)))
        return [piece["key"] for piece in found[name]]

    def test_another_name(self):
        files = {"h.0.weight": torch.randn(4, 3), "h.1.weight": torch.randn(4, 3)}
        self.assertEqual(self.holds("x.h.1.weight", files["h.1.weight"], files), ["h.1.weight"])

    def test_packed_experts(self):
        files = {f"experts.{e}.{p}": torch.randn(6, 4) for e in range(11) for p in ("up", "down")}
        packed = torch.stack(
            [torch.cat([files[f"experts.{e}.up"], files[f"experts.{e}.down"]]) for e in range(11)]
        )
        keys = self.holds("experts.up_down", packed, files)
        self.assertEqual(
            keys[:2] + keys[-1:], ["experts.0.up", "experts.0.down", "experts.10.down"]
        )

    def test_a_part_of_a_fused_tensor(self):
        files = {"qkv": torch.randn(12, 5)}
        found = pieces({"k": files["qkv"][4:8].clone(), "v": files["qkv"][8:].clone()}, files)
        self.assertEqual(found["k"], [{"key": "qkv", "start": 20, "count": 20}])
        self.assertEqual(found["v"], [{"key": "qkv", "start": 40, "count": 20}])

    def test_another_dtype(self):
        files = {"a": torch.randn(8).bfloat16(), "b": torch.randn(8).bfloat16()}
        self.holds("ab", torch.cat([files["a"], files["b"]]).float(), files)

    def test_nan_equals_itself(self):
        files = {"a": torch.tensor([float("nan"), 1.0, -0.0])}
        found = pieces({"b": files["a"].clone()}, files)
        self.assertEqual(found, {"b": [{"key": "a", "start": 0, "count": 3}]})

    def test_of_equal_values_the_name_that_is_like_it(self):
        files = {f"layers.{n}.norm.bias": torch.zeros(4) for n in range(3)}
        keys = self.holds("model.layers.2.norm.bias", torch.zeros(4), files)
        self.assertEqual(keys, ["layers.2.norm.bias"])

    def test_what_no_file_has_is_not_found(self):
        files = {"a": torch.randn(4, 4)}
        self.assertEqual(pieces({"b": torch.randn(4, 4)}, files), {})
        self.assertEqual(pieces({"t": files["a"].t().contiguous()}, files), {})
        self.assertEqual(pieces({"i": torch.arange(16)}, files), {})
        self.assertEqual(pieces({"short": files["a"].reshape(-1)[2:5].clone()}, files), {})

    def test_a_key_is_used_once(self):
        files = {"a": torch.randn(4)}
        self.assertEqual(pieces({"aa": torch.cat([files["a"]] * 2)}, files), {})


if __name__ == "__main__":
    unittest.main()
