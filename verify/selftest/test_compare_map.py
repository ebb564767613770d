"""compare --map and --cast: other names, other layouts, a stated cast."""

import struct

from checkpoints import Tensor, f32, write_safetensors
from command import CommandTest


def joined(tensors):
    """Tensors of equal width, one below the other."""
    rows = sum(tensor.shape[0] for tensor in tensors)
    return Tensor("F32", [rows, tensors[0].shape[1]], b"".join(t.data for t in tensors))


def transposed(tensor):
    rows, columns = tensor.shape
    values = struct.unpack(f"<{rows * columns}f", tensor.data)
    return f32([columns, rows], [values[r * columns + c] for c in range(columns)
                                 for r in range(rows)])  # fmt: skip


Q, K, V = (f32([rows, 3], seed=rows) for rows in (4, 2, 5))
PARTS = {"attn.q": Q, "attn.k": K, "attn.v": V}
FUSE = "cat(attn.q, attn.k, attn.v) -> attn.qkv"


class Mapped(CommandTest):
    def compare(self, left, right, code, mapped=None, *more):
        write_safetensors(self.dir / "a.safetensors", left)
        write_safetensors(self.dir / "b.safetensors", right)
        words = ["compare", "a.safetensors", "b.safetensors", *more]
        if mapped is not None:
            words += ["--map", mapped]
        return self.judged(*words, code=code)


class Map(Mapped):
    def test_common_prefix_is_recognised_and_the_suggested_map_passes(self):
        right = {f"module.{name}": tensor for name, tensor in PARTS.items()}
        document = self.compare(PARTS, right, 1)
        self.assertIn("module.", document["suggestion"])
        self.assertEqual(document["suggested_map"], "{rest*} -> module.{rest*}\n")
        again = self.compare(PARTS, right, 0, document["suggested_map"])
        self.assertEqual(again["tensors"], 3)

    def test_prefix_on_the_other_side(self):
        left = {f"_orig_mod.{name}": tensor for name, tensor in PARTS.items()}
        document = self.compare(left, PARTS, 1)
        self.compare(left, PARTS, 0, document["suggested_map"])

    def test_rename(self):
        self.compare({"old": Q}, {"new": Q}, 0, "old -> new")

    def test_rename_does_not_hide_a_difference(self):
        changed = Q.changed(8, struct.pack("<f", 9.0))
        document = self.compare({"old": Q}, {"new": changed}, 1, "old -> new")
        self.assertEqual(document["differences"][0]["index"], 2)

    def test_fuse(self):
        self.compare(PARTS, {"attn.qkv": joined([Q, K, V])}, 0, FUSE)

    def test_fuse_in_another_order_differs_at_its_first_element(self):
        document = self.compare(PARTS, {"attn.qkv": joined([Q, V, K])}, 1, FUSE)
        self.assertEqual(document["differences"][0]["tensor"], "attn.qkv")
        self.assertEqual(document["differences"][0]["index"], 12)

    def test_split(self):
        split = "attn.qkv -> cat(attn.q, attn.k, attn.v)"
        self.compare({"attn.qkv": joined([Q, K, V])}, PARTS, 0, split)

    def test_transpose(self):
        mapped = "transpose(w) -> w"
        self.compare({"w": Q}, {"w": transposed(Q)}, 0, mapped)
        self.compare({"w": Q}, {"w": f32([3, 4], seed="other")}, 1, mapped)

    def test_rules_of_a_file_and_of_the_command_line_together(self):
        path = self.write("qkv.map", f"# fused\n{FUSE}\n")
        left, right = {**PARTS, "old": Q}, {"attn.qkv": joined([Q, K, V]), "new": Q}
        self.compare(left, right, 0, path, "--map", "old -> new")

    def test_experts_of_several_layers(self):
        """Names by pattern: 3 layers of 11 experts, the tenth behind the second by name."""
        experts = {
            (layer, expert): f32([2, 3], seed=f"{layer} {expert}")
            for layer in range(3)
            for expert in range(11)
        }
        left = {f"l.{at[0]}.experts.{at[1]}.up": tensor for at, tensor in experts.items()}
        stacked = {
            f"l.{layer}.up": Tensor(
                "F32", [11, 2, 3], b"".join(experts[layer, e].data for e in range(11))
            )
            for layer in range(3)
        }
        for rule in (
            "stack(l.{l}.experts.{e}.up) -> l.{l}.up",
            "l.{l}.experts.{e}.up -> l.{l}.up[{e}]",
        ):
            self.compare(left, stacked, 0, rule)
            changed = {**stacked, "l.1.up": stacked["l.1.up"].changed(4 * 62, b"\0\0\0\0")}
            document = self.compare(left, changed, 1, rule)
            found = [(d["tensor"], d["index"]) for d in document["differences"]]
            self.assertEqual(found, [("l.1.up", 62)])
        del left["l.1.experts.4.up"]
        document = self.compare(left, stacked, 1, "stack(l.{l}.experts.{e}.up) -> l.{l}.up")
        self.assertIn("A lacks 'l.1.experts.4.up'", document["lacking"][0])

    def test_sizes_of_config_json(self):
        left = {"q": f32([8, 3], seed=1), "k": f32([4, 3], seed=2)}
        row = 12
        q, k = (left[name].data for name in "qk")
        fused = Tensor("F32", [12, 3], q[: 4 * row] + k[: 2 * row] + q[4 * row :] + k[2 * row :])
        rule = "interleave(q, k, groups=config.heads.of_keys) -> qk"
        self.write("config.json", {"heads": {"of_keys": 2}})
        self.compare(left, {"qk": fused}, 0, rule)
        self.write("config.json", {"heads": {"of_keys": 3}})
        self.refused("compare", "a.safetensors", "b.safetensors", "--map", rule,
                     names=["interleave", "3"])  # fmt: skip
        self.write("config.json", {"heads": {"of_keys": "two"}})
        self.refused("compare", "a.safetensors", "b.safetensors", "--map", rule,
                     names=["config.json", "'two'"])  # fmt: skip

    def refused_map(self, mapped, *names):
        write_safetensors(self.dir / "a.safetensors", {"w": Q})
        self.refused("compare", "a.safetensors", "a.safetensors", "--map", mapped, names=names)

    def test_map_that_is_no_rule(self):
        self.refused_map(self.write("rules.map", "w w"), "rules.map", "line 1")
        self.refused_map(self.write("rules.map", "{"), "rules.map", "found JSON")

    def test_map_with_an_unknown_function(self):
        self.refused_map("fold(w) -> w", "fold", "stack")

    def test_map_that_names_what_is_not_there(self):
        self.refused_map("nobody -> w", "nobody")

    def test_map_whose_pattern_no_name_has(self):
        self.refused_map("module.{rest*} -> {rest*}", "module.")

    def test_map_that_uses_a_tensor_twice(self):
        self.refused_map("cat(w, w) -> w", "'w' twice")

    def test_map_that_swaps_a_dim_which_is_not_there(self):
        self.refused_map("transpose(w, 0, 5) -> w", "transpose")

    def test_map_that_is_not_there(self):
        self.refused_map("nowhere.map", "nowhere.map")


class Like(Mapped):
    """audit --like: the names, shapes and dtypes of a reference."""

    def like(self, tensors, code, *words):
        write_safetensors(self.dir / "reference.safetensors", PARTS)
        write_safetensors(self.dir / "a.safetensors", tensors)
        words = ["audit", "a.safetensors", "--like", "reference.safetensors", *words]
        return self.judged(*words, code=code)["damage"]

    def test_rows_of_one_shard_a_lost_tensor_and_one_too_many(self):
        others = {name: f32(tensor.shape, seed="other") for name, tensor in PARTS.items()}
        self.assertEqual(self.like(others, 0), [])
        (line,) = self.like({**others, "attn.v": f32([2, 3])}, 1)
        self.assertIn("'attn.v': expected F32 [5, 3] as in reference.safetensors, found F32 [2, 3]",
                      line)  # fmt: skip
        del others["attn.k"]
        lost, more = self.like({**others, "mask": Q}, 1)
        self.assertIn("'attn.k': expected as in reference.safetensors, found none", lost)
        self.assertIn("'mask': expected none", more)

    def test_under_a_map(self):
        fused = {"attn.qkv": f32([11, 3])}
        self.assertEqual(self.like(fused, 0, "--map", FUSE), [])
        (line,) = self.like({"attn.qkv": f32([10, 3])}, 1, "--map", FUSE)
        self.assertIn("(cat(attn.q, attn.k, attn.v)), found F32 [10, 3]", line)

    def test_a_map_without_a_reference(self):
        write_safetensors(self.dir / "a.safetensors", PARTS)
        self.refused("audit", "a.safetensors", "--map", FUSE, names=["--map", "--like"])


class Cast(Mapped):
    def test_cast_to_bf16(self):
        """1 + 2^-9 rounds down to 1, and 1 + 3 * 2^-8 up, to the even neighbour."""
        left = {"w": f32([3], [1.0, 1.0 + 2**-9, 1.0 + 3 * 2**-8])}
        right = {"w": Tensor("BF16", [3], struct.pack("<3H", 0x3F80, 0x3F80, 0x3F82))}
        self.compare(left, right, 1)
        document = self.compare(left, right, 0, None, "--cast", "BF16")
        self.assertEqual(document["cast_tensors"], 1)

    def test_cast_by_truncation_differs(self):
        left = {"w": f32([1], [1.0 + 3 * 2**-8])}
        right = {"w": Tensor("BF16", [1], struct.pack("<H", 0x3F81))}
        document = self.compare(left, right, 1, None, "--cast", "BF16")
        self.assertEqual(document["differences"][0]["index"], 0)

    def test_cast_to_an_unknown_dtype(self):
        write_safetensors(self.dir / "a.safetensors", {"w": Q})
        self.refused("compare", "a.safetensors", "a.safetensors", "--cast", "F31",
                     names=["F31", "BF16"])  # fmt: skip
